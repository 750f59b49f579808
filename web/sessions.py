"""Signed-in browsers: a random 256-bit token in a cookie, its SHA-256 in SQL."""

from __future__ import annotations

import hashlib
import secrets

from flask import current_app, request, session
from sqlalchemy import delete, select, update
from werkzeug.wrappers import Response

from jobs.domain.db import writing
from jobs.domain.models import User, UserSession
from web import scope
from web.security import cookie_name

ABSOLUTE_MS = 12 * 3600 * 1000
IDLE_MS = 2 * 3600 * 1000
# `seen_ms` is bookkeeping of the idle limit: written once a minute, not at every page.
SEEN_EVERY_MS = 60 * 1000


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _cookie() -> str:
    return cookie_name("pf_session", current_app)


def token_digest() -> str:
    """What SQL knows this browser by; '' when it sent no cookie."""
    token = request.cookies.get(_cookie(), "")
    return _digest(token) if token else ""


def find_user(digest: str) -> User | None:
    """The user of a live session: not ended, not idle too long, not disabled."""
    if not digest:
        return None
    now = scope.now_ms()
    row = scope.db().get(UserSession, digest)
    if row is None or row.user.disabled or now - row.created_ms > ABSOLUTE_MS or now - row.seen_ms > IDLE_MS:
        return None
    if now - row.seen_ms > SEEN_EVERY_MS:
        with writing(scope.context().sessions) as writer:
            writer.execute(update(UserSession).where(UserSession.token_sha256 == digest).values(seen_ms=now))
    return row.user


def is_live(digest: str) -> bool:
    """Whether a session still counts, for streams that outlive the request's first check."""
    now = scope.now_ms()
    with scope.context().sessions() as reader:
        found = reader.execute(
            select(UserSession.created_ms)
            .join(User)
            .where(
                UserSession.token_sha256 == digest, User.disabled.is_(False), UserSession.created_ms > now - ABSOLUTE_MS
            )
        ).first()
    return found is not None


def start(user_id: str, response: Response) -> None:
    """A fresh session for `user_id` on `response`; the one this browser had before ends, and so do outdated ones."""
    token = secrets.token_urlsafe(32)
    now = scope.now_ms()
    with writing(scope.context().sessions) as writer:
        writer.execute(
            delete(UserSession).where(
                (UserSession.token_sha256 == token_digest())
                | (UserSession.created_ms < now - ABSOLUTE_MS)
                | (UserSession.seen_ms < now - IDLE_MS)
            )
        )
        writer.add(UserSession(token_sha256=_digest(token), user_id=user_id, created_ms=now, seen_ms=now))
    session.clear()
    response.set_cookie(
        _cookie(), token, max_age=ABSOLUTE_MS // 1000, path="/", secure=request.is_secure, httponly=True, samesite="Lax"
    )


def end(response: Response) -> None:
    with writing(scope.context().sessions) as writer:
        writer.execute(delete(UserSession).where(UserSession.token_sha256 == token_digest()))
    session.clear()
    response.delete_cookie(_cookie(), path="/", secure=request.is_secure, httponly=True, samesite="Lax")


def end_all_of(user_id: str) -> None:
    """Sign a user out everywhere: a new password, a disabled account."""
    with writing(scope.context().sessions) as writer:
        writer.execute(delete(UserSession).where(UserSession.user_id == user_id))
