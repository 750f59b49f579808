"""Multi-scalar multiplication: `scalar` the Pippenger kernels, `plan` windows and threads, `fixed` many
multiples of one point.

The oracle is `Group.msm` of `gpu.curve.reference`. May import `gpu.field` and `gpu.curve`; needs numpy and
numba.
"""
