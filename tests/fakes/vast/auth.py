"""Who is asking, and whether they may."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.vast.accounts import Key
from tests.fakes.vast.errors import Refused


def key_text(authorization: str, query: Mapping[str, str]) -> str:
    """The key of a request: the bearer header, or the older query parameter. '' without one."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() == "bearer" and text.strip():
        return text.strip()
    return query.get("api_key", "")


def identify(keys: Mapping[str, Key], text: str, scope: str | None, instance_id: int | None, write: bool) -> Key | None:
    """The key, checked. `scope` None: the route is open to all, but a key that is sent must be a good one.

    Raises `Refused`: 403 without a key, 404 for one that nobody has, 401 for a deleted one or without the second
    factor, 404 for an expired session, 403 for a scope that it lacks or an instance that it isn't for.
    """
    if not text:
        if scope is None:
            return None
        raise Refused(403, "auth_error", "This action requires login.")
    key = keys.get(text)
    if key is None:
        raise Refused(404, "auth_error", "Invalid user key")
    if key.state == "deleted":
        raise Refused(401, "auth_error", "This API key has been deleted.")
    if key.state == "tfa":
        raise Refused(401, "tfa_required", "This action requires two-factor authentication (2FA).")
    if key.state == "expired":
        raise Refused(404, "auth_error", "Session expired. Please log in again.")
    if key.instance_id is not None:
        if scope is not None and (instance_id != key.instance_id or not write):
            raise Refused(403, "not_authorized", "This key is restricted to its own instance.")
    elif scope is not None and scope not in key.scopes:
        raise Refused(403, "not_authorized", f"This API key lacks the permission {scope}.")
    return key
