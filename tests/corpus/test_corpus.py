"""`make test-diagnosis`: the diagnosis against labelled failures that no signature was written from."""

from __future__ import annotations

import pytest

from jobs.diagnosis.weigh import causes
from tests.corpus.cases import SPLITS, UNSEEN, Judged, judge, labelled, table

GOAL = (0.85, 0.97)  # shares of unseen failures with the right cause first, and among the first three
# A split that is short of the goal: where the rules stand. Raised; lowered once, when 30 harder cases of a third author
# joined (the 78 before them stood at 0.83 and 0.88).
FLOORS = {"held_out": (0.8, 0.88)}
STAGES = {"loading", "tunnels", "params", "benchmark", "serve", "sealing"}


@pytest.fixture(scope="module")
def judged() -> dict[str, list[Judged]]:
    return {split: [judge(case) for case in labelled(split)] for split in SPLITS}


@pytest.mark.corpus
@pytest.mark.timeout(600)  # hundreds of whole logs
def test_the_right_cause_comes_first_in_failures_that_no_signature_was_written_from(
    judged: dict[str, list[Judged]],
) -> None:
    print("\n" + table(judged))
    for split in UNSEEN:
        shares = [sum(getattr(j, name) for j in judged[split]) / len(judged[split]) for name in ("top1", "top3")]
        if any(share < goal for share, goal in zip(shares, GOAL, strict=True)):
            print(f"SHORT OF THE GOAL of {GOAL[0]:.0%} and {GOAL[1]:.0%}: {split}, {shares[0]:.0%} and {shares[1]:.0%}")
        floors = FLOORS.get(split, GOAL)
        assert all(share >= floor for share, floor in zip(shares, floors, strict=True)), (split, shares)


@pytest.mark.corpus
@pytest.mark.timeout(600)  # hundreds of whole logs
def test_every_line_that_is_cited_is_there_and_likelihoods_are_a_share_of_one(judged: dict[str, list[Judged]]) -> None:
    for j in (j for split in SPLITS for j in judged[split]):
        assert sum(h.likelihood for h in j.report.hypotheses if not h.refuted) <= 1.0 + 1e-6, j.case.name
        for evidence in (e for h in j.report.hypotheses for e in h.evidence):
            lines = (j.case.folder / evidence.file).read_text(errors="replace").split("\n")
            assert 1 <= evidence.line <= len(lines), (j.case.name, evidence)


def test_the_corpus_is_labelled_as_the_causes_are_named() -> None:
    seen: dict[str, str] = {}
    known = set(causes())
    for split in SPLITS:
        for case in labelled(split):
            assert case.name not in seen, f"{case.name} is in {seen[case.name]} too"
            seen[case.name] = split
            assert {case.label["cause"], *case.accepted, *case.label["refuted"]} <= known, case.name
            assert not case.accepted & set(case.label["refuted"]), case.name
            assert case.label["stage"] in STAGES, case.name
            assert (case.label["outcome"] == "ok") == (case.label["cause"] == "none"), case.name
            assert case.label["source"], case.name
            for decisive in case.label["decisive"]:
                lines = (case.folder / decisive["file"]).read_text(errors="replace").split("\n")
                assert lines[decisive["line"] - 1].strip(), case.name
    for split in SPLITS:
        folders = {path.name for path in (labelled(split)[0].folder.parent).iterdir()}
        assert folders == {case.name for case in labelled(split)}, f"folders of {split} without a label"
    assert {case.label["cause"] for case in labelled("held_out")} >= known


def test_seen_and_unseen_failures_share_no_decisive_line() -> None:
    """Or what was learnt from the one would be asked of the other word for word."""
    lines = {
        split: {
            (case.folder / d["file"]).read_text(errors="replace").split("\n")[d["line"] - 1].strip()
            for case in labelled(split)
            for d in case.label["decisive"]
        }
        for split in SPLITS
    }
    assert not any(lines["dev"] & lines[split] for split in UNSEEN)
