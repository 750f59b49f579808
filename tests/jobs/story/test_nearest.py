"""Which success a failure is compared with."""

from __future__ import annotations

from typing import Any

from jobs.context import Context
from jobs.domain.archive_models import Archive
from jobs.domain.models import Chunk, Instance, Run
from jobs.story.nearest import nearest_success
from tests.jobs.rows import NOW, new_instance, new_run

CIRCUIT = {"circuit": "chain/8/bls12381"}
CARD = {"gpus": [{"name": "NVIDIA GeForce RTX 4090"}]}


def machine(context: Context, run: Run, **fields: Any) -> Instance:
    values: dict[str, Any] = {"state": "destroyed", "evidence": "complete", "machine_id": "7", "facts": CARD}
    instance = new_instance(context, run_id=run.id, **{**values, **fields})
    with context.sessions() as session:
        times = {"t_first_ms": NOW, "t_last_ms": NOW, "received_ms": NOW}
        sums = {"raw_bytes": 2, "stored_bytes": 2, "raw_sha256": "0" * 64, "prev_sha256": "0" * 64}
        session.add(Chunk(instance_id=instance.id, stream="bench", seq=0, first_line=1, lines=1, **times, **sums))
        session.commit()
    return instance


def passed(context: Context, created_ms: int, **fields: Any) -> Instance:
    return machine(context, new_run(context, state="passed", inputs=CIRCUIT, created_ms=created_ms), **fields)


def test_the_gpu_model_comes_before_the_machine_and_both_before_the_time(context: Context) -> None:
    run = new_run(context, state="broken", inputs=CIRCUIT)
    failed = machine(context, run)
    with context.sessions() as session:
        assert nearest_success(session, failed, run) is None
    expected = []
    a100 = {"gpus": [{"name": "NVIDIA A100"}]}
    for fields, same in (
        ({"machine_id": "8", "facts": a100}, ()),
        ({"facts": a100}, ("machine",)),
        ({"machine_id": "8"}, ("GPU model",)),
        ({}, ("GPU model", "machine")),
    ):
        expected.append((passed(context, NOW - 90_000 * (len(expected) + 1), **fields).id, same))
        with context.sessions() as session:
            near = nearest_success(session, failed, run)
        assert near is not None
        assert (near.instance.id, near.same) == (expected[-1][0], ("payload and circuit", *same))
    nearer = passed(context, NOW - 1000)
    with context.sessions() as session:
        near = nearest_success(session, failed, run)
    assert near is not None
    assert near.instance.id == nearer.id


def test_another_circuit_lost_logs_and_failures_are_no_success(context: Context) -> None:
    run = new_run(context, state="broken", inputs=CIRCUIT)
    failed = machine(context, run)
    machine(context, new_run(context, state="passed", inputs={"circuit": "chain/16/bls12381"}))
    machine(context, new_run(context, state="slow", inputs=CIRCUIT))
    machine(context, new_run(context, state="passed", inputs=CIRCUIT, payload="other"))
    gone = passed(context, NOW)
    with context.sessions() as session:
        session.add(Archive(instance_id=gone.id, raw_bytes=2, artifact_bytes=0, expired_ms=NOW))
        session.commit()
    with context.sessions() as session:
        assert nearest_success(session, failed, run) is None
    own = new_run(context, state="broken", inputs={"witnesses": []})
    with context.sessions() as session:
        assert nearest_success(session, machine(context, own), own) is None
