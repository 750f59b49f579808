"""Why a run ended as it did: ranked causes with cited lines, and the tempting wrong ones refuted.

Reads a `Case` (logs and facts; no database, no network, no clock) and writes a `Report`. Causes are slugs. What a line
may mean is data (`signatures/*.toml`); what figures mean is in
`figures.py` and `telemetry.py`; what explains what, and what a stage must use, in `causes.toml`.
Imports nothing of the other rooms.
"""
