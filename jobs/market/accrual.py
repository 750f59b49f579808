"""Our own account of a rental: what each second cost by the state that the provider's list proves.

It is an upper bound. A machine counts as running (loading, unknown and unlisted included) unless two complete lists,
close together, both show that its GPU is stopped (then only the disk costs) or its host offline (then nothing does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, case, func, select

from jobs.domain.market_models import LedgerDay
from jobs.domain.models import Artifact, Chunk, Input, Instance, Proof, Run
from jobs.market.prices import Price, Traffic, price_of_instance
from jobs.market.providers.base import EXITED, OFFLINE, STOPPED

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
EVERY_MS = 60_000
WATCHED_MS = 120_000
"""Two lists further apart than this prove nothing of the time between them."""
PROOF_BYTES = 2048
ROUNDING = 1e-3
"""Prices are listed with few places: a difference under this share of them is none."""
RUNNING_METER, DISK_METER, NO_METER = "running", "stopped", "offline"


@dataclass(frozen=True)
class Seen:
    """What the newest complete list showed of a rental: which meter runs, since `at_ms` at the latest."""

    meter: str
    at_ms: int


def meter_of(status: str, facts: Mapping[str, Any]) -> str:
    """Which meter runs on a machine that is listed so. A frozen or restarting one keeps its GPU, and pays for it."""
    if status == OFFLINE:
        return NO_METER
    halted = status in (STOPPED, EXITED) and facts.get("cur_state") == "stopped"
    return DISK_METER if halted and facts.get("actual") != "frozen" else RUNNING_METER


def spent(instance: Instance, now_ms: int) -> float:
    """Dollars from the rental to its proven end, or to now; the provider's bill once that is complete."""
    if instance.billed_dollars is not None:
        return instance.billed_dollars
    if instance.rented_ms is None:
        return 0.0
    since = instance.rented_ms if instance.accrued_ms is None else instance.accrued_ms
    open_ms = max(0, (instance.ended_ms or now_ms) - since)
    return (instance.spent_dollars or 0.0) + instance.dollars_per_hour * open_ms / HOUR_MS


def spent_sql(now_ms: int) -> ColumnElement[float]:
    """`spent` of an instance's row, for a statement that adds up."""
    return func.coalesce(Instance.billed_dollars, Instance.spent_dollars + open_sql(now_ms))


def open_sql(now_ms: int) -> ColumnElement[float]:
    """Dollars since the account of an instance was last brought up to date."""
    since = func.coalesce(Instance.accrued_ms, Instance.rented_ms)
    end = func.coalesce(Instance.ended_ms, now_ms)
    return case((since < end, Instance.dollars_per_hour * (end - since) / HOUR_MS), else_=0.0)


def due(instance: Instance, seen: Seen | None, now_ms: int) -> bool:
    """A minute is over, or another meter runs than when the account was last brought up to date."""
    if instance.rented_ms is None:
        return False
    meter = seen.meter if seen else RUNNING_METER
    since = instance.rented_ms if instance.accrued_ms is None else instance.accrued_ms
    return now_ms - since >= EVERY_MS or meter != (instance.meter or RUNNING_METER)


def accrue_all(session: Session, instances: Sequence[Instance], now_ms: int, seen: Mapping[str, Seen]) -> None:
    """`accrue` each, in a handful of statements; `seen` is by label."""
    moved, today = moved_by(session, instances), now_ms - now_ms % DAY_MS
    lines = session.scalars(select(LedgerDay).where(LedgerDay.instance_id.in_(list(moved)), LedgerDay.day_ms == today))
    held = {line.instance_id: line for line in lines}  # by the session too, which then need not ask for them again
    session.add_all(_blank(i, today) for i in instances if i.rented_ms is not None and i.id not in held)
    session.flush()
    with session.no_autoflush:
        for instance in instances:
            accrue(session, instance, now_ms, seen.get(instance.label), moved[instance.id])


def accrue(
    session: Session, instance: Instance, now_ms: int, seen: Seen | None = None, moved: Traffic | None = None
) -> None:
    """Bring the account of `instance` up to `now_ms` (to the newest list, while its GPU is proven stopped)."""
    if instance.rented_ms is None or instance.billed_dollars is not None:
        return
    start = instance.rented_ms if instance.accrued_ms is None else instance.accrued_ms
    meter, end = _proven(instance, start, seen, instance.ended_ms or now_ms)
    price = price_of_instance(instance)
    for day_ms, ms in _days(start, end):
        gpu = price.gpu_dollars_per_hour * ms / HOUR_MS if meter == RUNNING_METER else 0.0
        disk = price.disk_dollars_per_hour * ms / HOUR_MS if meter != NO_METER else 0.0
        _add(session, instance, day_ms, gpu, disk, 0.0)
    bytes_moved = moved_by(session, [instance])[instance.id] if moved is None else moved
    dollars = max(0.0, price.of(bytes_moved) - instance.traffic_dollars)
    if dollars:
        _add(session, instance, end - end % DAY_MS, 0.0, 0.0, dollars)
        instance.traffic_dollars += dollars
    instance.accrued_ms = max(start, end)
    instance.meter = seen.meter if seen else RUNNING_METER


def _proven(instance: Instance, start_ms: int, seen: Seen | None, end_ms: int) -> tuple[str, int]:
    """(the dearer of the meters that lists show at both ends of the time from `start_ms`, its end).

    Running, to `end_ms`, where they prove nothing; an end of `start_ms` where the list that may is still to come.
    """
    both = {instance.meter or RUNNING_METER, seen.meter if seen else RUNNING_METER}
    if seen is None or RUNNING_METER in both:
        return RUNNING_METER, end_ms
    dearer = DISK_METER if DISK_METER in both else NO_METER
    if start_ms < seen.at_ms <= start_ms + WATCHED_MS:
        return dearer, seen.at_ms
    awaited = seen.at_ms <= start_ms and end_ms <= start_ms + WATCHED_MS
    return (dearer, start_ms) if awaited else (RUNNING_METER, end_ms)


def _days(start_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
    """(midnight UTC, milliseconds) of each day that the time touches."""
    while start_ms < end_ms:
        midnight = start_ms - start_ms % DAY_MS
        until = min(end_ms, midnight + DAY_MS)
        yield midnight, until - start_ms
        start_ms = until


def _blank(instance: Instance, day_ms: int) -> LedgerDay:
    return LedgerDay(instance_id=instance.id, day_ms=day_ms, gpu_dollars=0.0, disk_dollars=0.0, traffic_dollars=0.0)


def _add(session: Session, instance: Instance, day_ms: int, gpu: float, disk: float, traffic: float) -> None:
    line = session.get(LedgerDay, (instance.id, day_ms))
    if line is None:
        line = _blank(instance, day_ms)
        session.add(line)
    line.gpu_dollars += gpu
    line.disk_dollars += disk
    line.traffic_dollars += traffic
    instance.spent_dollars = (instance.spent_dollars or 0.0) + gpu + disk + traffic


def raise_price(session: Session, instance: Instance, dollars_per_hour: float) -> bool:
    """Where the provider lists it dearer than it was offered, count so from the rental on. True: it is dearer."""
    more = dollars_per_hour - instance.dollars_per_hour
    if more <= instance.dollars_per_hour * ROUNDING:
        return False
    price = price_of_instance(instance)
    dearer = {**price.to_json(), "gpu_dollars_per_hour": price.gpu_dollars_per_hour + more}
    if instance.accrued_ms is not None and instance.rented_ms is not None:
        for day_ms, ms in _days(instance.rented_ms, instance.accrued_ms):
            _add(session, instance, day_ms, more * ms / HOUR_MS, 0.0, 0.0)
    instance.price, instance.dollars_per_hour = dearer, Price.from_json(dearer).dollars_per_hour
    return True


def traffic_of(session: Session, run: Run) -> Traffic:
    """What `run` will have its machine read: key, warm-up and two rounds of witnesses."""
    key = session.get(Input, run.zkey_id) if run.zkey_id else None
    rounds = select(func.sum(Proof.witness_bytes)).where(Proof.run_id == run.id).group_by(Proof.round)
    witnesses = max((int(total) for total in session.scalars(rounds)), default=0)
    warm_up = int((run.inputs.get("warm_up") or {}).get("bytes", 0))
    return Traffic((key.size_bytes if key else 0) + warm_up + 2 * witnesses)


def moved_by(session: Session, instances: Sequence[Instance]) -> dict[str, Traffic]:
    """By instance, the bytes that we know to have moved: key (once it registered), witnesses, and what it sent."""
    ids = [instance.id for instance in instances]
    key = (
        select(Instance.id, Input.size_bytes).join(Run, Run.id == Instance.run_id).join(Input, Input.id == Run.zkey_id)
    )
    keys = dict(session.execute(key.where(Instance.id.in_(ids))).all())
    asked = (Proof.instance_id.in_(ids), Proof.pulled_ms.is_not(None))
    columns = (Proof.instance_id, func.sum(Proof.witness_bytes), func.count(Proof.received_ms))
    proofs = {row[0]: (row[1], row[2]) for row in session.execute(select(*columns).where(*asked).group_by(columns[0]))}
    chunk = select(Chunk.instance_id, func.sum(Chunk.stored_bytes)).where(Chunk.instance_id.in_(ids))
    chunks = dict(session.execute(chunk.group_by(Chunk.instance_id)).all())
    artifact = select(Artifact.instance_id, func.sum(Artifact.size_bytes)).where(Artifact.instance_id.in_(ids))
    artifacts = dict(session.execute(artifact.group_by(Artifact.instance_id)).all())

    def traffic(instance: Instance) -> Traffic:
        witnesses, came = proofs.get(instance.id, (0, 0))
        registered = instance.token_sha256 or instance.heard_ms
        down = (keys.get(instance.id, 0) if registered else 0) + witnesses
        up = chunks.get(instance.id, 0) + artifacts.get(instance.id, 0) + came * PROOF_BYTES
        return Traffic(int(down), int(up))

    return {instance.id: traffic(instance) for instance in instances}
