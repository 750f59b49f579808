"""Elliptic curves. `params` the numbers, `reference` the group law on Python ints, `pairing` our own pairing,
`scalar` and `checks` the numba kernels.

`params`, `reference` and `pairing` import the standard library and `gpu.field` only; the kernels need numba.
"""
