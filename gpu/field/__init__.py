"""Prime fields: `params` the numbers, `tower` the Python-int oracle.

On the CPU: `limbs` (one element, i128 arithmetic, or `adx` assembly) and `ifma` on `vector` (eight elements, AVX-512
IFMA) emit arithmetic under the same names; `bodies` and `transfer` write operations with it, `lowering` makes them
functions; kernels call `operations` (arithmetic) and `moves`, for either by the marker of `kinds`. `compiled` says how
kernels are compiled and cached, `isa` which instructions there are, `choice` which back end to use.

`params` and `tower` import the standard library only (the control plane uses them); the rest needs numba.
"""
