"""Asking for a run: what is refused and why, what it may cost, once is once, and calling it off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select

from jobs.context import Context
from jobs.deploy import deploy
from jobs.domain import inputs
from jobs.domain.models import Input, Instance, Run
from jobs.domain.quotes import quote
from jobs.domain.runs import InvalidRequest, cancel_run, create_run, parse_request, run_again
from jobs.market import prices
from tests.jobs.rows import new_instance, new_offer, new_run
from tests.jobs.scene import CIRCUIT, Scene

FIELDS = [
    ({"circuit": "chain"}, "circuit", "chain/4096/bls12381"),
    ({"circuit": "sudoku/8/bn254"}, "circuit", "built-in circuit is"),
    ({"circuit": "chain/0/bn254"}, "circuit", "size must be"),
    ({"circuit": "chain/99999999/bn254"}, "circuit", "size must be"),
    ({"circuit": "chain/²/bn254"}, "circuit", "built-in circuit is"),
    ({"circuit": "chain/8/bls12377"}, "circuit", "built-in circuit is"),
    ({"proofs": 0}, "proofs", "greater"),
    ({"proofs": 10_001}, "proofs", "less"),
    ({"concurrency": 0}, "concurrency", "greater"),
    ({"concurrency": 257}, "concurrency", "less"),
    ({"partition_workers": 0}, "partition_workers", "greater"),
    ({"max_duration_s": 59}, "max_duration_s", "greater"),
    ({"max_dollars": 0}, "max_dollars", "greater"),
    ({"max_dollars": "much"}, "max_dollars", "number"),
    ({"max_dollars_per_hour": -1}, "max_dollars_per_hour", "greater"),
    ({"max_dollars_per_hour": float("nan")}, "max_dollars_per_hour", "less"),
    ({"min_proofs_per_hour": -1}, "min_proofs_per_hour", "greater"),
    ({"lease_s": 29}, "lease_s", "greater"),
    ({"kind": "mine"}, "kind", "benchmark"),
    ({"request_id": "x" * 65}, "request_id", "64"),
    ({"provider": "x" * 17}, "provider", "16"),
    ({"cheap": True}, "cheap", "Extra"),
]


@pytest.mark.parametrize(("data", "field", "word"), FIELDS, ids=[f"{f}-{i}" for i, (_, f, _) in enumerate(FIELDS)])
def test_each_wrong_field_is_named(data: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(data)
    assert word in refused.value.fields[field]
    assert set(refused.value.fields) == {field}


def _input(context: Context, kind: str, **facts: Any) -> str:
    return inputs.register(context, kind, f"my.{kind}", context.new_id() * 2, 10, facts, None, "test").id


def test_keys_and_witnesses_must_fit(scene: Scene) -> None:
    context = scene.context
    key = _input(context, "zkey", curve="bn254", n_vars=10, n_public=1)
    good = _input(context, "wtns", curve="bn254", n_witness=10)
    foreign = _input(context, "wtns", curve="bls12381", n_witness=10)
    other = _input(context, "wtns", curve="bn254", n_witness=11)
    half_made = _input(context, "zkey", curve="bn254", n_vars=10, n_public=1)
    with context.sessions() as session:
        session.get_one(Input, half_made).state = "making"
        session.commit()
    table: list[tuple[dict[str, Any], str, str]] = [
        ({}, "zkey_id", "upload a proving key"),
        ({"zkey_id": "0" * 32}, "zkey_id", "no such proving key"),
        ({"zkey_id": good}, "zkey_id", "no such proving key"),
        ({"zkey_id": half_made, "witness_ids": [good]}, "zkey_id", "no such proving key"),
        ({"zkey_id": key}, "witness_ids", "at least one witness"),
        ({"zkey_id": key, "witness_ids": [key]}, "witness_ids", "no such witness"),
        ({"zkey_id": key, "witness_ids": [good, foreign]}, "witness_ids", "is on bls12381"),
        ({"zkey_id": key, "witness_ids": [other]}, "witness_ids", "another circuit"),
        ({"zkey_id": key, "circuit": CIRCUIT}, "circuit", "not both"),
        ({"circuit": CIRCUIT, "kind": "prove"}, "circuit", "only be benchmarked"),
        ({"circuit": CIRCUIT, "payload": "nothing"}, "payload", "groth16"),
        ({"circuit": CIRCUIT, "offer_id": "o9"}, "offer_id", "scan again"),
    ]
    for data, field, word in table:
        with pytest.raises(InvalidRequest) as refused:
            create_run(context, parse_request(data), "test")
        assert word in refused.value.fields[field], data
    with context.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 0
    run_id = create_run(context, parse_request({"kind": "prove", "zkey_id": key, "witness_ids": [good] * 3}), "test")
    assert scene.run(run_id).proofs == 3


def test_money_is_checked_against_the_offer(scene: Scene) -> None:
    context = scene.context
    new_offer(context, "o1", 3.6)
    tail = 3.6 * prices.tail_s(context.settings, 900) / 3600
    assert tail == pytest.approx(3.6 * (120 + 900 + 60) / 3600)
    table: list[tuple[dict[str, Any], str]] = [
        ({"max_dollars_per_hour": 3.59}, "max_dollars_per_hour"),
        ({"max_dollars": tail}, "max_dollars"),
    ]
    for limits, field in table:
        with pytest.raises(InvalidRequest) as refused:
            scene.request(offer_id="o1", **limits)
        assert field in refused.value.fields
    scene.request(offer_id="o1", max_dollars_per_hour=3.6, max_dollars=tail + 0.01)


def test_a_quote_includes_the_tail_and_never_passes_the_cap(scene: Scene) -> None:
    context = scene.context
    new_offer(context, "o1", 3.6)

    def reserve(**data: Any) -> float | None:
        return quote(context, parse_request({"circuit": CIRCUIT, **data})).reserve_dollars

    assert reserve() is None
    assert reserve(max_dollars=5) == 5
    assert reserve(max_dollars_per_hour=1.0, max_duration_s=3600) == pytest.approx((3600 + 1080) / 3600)
    assert reserve(offer_id="o1", max_duration_s=3600, lease_s=30) == pytest.approx(3.6 * (3600 + 210) / 3600)
    assert reserve(offer_id="o1", max_dollars=2) == 2
    assert reserve(offer_id="gone", max_dollars_per_hour=1.0) == reserve(max_dollars_per_hour=1.0)


def test_the_same_request_is_one_run(scene: Scene) -> None:
    first = scene.request(request_id="r1")
    assert scene.request(request_id="r1") == first
    assert scene.request(request_id="r2") != first
    # A form that sends the field empty asks for nothing of the kind.
    assert scene.request(request_id="") != scene.request(request_id="")
    assert len(scene.events("run.requested")) == 4


def test_empty_form_fields_are_as_if_not_sent(scene: Scene) -> None:
    request = parse_request({"circuit": CIRCUIT, "zkey_id": "", "offer_id": "", "request_id": ""})
    assert (request.zkey_id, request.offer_id, request.request_id) == (None, None, None)
    assert scene.run(create_run(scene.context, request, "test")).offer_id is None


def test_twenty_clicks_at_once_are_one_run(scene: Scene, make_context: Callable[..., Context]) -> None:
    start = threading.Barrier(20)
    request = parse_request({"circuit": CIRCUIT, "request_id": "click"})

    def click(_: int) -> str:
        context = make_context()
        start.wait()
        return create_run(context, request, "operator")

    with ThreadPoolExecutor(20) as pool:
        assert len(set(pool.map(click, range(20)))) == 1
    assert len(scene.events("run.requested")) == 1


def test_run_again_asks_for_the_same(scene: Scene) -> None:
    fields: dict[str, Any] = {
        "proofs": 7, "concurrency": 3, "partition_workers": 2, "max_dollars": 9.0, "max_dollars_per_hour": 1.5,
        "min_proofs_per_hour": 100.0, "lease_s": 60, "max_duration_s": 120, "request_id": "once",
    }  # fmt: skip
    first = scene.run(scene.request(**fields))
    again = scene.run(run_again(scene.context, first.id, "boris"))
    assert again.id != first.id
    assert (again.created_by, again.state, again.request_id, again.inputs) == ("boris", "queued", None, first.inputs)
    assert {name: getattr(again, name) for name in fields if name != "request_id"} == {
        name: value for name, value in fields.items() if name != "request_id"
    }
    with pytest.raises(InvalidRequest, match="no such run"):
        run_again(scene.context, "0" * 32, "boris")


def test_cancel_before_anything_is_rented(scene: Scene) -> None:
    run_id = scene.request()
    assert cancel_run(scene.context, run_id, "anna", "changed my mind")
    assert scene.run(run_id).state == "cancelled"
    assert not cancel_run(scene.context, run_id, "anna", "again")
    assert scene.run(run_id).reason == "changed my mind"
    assert not cancel_run(scene.context, "0" * 32, "anna", "")


def test_cancel_between_intent_and_rental_rents_nothing(scene: Scene) -> None:
    run_id, instance_id = scene.placed()
    assert cancel_run(scene.context, run_id, "anna", "no")
    deploy(instance_id, 1)
    assert scene.instance(instance_id).state == "not_rented"
    assert scene.market.sold == []


@pytest.mark.parametrize("state", ["loading", "fetching", "benchmarking", "ready", "proving", "serving"])
def test_cancel_seals_the_machine(scene: Scene, state: str) -> None:
    run = new_run(scene.context)
    instance = new_instance(scene.context, state=state, run_id=run.id)
    assert cancel_run(scene.context, run.id, "anna", "no")
    assert scene.instance(instance.id).state == "sealing"
    assert scene.run(run.id).state == "cancelled"


@pytest.mark.parametrize("verdict", ["passed", "slow", "broken", "failed", "cancelled"])
def test_cancel_comes_too_late_for_a_verdict(scene: Scene, verdict: str) -> None:
    run = new_run(scene.context, state=verdict)
    instance = new_instance(scene.context, state="sealing", run_id=run.id)
    assert not cancel_run(scene.context, run.id, "anna", "no")
    assert (scene.run(run.id).state, scene.instance(instance.id).state) == (verdict, "sealing")


def test_cancel_and_a_failing_machine_at_the_same_moment(scene: Scene, make_context: Callable[..., Context]) -> None:
    """One of them gives the verdict, neither hangs nor fails, and the machine is sealed once."""
    from jobs.domain.db import writing
    from jobs.domain.instances import fail

    for _ in range(5):
        run = new_run(scene.context)
        instance = new_instance(scene.context, state="benchmarking", run_id=run.id)
        start = threading.Barrier(4)

        def cancel(_: int, run_id: str = run.id, start: threading.Barrier = start) -> bool:
            context = make_context()
            start.wait()
            return cancel_run(context, run_id, "anna", "no")

        def break_down(_: int, instance_id: str = instance.id, start: threading.Barrier = start) -> bool:
            context = make_context()
            start.wait()
            with writing(context.sessions) as session:
                mine = session.get_one(Instance, instance_id, with_for_update=True)
                return fail(context, session, mine, "it broke", "reconcile")

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(act, n) for n, act in enumerate([cancel, break_down, cancel, break_down])]
            assert sum(a.result(30) for a in asked) in (1, 2)
        assert scene.run(run.id).state in ("cancelled", "failed")
        moves = [e for e in scene.events("instance.state") if e.instance_id == instance.id]
        assert [e.new for e in moves] == ["sealing"]
