"""What is known when offers are ranked, read from SQL in a fixed number of statements, whatever the market's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from jobs.domain.instances import machines_tried
from jobs.domain.market_models import Mark, Measurement, Offer
from jobs.domain.models import Event, Instance, Run
from jobs.domain.states import ENDED
from jobs.market import reputation
from jobs.market.ranking.work import Work

Machine = tuple[str, str]
MEASUREMENTS, RENTALS = 4_000, 2_000
"""The newest ones are read: older ones say little of what is to be rented now."""
MONTH_MS = 30 * 86_400_000


@dataclass(frozen=True)
class Rental:
    """How one rental ended: with a measurement, or (`failed`) without any by the machine's own fault."""

    machine: Machine
    host_id: str
    gpu_model: str
    failed: bool
    at_ms: int


@dataclass(frozen=True)
class Knowledge:
    """All that ranking knows besides the offers. `busy` machines and `busy_offers` work for us now, by instance id.

    `tried` machines came to nothing for this very run. `runs_ahead`: how many runs of this work will want a machine.
    """

    measurements: Sequence[Measurement] = ()
    rentals: Sequence[Rental] = ()
    marks: Mapping[Machine, Sequence[Mark]] = field(default_factory=dict)
    busy: Mapping[Machine, str] = field(default_factory=dict)
    busy_offers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    tried: frozenset[Machine] = frozenset()
    runs_ahead: int = 4


def read(session: Session, work: Work, run_id: str | None, now_ms: int) -> Knowledge:
    """What is known now, for one run or for none."""
    payload = work.name.split("/")[0]
    newest = select(Measurement).where(Measurement.work.startswith(f"{payload}/", autoescape=True))
    measured = session.scalars(newest.order_by(Measurement.at_ms.desc()).limit(MEASUREMENTS)).all()
    asked = (Run.payload == payload, Run.created_ms > now_ms - MONTH_MS)
    ahead = session.scalar(select(func.count()).select_from(Run).where(*asked)) or 0
    live = session.execute(
        select(Instance.provider, Instance.machine_id, Instance.offer_id, Instance.id).where(
            Instance.state.not_in(ENDED)
        )
    ).all()
    return Knowledge(
        measurements=measured,
        rentals=_rentals(session),
        marks=reputation.marks_of(session, None, now_ms),
        # This host is cut into offers that may be used at once; elsewhere one machine works for one run.
        busy={(p, m): i for p, m, _, i in live if p != "local" and m},
        busy_offers={(p, o): i for p, _, o, i in live},
        tried=machines_tried(session, run_id) if run_id else frozenset(),
        runs_ahead=min(max(ahead, 4), 20),
    )


def _rentals(session: Session) -> list[Rental]:
    ids = select(Instance.id).where(Instance.rented_ms.is_not(None)).order_by(Instance.created_ms.desc()).limit(RENTALS)
    told = (Event.instance_id.in_(ids), Event.kind == reputation.FAILED)
    failed = set(session.scalars(select(Event.instance_id).where(*told)))
    measured = set(session.scalars(select(Measurement.instance_id).where(Measurement.instance_id.in_(ids))))
    columns = (Instance.id, Instance.provider, Instance.machine_id, Instance.host_id, Instance.created_ms)
    rows = session.execute(
        select(*columns, Offer.gpu_model)
        .outerjoin(Offer, (Offer.provider == Instance.provider) & (Offer.offer_id == Instance.offer_id))
        .where(Instance.id.in_(failed | measured))
    )
    return [
        Rental((provider, machine), host, gpu or "", one in failed, at)
        for one, provider, machine, host, at, gpu in rows
    ]
