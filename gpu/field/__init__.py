"""Prime fields. `params` holds the numbers, `tower` the Python-int oracle, `limbs` the LLVM emitters,
`scalar` the kernels.

`params` and `tower` import the standard library only (the control plane uses them); `limbs` and `scalar` need
numba.
"""
