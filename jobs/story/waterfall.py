"""Where the paid seconds of a rental went, in milliseconds and dollars.

Every millisecond from the rental to its proven end belongs to exactly one kind, and every dollar of our account (or of
the bill, once that is complete) to one kind or to traffic: the sums are those of the instance. What nobody measured is
called unknown. State changes are on our clock; how long a phase of a proof took is the machine's own figure, and never
fills more than the time between handing out the tasks and the proof's arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session, load_only

from jobs.domain.models import Event, Instance, Proof
from jobs.domain.states import BENCHMARKING, DESTROYED, DESTROYING, FETCHING, LOADING, PROVING, SEALING
from jobs.market.accrual import spent

KINDS = ("boot", "pull", "params", "load", "synthesis", "compute", "verify", "upload", "idle", "unknown")
RUNNING, AGAIN = "instance.running", "benchmark.again"
_PHASES = ("load", "synthesis", "compute", "verify")
_WAITING = ("queue",)


@dataclass(frozen=True)
class Stretch:
    """`ms` milliseconds from `start_ms` on, spent on `kind`. Phases of proofs stand one behind the other."""

    kind: str
    start_ms: int
    ms: int
    note: str = ""


@dataclass(frozen=True)
class Part:
    """All that one kind took, and what was paid for it."""

    kind: str
    ms: int
    dollars: float
    stretches: Sequence[Stretch]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """(start, milliseconds) of each stretch."""
        return [(stretch.start_ms, stretch.ms) for stretch in self.stretches]

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(stretch.note for stretch in self.stretches if stretch.note))


@dataclass(frozen=True)
class Waterfall:
    """`dollars` is everything that the rental cost so far, `traffic_dollars` the share of it for bytes; the rest is
    spread evenly over `paid_ms`."""

    start_ms: int
    paid_ms: int
    dollars: float
    traffic_dollars: float
    parts: Sequence[Part]


def of_instance(session: Session, instance: Instance, now_ms: int) -> Waterfall | None:
    """The waterfall of a rental up to its end, or to now; None where nothing was rented."""
    kinds = or_(Event.kind == "instance.state", Event.kind == RUNNING, Event.kind == AGAIN)
    events = session.scalars(select(Event).where(Event.instance_id == instance.id, kinds).order_by(Event.id)).all()
    columns = load_only(Proof.round, Proof.pulled_ms, Proof.received_ms, Proof.machine_ms, Proof.timings_ms)
    asked = (Proof.instance_id == instance.id, Proof.pulled_ms.is_not(None))
    return waterfall(instance, events, session.scalars(select(Proof).options(columns).where(*asked)).all(), now_ms)


def waterfall(instance: Instance, events: Sequence[Event], proofs: Sequence[Proof], now_ms: int) -> Waterfall | None:
    """As `of_instance`, from rows: `events` in order, `proofs` those that this machine was given."""
    if instance.rented_ms is None:
        return None
    begin = instance.rented_ms
    end = max(begin, instance.ended_ms if instance.ended_ms is not None else now_ms)
    stretches = list(_stretches(instance, events, proofs, begin, end))
    dollars = spent(instance, now_ms)
    traffic = min(instance.traffic_dollars or 0.0, dollars) if end > begin else dollars
    rate = (dollars - traffic) / (end - begin) if end > begin else 0.0
    parts = []
    for kind in KINDS:
        mine = [s for s in stretches if s.kind == kind and s.ms]
        ms = sum(s.ms for s in mine)
        if ms:
            parts.append(Part(kind, ms, rate * ms, mine))
    return Waterfall(begin, end - begin, dollars, traffic, parts)


def _stretches(
    instance: Instance, events: Sequence[Event], proofs: Sequence[Proof], begin: int, end: int
) -> Iterable[Stretch]:
    """Each state's time, cut to what was paid; the states follow each other without a gap."""
    moves = [event for event in events if event.kind == "instance.state"]
    since, state = begin, moves[0].old if moves else instance.state
    for move in [*moves, None]:
        until = min(max(move.at_ms if move else end, since), end)
        yield from _state(instance, state, since, until, events, proofs)
        if move is None:
            return
        since, state = until, move.new


def _state(
    instance: Instance, state: str, since: int, until: int, events: Sequence[Event], proofs: Sequence[Proof]
) -> Iterable[Stretch]:
    if state == LOADING:
        yield from _loading(instance, since, until, events)
    elif state == FETCHING:
        yield Stretch("params", since, until - since)
    elif state in (BENCHMARKING, PROVING):
        again = [event.at_ms for event in events if event.kind == AGAIN]
        yield from _working(since, until, again, proofs)
    elif state == SEALING:
        yield Stretch("upload", since, until - since, "the rest of the logs, and the sealed bundle")
    elif state in (DESTROYING, DESTROYED):
        yield Stretch("idle", since, until - since, "until the provider showed that it is gone")
    else:
        yield Stretch("idle", since, until - since, "it had nothing to do")


def _loading(instance: Instance, since: int, until: int, events: Sequence[Event]) -> Iterable[Stretch]:
    """The provider pulls the image until it lists the machine as running; then our agent starts."""
    runs = next((e.at_ms for e in events if e.kind == RUNNING and since <= e.at_ms <= until), None)
    if instance.provider == "local":
        yield Stretch("boot", since, until - since, "no image is pulled on this machine")
    elif runs is None:
        yield Stretch("boot", since, until - since, "with the pull of the image: no list told the two apart")
    else:
        yield Stretch("pull", since, runs - since, "until a list of the provider showed it running")
        yield Stretch("boot", runs, until - runs)


def _working(since: int, until: int, again: Sequence[int], proofs: Sequence[Proof]) -> Iterable[Stretch]:
    """Rounds of proofs: what comes before each, the proofs themselves, and what comes after the last."""
    rounds: dict[int, list[Proof]] = {}
    for proof in proofs:
        if proof.pulled_ms is not None and since <= proof.pulled_ms <= until:
            rounds.setdefault(proof.round, []).append(proof)
    at, pulls = since, [min(p.pulled_ms or 0 for p in rounds[number]) for number in sorted(rounds)]
    for i, number in enumerate(sorted(rounds)):
        asked, pulled = rounds[number], max(pulls[i], at)
        decided = next((ms for ms in again if at <= ms <= pulled), at) if i else at
        yield Stretch("verify", at, decided - at, "our own check of the proofs, while the machine waits")
        yield Stretch("load", decided, pulled - decided, "the prover starts, loads the key and warms up")
        limit = min(max(pulls[i + 1], pulled), until) if i + 1 < len(pulls) else until
        came = [p for p in asked if p.received_ms is not None]
        last = min(max([pulled, *(p.received_ms or 0 for p in came)]), limit)
        yield from _proving(pulled, last, came)
        at = last
        if out := len(asked) - len(came):
            note = f"{out} of {len(asked)} proofs had not come"
            yield Stretch("unknown", at, limit - at, note)
            at = limit
    if rounds:
        yield Stretch("verify", at, until - at, "our own check of the proofs, while the machine waits")
    else:
        yield Stretch("load", at, until - at, "the prover starts, loads the key and warms up")


def _proving(pulled: int, last: int, came: Sequence[Proof]) -> Iterable[Stretch]:
    """The time between handing out tasks and the last answer, shared out among the phases of the proofs."""
    busy, spans, blind = dict.fromkeys((*_PHASES, "unknown"), 0.0), list[tuple[float, float]](), 0
    for proof in came:
        phases, whole = _figures(proof)
        received = min(proof.received_ms or last, last)
        length = min(whole, float(received - pulled))
        if length <= 0:
            blind += whole <= 0
            continue
        spans.append((received - length, float(received)))
        total = sum(phases.values())
        fits = min(1.0, length / total) if total else 0.0
        for kind, ms in phases.items():
            busy[kind] += ms * fits
    window, work = last - pulled, sum(busy.values())
    covered = min(_union(spans), float(window))
    shown = min(work, covered)
    shares = {kind: ms * shown / work for kind, ms in busy.items() if ms} if work else {}
    note = ""
    if work > covered > 0:
        note = f"{len(came)} proofs overlapped {work / covered:.1f} times; each phase has its share of the time"
    rest = f"{blind} of {len(came)} proofs came without timings" if blind else "waiting: witnesses, queue, answers"
    shares["rest"] = window - shown
    at = pulled
    for kind, ms in _whole(shares, window).items():
        name = kind if kind != "rest" else "unknown" if blind else "idle"
        yield Stretch(name, at, ms, rest if kind == "rest" else note)
        at += ms


def _figures(proof: Proof) -> tuple[dict[str, float], float]:
    """(milliseconds by phase, of the whole proof) as the machine gives them: a stranger's, so only sane ones count."""
    said: Mapping[str, Any] = proof.timings_ms if isinstance(proof.timings_ms, dict) else {}
    phases: dict[str, float] = {}
    waited = 0.0
    for name, value in said.items():
        ms = _sane(value)
        if name in _WAITING:
            waited += ms
        elif ms:
            kind = name if name in _PHASES else "unknown"
            phases[kind] = phases.get(kind, 0.0) + ms
    whole = _sane(proof.machine_ms) or sum(phases.values()) + waited
    return (phases or ({"unknown": whole} if whole else {})), whole


def _sane(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return min(float(value), 1e12) if good and value > 0 else 0.0


def _union(spans: list[tuple[float, float]]) -> float:
    """Milliseconds that at least one of the spans covers."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _whole(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """The shares as whole milliseconds that add up to `total`: the largest remainders are rounded up."""
    down = {kind: int(ms) for kind, ms in shares.items()}
    left = total - sum(down.values())
    for kind in sorted(shares, key=lambda k: down[k] - shares[k])[:left]:
        down[kind] += 1
    return down
