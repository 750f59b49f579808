"""Multi-scalar multiplication. On the CPU: `plan` windows, stripes and threads, `digits` scalars made ready, `batch`
additions by the thousand with one `inverse`, `bits` the end, `fixed` many multiples of one point. On a GPU: `cuda`,
`launch`, `schedule`, `sorting`, `horner`.

The oracle is `Group.msm` of `gpu.curve.reference`. May import `gpu.field` and `gpu.curve`; needs numpy and
numba.
"""
