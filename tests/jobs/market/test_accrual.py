"""Our own account: by state, by day, never under what the provider may bill."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from jobs.context import Context
from jobs.domain.market_models import LedgerDay
from jobs.domain.models import Artifact, Chunk, Input, Instance, Proof
from jobs.market import accrual
from jobs.market.accrual import DAY_MS, DISK_METER, NO_METER, RUNNING_METER, Seen, meter_of
from jobs.market.prices import GB, Price
from jobs.market.providers.base import EXITED, LOADING, OFFLINE, RUNNING, STOPPED, UNKNOWN
from tests.jobs.rows import NOW, new_instance, new_run
from tests.jobs.scene import Scene

PRICE = Price(0.36, 0.036, 0.01, 0.02, 1.0)
SECOND, MINUTE = 1000, 60_000


def rented(context: Context, **fields: Any) -> str:
    values = {"price": PRICE.to_json(), "dollars_per_hour": PRICE.dollars_per_hour, "rented_ms": NOW, **fields}
    return new_instance(context, **values).id


def accrue(context: Context, instance_id: str, after_ms: int, seen: tuple[str, int] | None = None) -> Instance:
    """`seen`: (meter, milliseconds after NOW that the list was begun)."""
    with context.sessions() as session:
        instance = session.get_one(Instance, instance_id)
        accrual.accrue(session, instance, NOW + after_ms, Seen(seen[0], NOW + seen[1]) if seen else None)
        session.commit()
        return instance


def days(context: Context, instance_id: str) -> list[tuple[float, float, float]]:
    with context.sessions() as session:
        lines = session.scalars(
            select(LedgerDay).where(LedgerDay.instance_id == instance_id).order_by(LedgerDay.day_ms)
        )
        return [(line.gpu_dollars, line.disk_dollars, line.traffic_dollars) for line in lines]


@pytest.mark.parametrize(
    ("status", "facts", "meter"),
    [
        (RUNNING, {"cur_state": "running"}, RUNNING_METER),
        (LOADING, {"cur_state": "stopped"}, RUNNING_METER),  # the documents contradict each other: the dearer
        (UNKNOWN, {"cur_state": "stopped"}, RUNNING_METER),
        (EXITED, {"cur_state": "running"}, RUNNING_METER),  # a restart in progress keeps its GPU
        (EXITED, {}, RUNNING_METER),
        (EXITED, {"cur_state": "stopped"}, DISK_METER),
        (STOPPED, {"cur_state": "stopped"}, DISK_METER),
        (STOPPED, {"cur_state": "stopped", "actual": "frozen"}, RUNNING_METER),
        (OFFLINE, {"cur_state": "running"}, NO_METER),
    ],
)
def test_which_meter_runs(status: str, facts: dict[str, Any], meter: str) -> None:
    assert meter_of(status, facts) == meter


def test_running_costs_gpu_and_disk(scene: Scene) -> None:
    one = rented(scene.context)
    instance = accrue(scene.context, one, MINUTE)
    assert instance.spent_dollars == pytest.approx(0.396 / 60)
    assert days(scene.context, one) == [(pytest.approx(0.006), pytest.approx(0.0006), 0.0)]
    # Between two entries it is counted on, and once it ended no further.
    assert accrual.spent(instance, NOW + 2 * MINUTE) == pytest.approx(0.396 / 30)
    instance.ended_ms = NOW + 90 * SECOND
    assert accrual.spent(instance, NOW + DAY_MS) == pytest.approx(0.396 / 40)


def test_stopped_costs_its_disk_only_between_two_lists_that_say_so(scene: Scene) -> None:
    one = rented(scene.context)
    # The list shows it stopped: up to now it may have run.
    assert accrue(scene.context, one, 10 * SECOND, (DISK_METER, 8 * SECOND)).spent_dollars == pytest.approx(0.0011)
    # The same list again: nothing is proven yet, and nothing counted.
    assert accrue(scene.context, one, 12 * SECOND, (DISK_METER, 8 * SECOND)).accrued_ms == NOW + 10 * SECOND
    # The next one proves the time up to when it was begun, and what follows counts as running again.
    instance = accrue(scene.context, one, 72 * SECOND, (DISK_METER, 70 * SECOND))
    assert instance.spent_dollars == pytest.approx(0.0011 + 0.0006)
    assert accrual.spent(instance, NOW + 72 * SECOND) == pytest.approx(0.0017 + 0.00022)


def test_offline_costs_nothing_and_its_return_everything(scene: Scene) -> None:
    one = rented(scene.context, meter=NO_METER, accrued_ms=NOW)
    assert accrue(scene.context, one, 61 * SECOND, (NO_METER, MINUTE)).spent_dollars == 0.0
    back = accrue(scene.context, one, 80 * SECOND, (RUNNING_METER, 79 * SECOND))
    assert back.spent_dollars == pytest.approx(0.396 / 180)


def test_of_two_cheap_meters_the_dearer_counts(scene: Scene) -> None:
    one = rented(scene.context, meter=NO_METER, accrued_ms=NOW)
    assert accrue(scene.context, one, 61 * SECOND, (DISK_METER, MINUTE)).spent_dollars == pytest.approx(0.0006)


@pytest.mark.parametrize("seen", [(DISK_METER, 121 * SECOND), (DISK_METER, -1), None], ids=["far", "old", "unlisted"])
def test_what_nobody_watched_counts_as_running(scene: Scene, seen: tuple[str, int] | None) -> None:
    """It may have been resumed and stopped again between two lists that are far apart."""
    one = rented(scene.context, meter=DISK_METER, accrued_ms=NOW)
    assert accrue(scene.context, one, 122 * SECOND, seen).spent_dollars == pytest.approx(0.396 * 122 / 3600)


def test_each_day_has_its_line(scene: Scene) -> None:
    midnight = NOW - NOW % DAY_MS + DAY_MS
    one = rented(scene.context, rented_ms=midnight - MINUTE)
    accrue(scene.context, one, midnight - NOW + 2 * MINUTE)
    assert [gpu for gpu, _, _ in days(scene.context, one)] == pytest.approx([0.006, 0.012])


def test_bytes_are_counted_once_as_they_become_known(scene: Scene) -> None:
    context = scene.context
    run = new_run(context, zkey_id=_key(context, 2 * GB))
    one = rented(context, run_id=run.id, heard_ms=NOW)
    _moved(context, run.id, one, chunk_bytes=GB // 2, artifact_bytes=GB // 4)
    expected = 2 * 0.01 + 0.1 * 0.01 + 0.75 * 0.02
    for after in (MINUTE, 2 * MINUTE):
        instance = accrue(context, one, after)
        assert instance.traffic_dollars == pytest.approx(expected, rel=1e-4)
    assert instance.spent_dollars == pytest.approx(expected + 0.396 / 30, rel=1e-4)
    assert days(context, one)[0][2] == pytest.approx(expected, rel=1e-4)


def test_a_key_counts_only_once_the_machine_was_heard(scene: Scene) -> None:
    run = new_run(scene.context, zkey_id=_key(scene.context, GB))
    one = rented(scene.context, run_id=run.id)
    assert accrue(scene.context, one, MINUTE).traffic_dollars == 0.0


def test_a_price_that_rose_counts_from_the_rental_on(scene: Scene) -> None:
    one = rented(scene.context)
    accrue(scene.context, one, MINUTE)
    with scene.context.sessions() as session:
        instance = session.get_one(Instance, one)
        assert not accrual.raise_price(session, instance, 0.396 * 1.0005)
        assert not accrual.raise_price(session, instance, 0.2)
        assert accrual.raise_price(session, instance, 0.792)
        session.commit()
    assert accrual.spent(instance, NOW + MINUTE) == pytest.approx(0.792 / 60)
    assert accrual.spent(instance, NOW + 2 * MINUTE) == pytest.approx(0.792 / 30)
    assert accrue(scene.context, one, 2 * MINUTE).spent_dollars == pytest.approx(0.792 / 30)


def test_the_sum_in_sql_is_the_sum_in_python(scene: Scene) -> None:
    context, now = scene.context, NOW + 10 * MINUTE
    rows = [
        {},
        {"accrued_ms": NOW + MINUTE, "spent_dollars": 0.5},
        {"ended_ms": NOW + 2 * MINUTE},
        {"ended_ms": NOW + 2 * MINUTE, "accrued_ms": NOW + 2 * MINUTE, "spent_dollars": 0.25},
        {"billed_dollars": 0.125, "ended_ms": NOW + MINUTE},
        {"rented_ms": None},
        {"rented_ms": now + MINUTE},
    ]
    ids = [rented(context, **fields) for fields in rows]
    with context.sessions() as session:
        for one in ids:
            instance = session.get_one(Instance, one)
            total = session.scalar(select(accrual.spent_sql(now)).where(Instance.id == one))
            assert total == pytest.approx(accrual.spent(instance, now)), instance


def test_a_bill_is_not_counted_on(scene: Scene) -> None:
    one = rented(scene.context, billed_dollars=0.5, ended_ms=NOW + MINUTE)
    instance = accrue(scene.context, one, DAY_MS)
    assert (instance.spent_dollars, accrual.spent(instance, NOW + DAY_MS)) == (0.0, 0.5)


def _key(context: Context, size_bytes: int) -> str:
    with context.sessions() as session:
        key = Input(
            id=context.new_id(), kind="zkey", name="k", state="ready", size_bytes=size_bytes, facts={},
            created_by="test", created_ms=NOW,
        )  # fmt: skip
        session.add(key)
        session.commit()
        return key.id


def _moved(context: Context, run_id: str, instance_id: str, chunk_bytes: int, artifact_bytes: int) -> None:
    with context.sessions() as session:
        session.add(
            Chunk(
                instance_id=instance_id, stream="bench", seq=0, first_line=1, lines=1, t_first_ms=NOW, t_last_ms=NOW,
                raw_bytes=1, raw_sha256="", prev_sha256="", stored_bytes=chunk_bytes, received_ms=NOW,
            )
        )  # fmt: skip
        session.add(
            Artifact(
                instance_id=instance_id, name="a", size_bytes=artifact_bytes, sha256="", object_key="a", created_ms=NOW
            )
        )
        for index, pulled_ms in ((0, NOW), (1, None)):
            session.add(
                Proof(
                    run_id=run_id, instance_id=instance_id, round=1, index=index, witness_key="w", witness_sha256="",
                    witness_bytes=GB // 10, expected_public=[], pulled_ms=pulled_ms,
                )
            )  # fmt: skip
        session.commit()
