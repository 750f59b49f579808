"""`make test-diagnosis`: the diagnosis against labelled failures that no signature was written from."""

from __future__ import annotations

import pytest

from jobs.diagnosis.weigh import causes
from tests.corpus.cases import SPLITS, judge, labelled, table


@pytest.mark.corpus
def test_the_right_cause_comes_first_in_failures_that_no_signature_was_written_from() -> None:
    judged = {split: [judge(case) for case in labelled(split)] for split in SPLITS}
    print("\n" + table(judged))
    held_out = judged["held_out"]
    assert len(held_out) >= 50
    assert sum(j.top1 for j in held_out) >= 0.85 * len(held_out)
    assert sum(j.top3 for j in held_out) >= 0.97 * len(held_out)
    assert all(j.outcome for j in held_out if j.case.label["outcome"] == "ok")


@pytest.mark.corpus
def test_every_line_that_is_cited_is_there_and_likelihoods_are_a_share_of_one() -> None:
    for split in SPLITS:
        for case in labelled(split):
            report = judge(case).report
            assert sum(h.likelihood for h in report.hypotheses if not h.refuted) <= 1.0 + 1e-6, case.name
            for evidence in (e for h in report.hypotheses for e in h.evidence):
                lines = (case.folder / evidence.file).read_text(errors="replace").split("\n")
                assert 1 <= evidence.line <= len(lines), (case.name, evidence)


def test_the_corpus_is_labelled_as_the_causes_are_named() -> None:
    seen: dict[str, str] = {}
    known = set(causes())
    for split in SPLITS:
        for case in labelled(split):
            assert case.name not in seen, f"{case.name} is in {seen[case.name]} too"
            seen[case.name] = split
            assert {case.label["cause"], *case.accepted, *case.label["refuted"]} <= known, case.name
            for decisive in case.label["decisive"]:
                lines = (case.folder / decisive["file"]).read_text(errors="replace").split("\n")
                assert lines[decisive["line"] - 1].strip(), case.name
    assert len(seen) >= 60
    assert {case.label["cause"] for case in labelled("held_out")} >= known - {"none"}
