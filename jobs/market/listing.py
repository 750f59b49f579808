"""The one poller: a provider's list is read once for everyone, and everyone reads the stored snapshot.

A marketplace gives out a page a second, whoever asks; ten workers that ask for themselves would wait for each other.
Only this module calls `Provider.list`. A list proves the absence of something only for moments before it was begun.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sqlalchemy import or_, update
from sqlalchemy.exc import IntegrityError

from jobs.domain.db import rows_changed, writing
from jobs.domain.market_models import Snapshot
from jobs.market import provider
from jobs.market.providers.base import BeingListed, Listing, ProviderError, ProviderInstance, ProviderUnavailable

if TYPE_CHECKING:
    from jobs.context import Context
    from jobs.market.providers.base import Provider

LOCAL_EVERY_MS, REMOTE_EVERY_MS = 2_000, 5_000
# Hundreds of instances come at a page a second. Who takes longer is taken for dead; a second poller does no harm.
POLL_MS = 45_000


def every_ms(market: Provider) -> int:
    """How old a snapshot may get before the list is read again."""
    return REMOTE_EVERY_MS if market.remote else LOCAL_EVERY_MS


def read(context: Context, name: str, after_ms: int = 0) -> Listing:
    """The provider's list, begun after `after_ms` (our clock); read now, if the stored one is older than that or stale.

    An incomplete one is returned as such, and never stored. Raises `BeingListed` while another process reads it, and
    `ProviderUnavailable`.
    """
    market, now = provider(context, name), context.now_ms()
    every = every_ms(market)
    row = _row(context, name)
    if row is not None and row.error and row.failed_ms is not None and now - row.failed_ms < every:
        raise ProviderUnavailable(row.error)  # it was asked just now, and is not asked more often for being down
    if row is not None and row.begun_ms > after_ms and now - row.ended_ms < every:
        return _listing(row)
    if now <= after_ms:
        raise BeingListed(f"what {name} lists after this moment can be read in a second")
    token = context.new_id()
    if not _take(context, name, token, now):
        raise BeingListed(f"{name} is being listed by another process; look again in a second")
    try:
        listing = dataclasses.replace(market.list(), begun_ms=now)
    except ProviderError as error:
        _keep_failure(context, name, token, str(error))
        raise
    if listing.complete:
        _keep(context, name, token, listing)
    else:
        _keep_failure(context, name, token, f"{name} gave a part of its list only")
    return listing


def newest(context: Context, name: str) -> Listing | None:
    """The newest complete list, however old; None before the first."""
    row = _row(context, name)
    return None if row is None or not row.ended_ms else _listing(row)


def _row(context: Context, name: str) -> Snapshot | None:
    with context.sessions() as session:
        return session.get(Snapshot, name)


def _listing(row: Snapshot) -> Listing:
    return Listing(True, [ProviderInstance(**instance) for instance in row.instances], row.begun_ms)


def _take(context: Context, name: str, token: str, now: int) -> bool:
    """Become the poller. False: another one reads at this moment."""
    free = or_(Snapshot.poller_until_ms.is_(None), Snapshot.poller_until_ms < now)
    mine = {"poller": token, "poller_until_ms": now + POLL_MS}
    try:
        with writing(context.sessions) as session:
            if rows_changed(session, update(Snapshot).where(Snapshot.provider == name, free).values(**mine)):
                return True
            if session.get(Snapshot, name) is not None:
                return False
            session.add(Snapshot(provider=name, **mine))
            return True
    except IntegrityError:
        return False


def _keep(context: Context, name: str, token: str, listing: Listing) -> None:
    now = context.now_ms()
    rows = [dict(vars(instance)) for instance in listing.instances]
    with writing(context.sessions) as session:
        row = session.get_one(Snapshot, name, with_for_update=True)
        if row.begun_ms < listing.begun_ms:  # a poller that was given up may come after its successor
            row.begun_ms, row.ended_ms, row.instances, row.error, row.failed_ms = listing.begun_ms, now, rows, "", None
        _release(row, token)


def _keep_failure(context: Context, name: str, token: str, error: str) -> None:
    with writing(context.sessions) as session:
        row = session.get_one(Snapshot, name, with_for_update=True)
        row.error, row.failed_ms = error, context.now_ms()
        _release(row, token)


def _release(row: Snapshot, token: str) -> None:
    if row.poller == token:
        row.poller = row.poller_until_ms = None
