"""Statements compiled once a process. Each test has a database of its own, and so an engine; by itself an engine
compiles every statement anew, which was a third of what a test of the jobs costs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Dialect

from jobs.context import Context

_dialects: dict[str, Dialect] = {}
_compiled: dict[Any, Any] = {}


def compiled_once(context: Context) -> Context:
    """The context, its engine as the product makes it, but with the statements of all engines of its kind at hand.

    What is compiled is looked up by dialect, so the engines of a kind share their dialect: that of the first one, once
    it has learned from a connection what it talks to. A database that can't be reached raises SQLAlchemy's errors.
    """
    engine = context.engine
    kind = engine.dialect.name
    if kind not in _dialects:
        with engine.connect():
            _dialects[kind] = engine.dialect
    engine.dialect = _dialects[kind]
    engine.update_execution_options(compiled_cache=_compiled)
    return context
