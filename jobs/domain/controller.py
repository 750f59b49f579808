"""Who we are to the marketplace: a random id, made at first start, kept in SQL and in the state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain.models import Controller

if TYPE_CHECKING:
    from jobs.context import Context


class ControllerMismatch(RuntimeError):
    """The database and the state folder belong to different controllers: what that would break, and what to do."""


def controller_id(session: Session, context: Context) -> str:
    """The id of this controller, made at the first call.

    Raises `ControllerMismatch` where the state folder remembers another one, whose machines would be strangers to us.
    """
    path = context.settings.state_dir / "controller_id"
    known = session.scalar(select(Controller.id))
    remembered = path.read_text().strip() if path.exists() else ""
    if known and remembered and known != remembered:
        raise ControllerMismatch(
            f"the database is of controller {known}, the state folder {path.parent} of {remembered}: "
            "machines rented by one would be strangers to the other; give each database its own PROVEFLEET_STATE_DIR"
        )
    if known is None:
        known = remembered or context.new_id()
        session.add(Controller(id=known, created_ms=context.now_ms()))
        session.flush()
    if not remembered:
        path.write_text(known + "\n")
    return known
