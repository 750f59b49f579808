"""Number-theoretic transforms over the scalar fields: `reference` the oracle, `bodies` the butterflies,
`passes` the loops, `tables` the twiddles, `domain` the transform that Groth16 needs; `cuda` and `launch` the same on a
GPU.

May import `gpu.field` and `gpu.curve.params`; all but `reference` need numpy and numba.
"""
