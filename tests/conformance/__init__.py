"""Vast's own client, `vastai` 1.9.1, against the fake market: proof that the fake's answers have the real shapes.

The client lives in `.venv-vastai` and runs in processes of its own, with an empty home folder and no way to Vast.
What it said and heard is kept in `recorded/`, where the core tests hold our own client against it.
"""
