"""What runs on the rented machine: the agent, the prover, its daemon and its bench.

May import the standard library, numpy, numba, llvmlite, click, zstandard, and of ours only
`logs.wire`, `logs.chunks`, `logs.redact` and `logs.emergency` (pure). Never web, jobs, a
database or an account key: the machine belongs to a stranger.
"""
