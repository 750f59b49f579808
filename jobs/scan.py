"""`scan_offers`: read what a provider would rent into the table of offers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from jobs.context import Context, current
from jobs.domain.models import Machine, Offer
from jobs.domain.work import record, transaction
from jobs.market import provider
from jobs.market.providers.base import ProviderUnavailable

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.market.providers.base import OfferFacts

FRESH_MS = 60_000


def scan_offers(provider_name: str, attempt: int) -> int:
    """The RQ job: number of offers seen. A provider that fails changes nothing: the last scan stays, with its age."""
    del attempt
    return refresh(current(), provider_name)


def refresh(context: Context, provider_name: str) -> int:
    """Scan now. Raises `jobs.market.providers.base.ProviderUnavailable`."""
    try:
        found = provider(context, provider_name).scan()
    except ProviderUnavailable as error:
        with transaction(context) as session:
            record(
                session, context.now_ms(), "scan", "offers.scan_failed", str(error), data={"provider": provider_name}
            )
        raise
    now = context.now_ms()
    with transaction(context) as session:
        session.execute(
            update(Offer).where(Offer.provider == provider_name, Offer.gone_ms.is_(None)).values(gone_ms=now)
        )
        for offer in found:
            session.merge(Offer(provider=provider_name, seen_ms=now, gone_ms=None, **dataclasses.asdict(offer)))
            _see_machine(session, provider_name, offer, now)
        record(session, now, "scan", "offers.scanned", f"{len(found)} offers", data={"provider": provider_name})
    return len(found)


def refresh_if_stale(context: Context, provider_name: str) -> None:
    """Scan unless the last one is younger than a minute."""
    with context.sessions() as session:
        newest = session.scalar(
            select(Offer.seen_ms).where(Offer.provider == provider_name).order_by(Offer.seen_ms.desc()).limit(1)
        )
    if newest is None or context.now_ms() - newest > FRESH_MS:
        refresh(context, provider_name)


def _see_machine(session: Session, provider_name: str, offer: OfferFacts, now: int) -> None:
    description = f"{offer.num_gpus} x {offer.gpu_model}" if offer.num_gpus else offer.cpu_model
    machine = session.get(Machine, (provider_name, offer.machine_id))
    if machine is None:
        session.add(
            Machine(
                provider=provider_name,
                machine_id=offer.machine_id,
                host_id=offer.host_id,
                description=description[:300],
                first_seen_ms=now,
                last_seen_ms=now,
            )
        )
        session.flush()
        return
    machine.host_id, machine.description, machine.last_seen_ms = offer.host_id, description[:300], now
