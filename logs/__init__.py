"""The archive: what a machine said and made, kept after the machine is gone.

`wire`, `chunks`, `emergency`, `redact` are pure (stdlib, and zstd for `chunks`): the agent
uses them on rented machines. `gaps` and `evidence` are pure too: they name what is missing and
make the manifest. `store`, `multipart`, `presign` and `probe` speak S3, with the errors of
`errors`; `frames` and `reader` page through lines; `bundle` seals; `tail` speaks Redis.
Imports nothing of ours from other rooms; no SQL, Flask or RQ: callers pass the records in.
"""
