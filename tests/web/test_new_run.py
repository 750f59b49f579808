from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import func, select

from jobs.context import Context
from jobs.domain.models import Run
from tests.web.seed import Fleet
from tests.web.site import Browser

FORM: dict[str, Any] = {
    "kind": "benchmark", "payload": "groth16", "source": "builtin",
    "circuit_kind": "chain", "circuit_size": "4096", "circuit_curve": "bn254",
    "provider": "local", "max_duration_s": "3600", "proofs": "12", "concurrency": "3", "partition_workers": "1",
    "request_id": "r1", "action": "start",
}  # fmt: skip


def count(context: Context) -> int:
    with context.sessions() as session:
        return session.scalar(select(func.count()).select_from(Run)) or 0


def test_a_run_is_started_once(context: Context, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    before = count(context)
    first = browser.post("/runs/new", **FORM)
    second = browser.post("/runs/new", **FORM)
    assert first.status_code == 302
    assert first.location == second.location
    assert count(context) == before + 1
    assert browser.get(first.location).status_code == 200


def test_one_run_for_each_offer(context: Context, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    before = count(context)
    answer = browser.post("/runs/new", **FORM, offer=["offer-48800", "offer-48801", "offer-48800"])
    assert answer.location == "/runs"
    assert count(context) == before + 2


def test_what_was_typed_is_kept(context: Context, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    before = count(context)
    answer = browser.post(
        "/runs/new", **{**FORM, "max_dollars": "lots", "circuit_size": "many", "proofs": "0"}, offer="offer-48803"
    )
    assert answer.status_code == 400
    assert count(context) == before
    for typed in ('value="lots"', 'value="many"', 'value="0"', 'value="r1"'):
        assert typed in answer.text
    assert answer.text.count('aria-invalid="true"') >= 3
    assert 'value="offer-48803" checked' in answer.text


def test_own_key_and_witnesses(context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    own = {**FORM, "source": "own", "kind": "prove", "zkey_id": fleet.zkey}
    assert browser.post("/runs/new", **own).status_code == 400
    answer = browser.post("/runs/new", **own, witness_ids=[fleet.witness])
    assert answer.status_code == 302
    with context.sessions() as session:
        run = session.get(Run, answer.location.rsplit("/", 1)[1])
    assert run is not None
    assert (run.kind, run.proofs, run.zkey_id, run.created_by) == ("prove", 1, fleet.zkey, "operator")


def test_the_sum_follows_the_form(signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    unknown = browser.client.get("/runs/new/sum", query_string=FORM).text
    assert "$5.00" in unknown  # the cap on a run: no price is known
    known = browser.client.get("/runs/new/sum", query_string={**FORM, "offer": ["offer-48800", "offer-48801"]}).text
    assert "2 runs" in known
    assert "$0.32" in known
    wrong = browser.client.get("/runs/new/sum", query_string={**FORM, "max_duration_s": "-1"}).text
    assert "max_duration_s" in wrong


def test_cancel_wants_a_reason(context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    run = fleet.runs["active"]
    browser.post(f"/runs/{run}/cancel")
    assert "Say why" in browser.get(f"/runs/{run}").text
    browser.post(f"/runs/{run}/cancel", reason="too dear")
    with context.sessions() as session:
        row = session.get(Run, run)
    assert row is not None
    assert (row.state, row.reason) == ("cancelled", "too dear")
    browser.post(f"/runs/{run}/cancel", reason="again")
    assert "its verdict stands" in browser.get("/runs").text


def test_run_again(context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    answer = browser.post(f"/runs/{fleet.runs['passed']}/again")
    assert answer.location not in (None, f"/runs/{fleet.runs['passed']}")
    assert "Queued" in browser.get(answer.location).text


def test_destroy_and_force(context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    instance = fleet.instances["ready"]
    browser.post(f"/instances/{instance}/destroy", reason="")
    assert "Not destroyed" in browser.get(f"/instances/{instance}").text
    unconfirmed = browser.post(f"/instances/{instance}/destroy", reason="stuck", force="yes", confirm="no")
    assert unconfirmed.status_code == 400
    assert f"Type {instance[:8]}" in unconfirmed.text
    browser.post(f"/instances/{instance}/destroy", reason="stuck")
    assert "Sealing" in browser.get(f"/instances/{instance}").text
    browser.post(f"/instances/{instance}/destroy", reason="stuck", force="yes", confirm=instance[:8])
    assert "Destroying" in browser.get(f"/instances/{instance}").text
