"""Prime fields: `params` the numbers, `tower` the Python-int oracle, `limbs`, `bodies` and `lowering` the
emitted machine code, `scalar` what kernels call, `compiled` how they are compiled and cached.

`params` and `tower` import the standard library only (the control plane uses them); the rest needs numba.
"""
