"""`scan_offers`: read what a provider would rent into the table of offers.

A search may be counted (a marketplace allows so many a day), so none is made while the last one is young, nor right
after one that failed: `market_models.Scan` says when the next may be.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from jobs.context import Context, current
from jobs.domain.market_models import Machine, Offer, Scan
from jobs.domain.work import record, transaction
from jobs.market import provider
from jobs.market.providers.base import ProviderUnavailable, SearchQuotaUsedUp

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.market.providers.base import OfferFacts

# A search of a marketplace takes minutes at its pace, and is counted.
LOCAL_FRESH_MS, REMOTE_FRESH_MS = 60_000, 240_000
LOCAL_AGAIN_MS, REMOTE_AGAIN_MS = 2_000, 30_000


def scan_offers(provider_name: str, attempt: int) -> int:
    """The RQ job: number of offers seen. A provider that fails changes nothing: the last scan stays, with its age."""
    del attempt
    return refresh(current(), provider_name)


def refresh(context: Context, provider_name: str) -> int:
    """Scan now, unless the last failure forbids it yet. Raises `base.ProviderUnavailable`."""
    with context.sessions() as session:
        last = session.get(Scan, provider_name)
    if last is not None and last.error and context.now_ms() < last.again_ms:
        raise ProviderUnavailable(last.error)
    try:
        found = provider(context, provider_name).scan()
    except ProviderUnavailable as error:
        _failed(context, provider_name, error)
        raise
    with transaction(context) as session:
        _keep(session, provider_name, found, context.now_ms())
    return len(found)


def refresh_if_stale(context: Context, provider_name: str) -> None:
    """Scan unless the last one is young enough. Raises `base.ProviderUnavailable`."""
    with context.sessions() as session:
        last = session.get(Scan, provider_name)
    fresh_ms = REMOTE_FRESH_MS if provider(context, provider_name).remote else LOCAL_FRESH_MS
    if last is None or context.now_ms() - last.scanned_ms > fresh_ms:
        refresh(context, provider_name)


def market_changed(context: Context, provider_name: str) -> None:
    """Something was rented, or given back: where a search costs nothing, the offers should say so at once."""
    if not provider(context, provider_name).remote:
        context.enqueue("scan_offers", provider_name, context.now_ms())


def _failed(context: Context, name: str, error: ProviderUnavailable) -> None:
    now = context.now_ms()
    pause_ms = REMOTE_AGAIN_MS if provider(context, name).remote else LOCAL_AGAIN_MS
    with transaction(context) as session:
        row = session.get(Scan, name) or Scan(provider=name, scanned_ms=0, offers=0)
        session.add(row)
        news = row.error != str(error)
        row.error, row.failed_ms = str(error), now
        row.again_ms = error.again_ms if isinstance(error, SearchQuotaUsedUp) else now + pause_ms
        if news:
            record(session, now, "scan", "offers.scan_failed", str(error), data={"provider": name})


def _keep(session: Session, name: str, found: list[OfferFacts], now: int) -> None:
    """What was found is what is offered; all the rest is gone. A few statements, however many offers there are."""
    session.execute(update(Offer).where(Offer.provider == name, Offer.gone_ms.is_(None)).values(gone_ms=now))
    rows = {o.offer_id: {"provider": name, "seen_ms": now, "gone_ms": None, **dataclasses.asdict(o)} for o in found}
    known = set(session.scalars(select(Offer.offer_id).where(Offer.provider == name)))
    if old := [row for offer_id, row in rows.items() if offer_id in known]:
        session.execute(update(Offer), old)
    if new := [row for offer_id, row in rows.items() if offer_id not in known]:
        session.execute(insert(Offer), new)
    _see_machines(session, name, found, now)
    scan = session.get(Scan, name) or Scan(provider=name)
    session.add(scan)
    scan.scanned_ms, scan.offers, scan.error, scan.failed_ms, scan.again_ms = now, len(rows), "", None, 0
    record(session, now, "scan", "offers.scanned", f"{len(rows)} offers", data={"provider": name})


def _see_machines(session: Session, name: str, found: list[OfferFacts], now: int) -> None:
    """Of a machine in several offers, the largest describes it."""
    seen: dict[str, dict[str, object]] = {}
    for offer in sorted(found, key=lambda o: o.num_gpus):
        description = f"{offer.num_gpus} x {offer.gpu_model}" if offer.num_gpus else offer.cpu_model
        key = {"provider": name, "machine_id": offer.machine_id}
        seen[offer.machine_id] = {
            **key, "host_id": offer.host_id, "description": description[:300], "last_seen_ms": now,
        }  # fmt: skip
    known = set(session.scalars(select(Machine.machine_id).where(Machine.provider == name)))
    if old := [row for machine_id, row in seen.items() if machine_id in known]:
        session.execute(update(Machine), old)
    if new := [{**row, "first_seen_ms": now} for machine_id, row in seen.items() if machine_id not in known]:
        session.execute(insert(Machine), new)
