"""Who may sign in. Passwords are hashed with argon2id (RFC 9106, argon2-cffi's defaults)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from uuid import uuid4

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.models import User, UserSession
from jobs.domain.work import record, transaction

if TYPE_CHECKING:
    from jobs.settings import Settings

ROLES = ("viewer", "operator", "admin")
MIN_PASSWORD = 12
_hasher = PasswordHasher()
_NOBODY = _hasher.hash(secrets.token_urlsafe(16))


class WeakPassword(ValueError):
    """The password can't be taken: why."""


class InvalidUser(ValueError):
    """A name or role that can't be: why."""


def authenticate(session: Session, name: str, password: str) -> User | None:
    """The user, or None; it takes the same time for a name that nobody has."""
    user = session.scalar(select(User).where(User.name == name))
    try:
        _hasher.verify(user.password_hash if user else _NOBODY, password)
    except (VerificationError, InvalidHashError):
        return None
    return user if user is not None and not user.disabled else None


def check_password(name: str, password: str) -> None:
    """Raises `WeakPassword`."""
    if len(password) < MIN_PASSWORD:
        raise WeakPassword(f"choose at least {MIN_PASSWORD} characters; a sentence is easy to remember")
    if len(password) > 200:
        raise WeakPassword("choose at most 200 characters")
    if len(set(password)) < 5 or name.lower() in password.lower():
        raise WeakPassword("this is too easy to guess: avoid your name and repeated characters")


def change_password(session: Session, user: User, new: str) -> None:
    """Set a password of the user's own choice. Raises `WeakPassword`."""
    check_password(user.name, new)
    user.password_hash, user.must_change_password = _hasher.hash(new), False


def add_user(session: Session, name: str, role: str, now_ms: int) -> str:
    """A new user with a one-time password, which is returned and kept nowhere. Raises `InvalidUser`."""
    if role not in ROLES:
        raise InvalidUser(f"a role is one of {', '.join(ROLES)}, not {role!r}")
    if not (1 <= len(name) <= 64 and all(c.isascii() and (c.isalnum() or c in "._-@") for c in name)):
        raise InvalidUser("a name has 1 to 64 letters, digits, dots, dashes, underscores or @")
    if session.scalar(select(User.id).where(User.name == name)):
        raise InvalidUser(f"there is a user {name} already; choose another name")
    password = secrets.token_urlsafe(12)
    session.add(
        User(
            id=uuid4().hex, name=name, password_hash=_hasher.hash(password), role=role, must_change_password=True,
            disabled=False, created_ms=now_ms,
        )
    )  # fmt: skip
    return password


def set_role(session: Session, user: User, role: str) -> None:
    """Raises `InvalidUser`: also where nobody would be left who can administer."""
    if role not in ROLES:
        raise InvalidUser(f"a role is one of {', '.join(ROLES)}, not {role!r}")
    if role != "admin":
        _keep_one_admin(session, user)
    user.role = role


def disable(session: Session, user: User, disabled: bool = True) -> None:
    """A disabled user can't sign in, and every session ends at once. Raises `InvalidUser`."""
    if disabled:
        _keep_one_admin(session, user)
        session.execute(delete(UserSession).where(UserSession.user_id == user.id))
    user.disabled = disabled


def _keep_one_admin(session: Session, user: User) -> None:
    others = session.scalar(
        select(func.count()).select_from(User).where(User.role == "admin", User.disabled.is_(False), User.id != user.id)
    )
    if user.role == "admin" and not others:
        raise InvalidUser("this is the last admin; make somebody else admin first")


def add(settings: Settings, name: str, role: str, actor: str = "command line") -> str:
    """`provefleet user add`: the one-time password. Raises `InvalidUser`."""
    context = Context(settings)
    with transaction(context) as session:
        password = add_user(session, name, role, context.now_ms())
        record(session, context.now_ms(), actor, "user.added", f"{name} as {role}")
    return password


def ensure_first_admin(settings: Settings) -> str | None:
    """At the first start: a user `admin` and its one-time password. None where there is a user already."""
    with Context(settings).sessions() as session:
        if session.scalar(select(func.count()).select_from(User)):
            return None
    return add(settings, "admin", "admin", "first start")
