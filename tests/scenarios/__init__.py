"""Faults against the real stack: `provefleet up` with every service, agents and provers as on any day.

Each scenario is named for its fault, has a budget on the wall clock, and asserts on rows, archived objects and
the provider's list. `world.py` is the stack and what can be done to it, `runs.py` a run and what became of it,
`invariants.py` what must hold after every scenario.
"""
