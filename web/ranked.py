"""Offers in the order in which a run would try them, kept by this process: ranking all takes longer than a page may.

What was learned, marked or rented is seen at once. A new scan is ranked beside the pages, which until then show the
ranking of the scan before.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.market_models import Mark, Measurement, Offer
from jobs.domain.models import Input, Instance, Run
from jobs.domain.quotes import KEY_BYTES_A_CONSTRAINT
from jobs.domain.runs import RunRequest, parse_circuit
from jobs.market import ranking
from jobs.market.ranking import Ranked
from web import queries

log = logging.getLogger("provefleet.site")

KEPT = 8
AGED_MS = 600_000
"""Marks and measurements weigh less with time: a ranking older than this is made anew."""


@dataclass(frozen=True)
class Workload:
    """What offers are ranked for: the parts of a request on which the order depends."""

    provider: str
    circuit: str | None = None
    zkey_id: str | None = None
    proofs: int = 12
    min_proofs_per_hour: float | None = None
    max_dollars_per_hour: float | None = None
    max_dollars: float | None = None
    max_duration_s: int = 3600
    interruptible: bool = False
    bid_dollars_per_hour: float | None = None

    @classmethod
    def of(cls, request: RunRequest) -> Workload:
        return cls(**{name: getattr(request, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Ranking:
    """All offers of one provider for one workload; `work` is the name under which rates were measured."""

    rows: Sequence[Ranked]
    work: str
    scan: tuple[Any, ...]
    learned: tuple[Any, ...]
    at_ms: int


class Shelf:
    """The newest rankings of this process, each made by one thread at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, Workload], Ranking] = OrderedDict()
        self._lock = threading.Lock()
        self._making: dict[tuple[str, Workload], threading.Lock] = {}
        self._offers: dict[tuple[str, str], tuple[tuple[Any, ...], Sequence[Offer]]] = {}

    def get(self, context: Context, session: Session, load: Workload) -> Ranking:
        """The ranking for `load`: kept, or made now."""
        key = (str(context.settings.state_dir), load)
        scan, learned = _scan(session, load.provider), _learned(session, load.provider)
        with self._lock:
            kept = self._kept.get(key)
            making = self._making.setdefault(key, threading.Lock())
        fresh = kept is not None and kept.learned == learned and abs(context.now_ms() - kept.at_ms) < AGED_MS
        if kept is not None and fresh and kept.scan == scan:
            return kept
        if kept is not None and fresh:
            if making.acquire(blocking=False):
                threading.Thread(target=self._renew, args=(context, key, making), name="ranking", daemon=True).start()
            return kept
        with making:
            return self._make(context, key)

    def _make(self, context: Context, key: tuple[str, Workload]) -> Ranking:
        load, now = key[1], context.now_ms()
        with context.sessions() as session:  # of its own: what it read outlives the request
            scan, learned = _scan(session, load.provider), _learned(session, load.provider)
            with self._lock:
                kept = self._kept.get(key)
            if kept is not None and (kept.scan, kept.learned) == (scan, learned) and now - kept.at_ms < AGED_MS:
                return kept  # another thread made it while this one waited
            run = run_of(context, session, load)
            zkey = session.get(Input, run.zkey_id) if run.zkey_id else key_to_be(load.circuit)
            offers = self._offers_of(session, (key[0], load.provider), scan)
            rows, work = ranking.rank_offers(context, session, run, offers, zkey), ranking.work_of(run, zkey)
        made = Ranking(rows, work, scan, learned, now)
        with self._lock:
            self._kept[key] = made
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._making.pop(self._kept.popitem(last=False)[0], None)
        return made

    def _offers_of(self, session: Session, place: tuple[str, str], scan: tuple[Any, ...]) -> Sequence[Offer]:
        """The offers of the newest scan, read once for all workloads: ten thousand weigh tens of megabytes."""
        with self._lock:
            kept = self._offers.get(place)
        if kept is not None and kept[0] == scan:
            return kept[1]
        found = session.scalars(select(Offer).where(Offer.provider == place[1], Offer.gone_ms.is_(None))).all()
        with self._lock:
            self._offers[place] = (scan, found)
        return found

    def _renew(self, context: Context, key: tuple[str, Workload], making: threading.Lock) -> None:
        try:
            self._make(context, key)
        except SQLAlchemyError as error:
            log.warning("the offers of %s could not be ranked anew: %s", key[1].provider, error)
        finally:
            making.release()


shelf = Shelf()


def run_of(context: Context, session: Session, load: Workload) -> Run:
    """The run that `load` would be, not written down."""
    zkey_id = load.zkey_id
    if load.circuit:
        zkey_id = session.scalar(select(Input.id).where(Input.circuit == load.circuit))
    return Run(
        kind="benchmark",
        payload="groth16",
        inputs={"circuit": load.circuit} if load.circuit else {},
        zkey_id=zkey_id,
        provider=load.provider,
        offer_id=None,
        max_dollars_per_hour=load.max_dollars_per_hour,
        max_dollars=load.max_dollars,
        interruptible=load.interruptible,
        bid_dollars_per_hour=load.bid_dollars_per_hour,
        max_duration_s=load.max_duration_s,
        min_proofs_per_hour=load.min_proofs_per_hour,
        proofs=load.proofs,
        concurrency=1,
        partition_workers=1,
        lease_s=context.settings.lease_s,
        created_by="",
        created_ms=context.now_ms(),
    )


def key_to_be(circuit: str | None) -> Input | None:
    """The key that a built-in circuit of which none is made yet will have: as large as we bound it in a quote.

    Its domain holds the constraints, the public values and one more (snarkjs, zkey_new.js).
    """
    if circuit is None:
        return None
    _, size, curve = parse_circuit(circuit)
    facts = {"curve": curve, "n_vars": size + 2, "domain_size": 1 << (size + 1).bit_length()}
    return Input(kind="zkey", facts=facts, size_bytes=KEY_BYTES_A_CONSTRAINT * size)


def _scan(session: Session, provider: str) -> tuple[Any, ...]:
    """Changes with every scan that found something else."""
    return tuple(
        session.execute(
            select(func.count(), func.max(Offer.seen_ms)).where(Offer.provider == provider, Offer.gone_ms.is_(None))
        ).one()
    )


def _learned(session: Session, provider: str) -> tuple[Any, ...]:
    """Changes with every measurement, mark, withdrawal and rental."""
    marks = select(func.max(Mark.id), func.count(Mark.withdrawn_ms)).where(Mark.provider == provider)
    live = select(func.count(), func.max(Instance.created_ms)).where(
        Instance.provider == provider, Instance.state.in_(queries.LIVE)
    )
    return (
        session.scalar(select(func.max(Measurement.id))),
        *session.execute(marks).one(),
        *session.execute(live).one(),
    )
