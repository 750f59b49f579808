"""Roles that one process holds at a time, by a row that expires by itself: reconcile's leader, who may rent."""

from __future__ import annotations

from sqlalchemy import or_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from jobs.domain.db import rows_changed, writing
from jobs.domain.models import Leader


def take(sessions: sessionmaker[Session], role: str, holder: str, now_ms: int, hold_ms: int) -> bool:
    """Take or renew `role` until `now_ms + hold_ms`. False: another holds it."""
    until = now_ms + hold_ms
    try:
        with writing(sessions) as session:
            free = or_(Leader.holder == holder, Leader.expires_ms < now_ms)
            mine = update(Leader).where(Leader.role == role, free).values(holder=holder, expires_ms=until)
            if rows_changed(session, mine):
                return True
            if session.get(Leader, role) is not None:
                return False
            session.add(Leader(role=role, holder=holder, expires_ms=until))
            return True
    except IntegrityError:
        return False


def resign(sessions: sessionmaker[Session], role: str, holder: str) -> None:
    """Let the next one have it at once."""
    with writing(sessions) as session:
        session.execute(update(Leader).where(Leader.role == role, Leader.holder == holder).values(expires_ms=0))
