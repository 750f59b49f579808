"""The archive: what a machine said and made, kept after the machine is gone.

`wire`, `chunks`, `emergency`, `redact` are pure (stdlib, and zstd for `chunks`): the agent
uses them on rented machines. `store` speaks S3, `tail` speaks Redis, `reader` pages through
lines, `evidence` makes the manifest and the bundle. Imports nothing of ours from other
rooms; no SQL, Flask or RQ: callers pass the records in.
"""
