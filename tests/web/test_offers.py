"""Offers: cheapest valid proof first, what is skipped with its reason, the workload in the address."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from sqlalchemy import update

from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.market_models import Offer
from jobs.domain.work import transaction
from jobs.market import reputation
from tests.web.seed import Fleet
from tests.web.seed_vast import BAD, OFFERS, machine_id
from tests.web.site import Browser
from web import ranked
from web.ranked import Workload, shelf

LOAD = Workload("vast", circuit="chain/4096/bls12381", min_proofs_per_hour=300.0)


def ranking(context: Context, load: Workload = LOAD) -> ranked.Ranking:
    with context.sessions() as session:
        return shelf.get(context, session, load)


def row_of(page: str, machine: str) -> str:
    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    return next(row for row in rows if f"/machines/vast/{machine}" in row)


def test_the_cheapest_proof_comes_first_and_skipped_ones_last(signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get("/offers?min_proofs_per_hour=300").text
    assert f"of {OFFERS + 1} offers, cheapest valid proof first" in page
    body = page.partition("<tbody>")[2]
    prices = [float(text) for text in re.findall(r'<span class="money" title="\$([0-9.]+)">', body)]
    assert prices
    first_skipped = body.find('class="skipped"')
    assert 'class="skipped"' not in body[:first_skipped]
    assert first_skipped == -1 or "<tr>" not in body[first_skipped:].partition("</table>")[0]


def test_no_offer_is_silently_absent(context: Context, signed_in: Callable[[str], Browser]) -> None:
    viewer = signed_in("viewer")
    pages = viewer.get("/offers").text + viewer.get("/offers?page=2").text
    for index in range(OFFERS):
        assert f"/machines/vast/{machine_id(index)}" in pages, index
    broken = row_of(pages, machine_id(BAD["broken"]))
    assert "Skipped" in broken
    assert "no kernel image is available" in broken
    hidden = viewer.get("/offers?skipped=hide").text
    assert f"/machines/vast/{machine_id(BAD['broken'])}" not in hidden
    assert "show why" in hidden
    skipped = sum(bool(row.skipped) for row in ranking(context, Workload("vast", circuit=LOAD.circuit)).rows)
    assert f"{skipped} are skipped" in hidden


def test_the_filter_in_words(signed_in: Callable[[str], Browser]) -> None:
    viewer = signed_in("viewer")
    page = viewer.get("/offers?gpu=rtx+4090&gpus=1&price=0.6&vram=24&disk=oops").text
    assert "rtx 4090, under $0.6/h, 1 or more GPUs, 24 GiB of VRAM" in page
    assert "RTX 3090" not in page.partition("<tbody>")[2]
    assert 'value="oops"' in page
    nothing = viewer.get("/offers?gpu=voodoo").text
    assert "No offer is like that: voodoo" in nothing


def test_a_wrong_workload_is_named_and_the_usual_one_shown(signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get("/offers?circuit_size=none&proofs=0").text
    assert "Ranked for the usual workload" in page
    assert f"of {OFFERS + 1} offers" in page
    for provider in ("nobody", "x" * 60, "<script>"):
        assert signed_in("viewer").client.get("/offers", query_string={"provider": provider}).status_code == 200


def test_the_workload_goes_on_to_the_new_run(signed_in: Callable[[str], Browser]) -> None:
    operator = signed_in("operator")
    page = operator.get("/offers?circuit_size=65536&min_proofs_per_hour=42").text
    assert '<input type="hidden" name="circuit_size" value="65536">' in page
    new = operator.get("/runs/new?provider=vast&circuit_size=65536&min_proofs_per_hour=42&offer=9400000").text
    for typed in (
        'name="circuit_size" value="65536"',
        'name="min_proofs_per_hour" value="42"',
        'value="9400000" checked',
    ):
        assert typed in new


def test_offers_for_a_key_of_my_own(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("operator").get(f"/offers?zkey_id={fleet.zkey}").text
    assert "groth16/bn254/32768" in page
    assert '<input type="hidden" name="source" value="own">' in page
    assert f'<input type="hidden" name="zkey_id" value="{fleet.zkey}">' in page


def test_several_are_added_up(signed_in: Callable[[str], Browser]) -> None:
    query = "view=line&provider=vast&circuit_kind=chain&circuit_size=4096&circuit_curve=bls12381"
    operator = signed_in("operator")
    line = operator.get(f"/runs/new/sum?{query}&offer=9400000&offer=9400037&offer=9400074").text
    assert "Deploy 3</b>: at most" in line
    assert "reserve" in line
    assert "Choose offers" in operator.get(f"/runs/new/sum?{query}").text


def test_what_was_learned_shows_at_once(context: Context) -> None:
    first = ranking(context)
    assert ranking(context) is first
    best = next(row.offer for row in first.rows if not row.skipped)
    with transaction(context) as session:
        reputation.mark(session, context.now_ms(), "vast", best.machine_id, "broken", "it burnt", "operator")
    now = {row.offer.offer_id: row.skipped for row in ranking(context).rows}
    assert "it burnt" in now[best.offer_id]


def test_a_new_scan_is_ranked_beside_the_pages(context: Context) -> None:
    first = ranking(context)
    with writing(context.sessions) as session:
        session.execute(update(Offer).where(Offer.provider == "vast").values(seen_ms=Offer.seen_ms + 30_000))
    assert ranking(context) is first
    for thread in threading.enumerate():
        if thread.name == "ranking":
            thread.join(30)
    second = ranking(context)
    assert second is not first
    assert second.scan != first.scan


def test_the_shelf_stays_small(context: Context) -> None:
    for proofs in range(1, ranked.KEPT + 4):
        ranking(context, Workload("local", circuit=LOAD.circuit, proofs=proofs))
    assert len(shelf._kept) <= ranked.KEPT
