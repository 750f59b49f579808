"""The agent: what a rented machine runs (`python -m gpu.agent`). Registers, holds the lease, runs the stages,
ships every stream while it grows, seals, ends itself.

Standard library and zstandard only. Of ours: `gpu.protocol`, `logs.wire`, `logs.chunks`, `logs.redact`,
`logs.emergency`. Never numba (it must start in a moment), never web, jobs or a database.
"""
