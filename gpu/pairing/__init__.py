"""The optimal ate pairing as machine code: `tower` is Fp6 and Fp12, `lines` the Miller steps, `scalar` the
kernels, `host` what callers use.

All of it needs numba. The same pairing on Python ints, its oracle, is `gpu.curve.pairing`.
"""
