"""Number-theoretic transforms over the scalar fields: `reference` the oracle, `bodies` the butterflies,
`scalar` the passes, `domain` the tables of one size and the transforms that Groth16 needs.

May import `gpu.field` and `gpu.curve.params`; all but `reference` need numpy and numba.
"""
