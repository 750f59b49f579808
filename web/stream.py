"""Server-sent events of live pages."""

from __future__ import annotations

from flask import Flask


def attach(app: Flask) -> None:
    pass
