"""How the API says no."""

from __future__ import annotations

from typing import Any

import httpx


class Refused(Exception):
    """An answer that is an error: Vast's usual envelope, `{"success": false, "error", "msg", ...}`.

    `drop` names parts of the envelope that this error comes without.
    """

    def __init__(self, status: int, error: str, msg: str, *, drop: tuple[str, ...] = (), **more: Any):
        super().__init__(f"{status} {error}: {msg}")
        self.status = status
        self.body = {"success": False, "error": error, "msg": msg, **more}
        for name in drop:
            del self.body[name]


class Reset(httpx.ReadError):
    """The connection broke before the answer came. In process httpx passes it on; a socket is closed."""


class NoAnswer(httpx.ReadTimeout):
    """The answer never comes. In process the client's own timeout is raised at once; a socket is held open."""


class NoConnection(httpx.ConnectError):
    """Nobody listens."""
