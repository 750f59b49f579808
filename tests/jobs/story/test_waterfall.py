"""Every paid millisecond and every dollar of a rental has a place, exactly one, and what nobody measured is unknown."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jobs.domain.models import Event, Instance, Proof
from jobs.story.waterfall import KINDS, Waterfall, waterfall
from tests.jobs.scene import Scene

HOUR = 3_600_000
T = 1_780_000_000_000


def rental(**values: Any) -> Instance:
    row = Instance(
        id="i", provider="vast", state="destroyed", created_ms=T - 3000, rented_ms=T, ended_ms=T + 100_000,
        dollars_per_hour=0.36, spent_dollars=0.012, traffic_dollars=0.002, accrued_ms=T + 100_000,
    )  # fmt: skip
    for name, value in values.items():
        setattr(row, name, value)
    return row


def moves(*steps: tuple[int, str]) -> list[Event]:
    """Moves at seconds after the rental; a step named with a dot is another event."""
    events, state = [], "renting"
    for at_s, new in steps:
        kind = new if "." in new else "instance.state"
        events.append(Event(at_ms=T + 1000 * at_s, instance_id="i", kind=kind, old=state, new=new))
        state = state if "." in new else new
    return events


def proof(pulled_s: float, received_s: float | None, round_: int = 1, machine_s: float = 0, **phases: float) -> Proof:
    return Proof(
        round=round_,
        pulled_ms=T + int(1000 * pulled_s),
        received_ms=None if received_s is None else T + int(1000 * received_s),
        machine_ms=1000 * machine_s or None,
        timings_ms={name: 1000 * s for name, s in phases.items()},
    )


def seconds(found: Waterfall | None) -> dict[str, float]:
    """By kind; checked to add up on the way."""
    assert found is not None
    assert sum(part.ms for part in found.parts) == found.paid_ms
    assert sum(part.dollars for part in found.parts) + found.traffic_dollars == pytest.approx(found.dollars, abs=1e-12)
    assert [part.kind for part in found.parts] == [kind for kind in KINDS if kind in {p.kind for p in found.parts}]
    return {part.kind: part.ms / 1000 for part in found.parts}


WHOLE = moves(
    (0, "loading"), (20, "instance.running"), (25, "fetching"), (35, "benchmarking"), (80, "sealing"),
    (90, "destroying"), (100, "destroyed"),
)  # fmt: skip


def test_each_second_has_its_place() -> None:
    one = {"load": 0.5, "synthesis": 4.0, "compute": 8.0, "verify": 0.5, "queue": 1.0}
    found = waterfall(rental(), WHOLE, [proof(45, 60, machine_s=14, **one), proof(45, 75, machine_s=14, **one)], T * 2)
    assert seconds(found) == {
        "pull": 20, "boot": 5, "params": 10, "load": 11, "synthesis": 8, "compute": 16,
        "verify": 1 + 5, "upload": 10, "idle": 4 + 10,
    }  # fmt: skip
    assert found is not None
    assert found.dollars == 0.012
    assert found.traffic_dollars == 0.002


def test_phases_that_overlap_share_the_time_and_say_so() -> None:
    one = {"synthesis": 10.0, "compute": 30.0}
    came = [proof(45, 75, machine_s=30, **one) for _ in range(4)]
    found = waterfall(rental(), WHOLE, came, T * 2)
    assert found is not None
    assert (seconds(found)["synthesis"], seconds(found)["compute"]) == (7.5, 22.5)
    (note,) = next(part for part in found.parts if part.kind == "compute").notes
    assert "overlapped 4.0 times" in note


def test_what_nobody_measured_is_unknown() -> None:
    failed = waterfall(rental(), WHOLE, [proof(45, 60), proof(45, 60)], T * 2)
    assert seconds(failed)["unknown"] == 15
    awaited = waterfall(rental(), WHOLE, [proof(45, 60, machine_s=15, compute=15.0), proof(45, None)], T * 2)
    assert seconds(awaited)["unknown"] == 20
    assert awaited is not None
    assert "1 of 2 proofs had not come" in next(p for p in awaited.parts if p.kind == "unknown").notes
    whole_only = waterfall(rental(), WHOLE, [proof(45, 75, machine_s=30)], T * 2)
    assert seconds(whole_only)["unknown"] == 30


def test_pull_and_boot_are_told_apart_only_where_a_list_did() -> None:
    silent = [event for event in WHOLE if event.kind == "instance.state"]
    found = waterfall(rental(), silent, [], T * 2)
    assert seconds(found)["boot"] == 25
    assert found is not None
    assert "pull" in found.parts[0].notes[0]
    assert seconds(waterfall(rental(provider="local"), WHOLE, [], T * 2))["boot"] == 25


def test_a_second_round_waits_for_our_check_first() -> None:
    events = moves((0, "loading"), (5, "fetching"), (10, "benchmarking"), (44, "benchmark.again"), (90, "sealing"))
    rounds = [proof(20, 40, 1, 20, compute=20.0), proof(50, 85, 2, 35, compute=35.0)]
    found = seconds(waterfall(rental(ended_ms=None, accrued_ms=T + 95_000), events, rounds, T + 95_000))
    assert found == {"boot": 5, "params": 5, "load": 10 + 6, "compute": 55, "verify": 4 + 5, "upload": 5}


def test_a_bill_replaces_our_account_and_an_unpaid_one_has_no_waterfall() -> None:
    billed = waterfall(rental(billed_dollars=0.001), WHOLE, [], T * 2)
    assert seconds(billed)
    assert billed is not None
    assert billed.traffic_dollars == billed.dollars == 0.001
    assert waterfall(rental(rented_ms=None), [], [], T) is None
    instant = waterfall(rental(ended_ms=T), moves((0, "loading"), (0, "sealing")), [], T)
    assert seconds(instant) == {}


def test_whatever_a_machine_says_the_sums_hold() -> None:
    """Nonsense in its figures moves seconds between kinds, never out of the sum."""
    dice = random.Random(7)
    odd = [-5, 0, 1e300, float("nan"), float("inf"), "x", None, True, 12.5, 3e4, 2e5]
    for _ in range(300):
        rows = []
        for _ in range(dice.randrange(5)):
            pulled = dice.randrange(30, 85)
            row = proof(pulled, dice.choice([None, pulled, pulled + dice.randrange(40)]), dice.randrange(1, 4))
            row.machine_ms = dice.choice([v for v in odd if not isinstance(v, str)])  # type: ignore[assignment]
            row.timings_ms = {
                dice.choice(["load", "compute", "verify", "queue", "zeta"]): dice.choice(odd) for _ in range(3)
            }
            rows.append(row)
        assert seconds(waterfall(rental(), WHOLE, rows, T * 2))


def test_a_whole_run_adds_up_to_its_account(scene: Scene) -> None:
    from jobs.story.waterfall import of_instance

    agent = scene.working()
    scene.tick(7, times=3)
    instance = scene.instance(agent.instance_id)
    with scene.context.sessions() as session:
        found = of_instance(session, instance, scene.clock())
    assert found is not None
    assert seconds(found)["unknown"] == 21
    assert found.paid_ms == scene.clock() - (instance.rented_ms or 0)
