"""What a request may cost, and what is refused before anything is asked for: caps, bids and bytes."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.context import Context
from jobs.domain.market_models import Offer
from jobs.domain.models import Run
from jobs.domain.placing import place
from jobs.domain.quotes import Quote, quote
from jobs.domain.runs import InvalidRequest, parse_request
from jobs.domain.work import take
from jobs.market import budget
from jobs.market.prices import ALLOWED_DOWN_BYTES, ALLOWED_UP_BYTES, GB
from tests.jobs.rows import new_offer
from tests.jobs.scene import CIRCUIT, Scene

BYTES = {"dollars_per_gb_down": 0.05, "dollars_per_gb_up": 0.1}
ALLOWED = ALLOWED_DOWN_BYTES / GB * 0.05 + ALLOWED_UP_BYTES / GB * 0.1


def offer(context: Context, offer_id: str, dollars_per_hour: float, **facts: Any) -> None:
    new_offer(context, offer_id, dollars_per_hour, machine_id=f"m-{offer_id}")
    with context.sessions() as session:
        session.get_one(Offer, ("local", offer_id)).facts = facts
        session.commit()


def quoted(context: Context, **data: Any) -> Quote:
    return quote(context, parse_request({"circuit": CIRCUIT, "proofs": 2, **data}))


def refused(scene: Scene, **data: Any) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as error:
        scene.request(**data)
    return error.value.fields


def test_a_quote_is_what_the_rental_will_hold(scene: Scene) -> None:
    context = scene.context
    offer(context, "o1", 0.36, **BYTES)
    asked = quoted(context, offer_id="o1")
    run_id = scene.request(offer_id="o1")
    held = take(context, Run, run_id, ("queued",))
    assert held is not None
    assert place(context, held[0]).reason == ""
    instance = scene.instance_of(run_id)
    # But for a kilobyte of witnesses that were estimated, and aren't made in this test.
    assert asked.reserve_dollars == pytest.approx(instance.reserved_dollars, abs=1e-4)
    assert asked.reserve_dollars == pytest.approx(0.36 * (3600 + 1080) / 3600 + ALLOWED, abs=1e-4)


def test_without_an_offer_the_dearest_bytes_count(scene: Scene) -> None:
    context = scene.context
    offer(context, "o1", 0.36, **BYTES)
    offer(context, "o2", 0.72, dollars_per_gb_down=9.0)  # over the limit: never taken
    offer(context, "o3", 0.3)
    most = quoted(context, max_dollars_per_hour=0.4).reserve_dollars
    assert most == pytest.approx(0.4 * (3600 + 1080) / 3600 + ALLOWED, abs=1e-4)


def test_the_cap_on_a_run_is_the_most_of_any_quote(scene: Scene) -> None:
    budget.set_cap(scene.context, "run", 0.3, "root")
    offer(scene.context, "o1", 0.36)
    assert quoted(scene.context).reserve_dollars == 0.3
    assert quoted(scene.context, offer_id="o1").reserve_dollars == 0.3
    assert quoted(scene.context, offer_id="o1", max_dollars=0.2).reserve_dollars == 0.2


@pytest.mark.parametrize(
    ("scope", "dollars", "word"),
    [
        ("run", 0.1, "the cap on a run is $0.1000, and ending one may cost $0.1080"),
        ("day", 0.2, "$0.4680 would be held, and the day's cap is $0.2000"),
        ("month", 0.2, "the month's cap"),
        ("user:operator", 0.2, "operator's cap for a month"),
    ],
)
def test_what_no_cap_will_ever_allow_is_refused_at_once(scene: Scene, scope: str, dollars: float, word: str) -> None:
    offer(scene.context, "o1", 0.36)
    budget.set_cap(scene.context, scope, dollars, "root")
    assert word in refused(scene, offer_id="o1")["max_dollars"]


def test_a_cap_of_somebody_else_is_no_matter(scene: Scene) -> None:
    offer(scene.context, "o1", 0.36)
    budget.set_cap(scene.context, "user:alice", 0.1, "root")
    assert scene.request(offer_id="o1")


def test_bids_are_for_interruptible_machines(scene: Scene) -> None:
    offer(scene.context, "o1", 0.36)
    offer(scene.context, "o2", 0.36, min_bid_dollars_per_hour=0.2)
    assert "only an interruptible machine" in refused(scene, bid_dollars_per_hour=0.1)["bid_dollars_per_hour"]
    assert "can't be had interruptible" in refused(scene, offer_id="o1", interruptible=True)["interruptible"]
    low = {"interruptible": True, "bid_dollars_per_hour": 0.1}
    assert "takes bids from $0.2/h" in refused(scene, offer_id="o2", **low)["bid_dollars_per_hour"]
    assert quoted(scene.context, offer_id="o2", interruptible=True).dollars_per_hour == pytest.approx(0.22)
    assert quoted(scene.context, offer_id="o1", interruptible=True) == Quote(None, None, "can't be had interruptible")
