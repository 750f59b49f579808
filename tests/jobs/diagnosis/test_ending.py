"""How a run ended: good words, denied ones, and who said them."""

from __future__ import annotations

import pytest

from jobs.diagnosis.case import Case
from jobs.diagnosis.ending import ended_well
from jobs.diagnosis.story import read_story


def well(stage: str = "benchmark", /, facts: dict[str, object] | None = None, **streams: list[str]) -> bool:
    case = Case({f"{name}.log": lines for name, lines in streams.items()}, facts or {})
    return ended_well(case, read_story(case).ending, stage)[0]


@pytest.mark.parametrize(
    "line",
    [
        "all proofs check out; exiting normally",
        "verified=12 failed=0 total=12",
        "Summary: 8 proved, 8 verified, 0 failures",
        "8 requested, 8 returned, 8 verify",
        '{"event":"finished","proofs":64,"failed":0,"ok":true}',
        "finished cleanly: 30 of 30 receipts valid",
        "[OK] 16 tests, verification PASS, process exit 0",
    ],
)
def test_good_ends(line: str) -> None:
    assert well(bench=["starting", line])


@pytest.mark.parametrize(
    "line",
    [
        "verified 11 of 12",
        "self test passed, all 4 checks ok",
        "params verified, all ok",
        "8 requested, 5 returned",
        "not all proofs verified",
        "drain deadline passed",
    ],
)
def test_what_is_no_good_end(line: str) -> None:
    assert not well(bench=["starting", line])


def test_a_bad_word_after_the_good_one_spoils_it_and_a_daemons_before_does_not() -> None:
    assert not well(bench=["12/12 proofs verified", "thread 'main' panicked at x"])
    assert well(bench=["12/12 proofs verified"], daemon=["thread panicked, shard 3 again"])
    assert not well(bench=["12/12 proofs verified"], setup=["upload failed, giving up"])


def test_what_the_facts_tell() -> None:
    assert well(facts={"telemetry": {"proofs_verified": 8, "proofs_requested": 8}})
    assert not well(facts={"telemetry": {"proofs_verified": 7, "proofs_requested": 8}})
    assert well(facts={"run": {"exit_codes": {"bench": 0}}, "telemetry": {"proofs_done": 3}})
    assert not well(facts={"run": {"exit_codes": {"bench": 1}}, "telemetry": {"proofs_done": 3}})
