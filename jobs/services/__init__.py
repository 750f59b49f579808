"""The services of one machine: what `provefleet up` starts, watches and stops; `doctor` and `demo`.

state.py holds the state folder and its locks, known.py what was generated at the first start, programs.py the
table of programs, supervision.py and control.py supervisord, up.py the order. May import: jobs, logs, the standard
library; heavy packages only inside functions, because the process of `up` stays in memory. Never Flask.
"""
