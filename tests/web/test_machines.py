"""Machines: marks with their evidence, by hand, appealed, withdrawn; and what was measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select

from jobs.context import Context
from jobs.domain.market_models import Mark
from jobs.domain.models import Instance
from jobs.market import reputation
from tests.web.seed import Fleet
from tests.web.seed_vast import BAD, machine_id
from tests.web.site import Browser

BROKEN = f"/machines/vast/{machine_id(BAD['broken'])}"
USED = f"/machines/vast/{machine_id(6)}"


def standing(context: Context, machine: str) -> list[Mark]:
    with context.sessions() as session:
        return reputation.marks_of(session, [("vast", machine)], context.now_ms()).get(("vast", machine), [])


def test_marks_lead_to_their_evidence(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get(BROKEN).text
    counts, _, over = page.partition("Marks that no longer count")
    assert "no kernel image is available" in counts
    assert f"/runs/{fleet.runs['broken']}" in counts
    assert f"/instances/{fleet.gaps}" in counts
    assert "the host has moved to a faster line since" in counts
    assert "withdrawn by admin" in over
    assert "our own image was at fault" in over
    assert "faded" in over


def test_what_was_measured_is_drawn(signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get(f"/machines/vast/{machine_id(9)}").text
    assert "2 measurements, the newest" in page
    assert "groth16/bls12381/8192" in page
    assert "Host <a" in page
    assert "That weighs little" in page


def test_a_machine_nobody_saw(signed_in: Callable[[str], Browser]) -> None:
    answer = signed_in("viewer").get("/machines/vast/1")
    assert answer.status_code == 404
    assert "has been seen" in answer.text


@pytest.mark.parametrize("kind", list(BAD))
def test_the_list_by_kind_of_mark(signed_in: Callable[[str], Browser], kind: str) -> None:
    page = signed_in("viewer").get(f"/machines?mark={kind}&q=48").text
    assert f"/machines/vast/{machine_id(BAD[kind])}" in page
    others = {k: i for k, i in BAD.items() if k != kind and (k, kind) != ("broken", "slow")}
    assert not any(f"/machines/vast/{machine_id(index)}" in page for index in others.values())


def test_good_is_measured_and_unmarked(signed_in: Callable[[str], Browser]) -> None:
    viewer = signed_in("viewer")
    good = viewer.get("/machines?mark=good&q=48").text
    assert f"/machines/vast/{machine_id(0)}" in good  # its only mark has faded
    assert f"/machines/vast/{machine_id(BAD['slow'])}" not in good
    assert f"/machines/vast/{machine_id(1)}" in viewer.get("/machines?mark=new&q=48").text


def test_a_mark_by_hand(context: Context, signed_in: Callable[[str], Browser]) -> None:
    operator, machine = signed_in("operator"), machine_id(1)
    path = f"/machines/vast/{machine}/mark"
    empty = operator.post(path, kind="", reason="")
    assert empty.status_code == 400
    assert empty.text.count('aria-invalid="true"') == 2
    assert operator.post(path, kind="good", reason="it is").status_code == 400
    assert standing(context, machine) == []
    assert operator.post(path, kind="unstable", reason="<b>drops out</b>").status_code == 302
    [mark] = standing(context, machine)
    assert (mark.kind, mark.by, mark.run_id) == ("unstable", "operator", None)
    page = operator.get(f"/machines/vast/{machine}").text
    assert "&lt;b&gt;drops out&lt;/b&gt;" in page
    assert "none: marked by hand" in page


def test_a_machine_that_works_for_someone_is_marked_only_when_confirmed(
    context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]
) -> None:
    operator = signed_in("operator")
    assert f"/runs/{fleet.runs['bid']}" in operator.get(USED).text
    refused = operator.post(f"{USED}/mark", kind="slow", reason="too slow for this")
    assert refused.status_code == 409
    assert fleet.runs["bid"] in refused.text
    assert 'value="too slow for this"' in refused.text
    assert standing(context, machine_id(6)) == []
    operator.post(f"{USED}/mark", kind="slow", reason="too slow for this", confirm="yes")
    assert [m.kind for m in standing(context, machine_id(6))] == ["slow"]
    with context.sessions() as session:
        assert session.get_one(Instance, fleet.instances["bid"]).state == "benchmarking"
    assert "works now and is marked slow" in operator.get("/").text


def test_an_operator_appeals_and_an_admin_withdraws(context: Context, signed_in: Callable[[str], Browser]) -> None:
    machine = machine_id(BAD["unstable"])
    [mark] = standing(context, machine)
    path = f"/machines/vast/{machine}/marks/{mark.id}"
    operator, admin = signed_in("operator"), signed_in("admin")
    operator.post(f"{path}/appeal", reason="")
    assert "Say why" in operator.get(f"/machines/vast/{machine}").text
    operator.post(f"{path}/appeal", reason="our key was wrong")
    assert "our key was wrong" in admin.get(f"/machines/vast/{machine}").text
    assert operator.post(f"{path}/withdraw", reason="mine").status_code == 403
    assert len(standing(context, machine)) == 1
    admin.post(f"{path}/withdraw", reason="the appeal is right")
    assert standing(context, machine) == []
    admin.post(f"{path}/withdraw", reason="again")
    assert "was withdrawn already" in admin.get(f"/machines/vast/{machine}").text
    with context.sessions() as session:
        row = session.scalars(select(Mark).where(Mark.id == mark.id)).one()
    assert (row.appealed_by, row.withdrawn_by) == ("operator", "admin")


def test_a_mark_belongs_to_its_machine(context: Context, signed_in: Callable[[str], Browser]) -> None:
    [mark] = standing(context, machine_id(BAD["unstable"]))
    answer = signed_in("admin").post(f"{USED}/marks/{mark.id}/withdraw", reason="wrong page")
    assert answer.status_code == 404
    assert len(standing(context, machine_id(BAD["unstable"]))) == 1
