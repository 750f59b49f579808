"""Each signature carries its own tests."""

from __future__ import annotations

import tomllib

import pytest

from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.concepts import FOLDER, load_concepts, neutral, words_of
from jobs.diagnosis.scan import scan
from jobs.diagnosis.signatures import Signature, load_signatures
from jobs.diagnosis.weigh import causes

SIGNATURES, CONCEPTS = load_signatures(), load_concepts()


def test_ids_are_unique_and_causes_known() -> None:
    every = [*SIGNATURES, *CONCEPTS]
    assert len({s.id for s in every}) == len(every)
    assert {s.cause for s in every} <= set(causes())
    assert all(0 < s.weight < 1 and s.examples for s in every)
    assert {s.cause for s in CONCEPTS} == set(causes()) - {"none"}


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.id)
def test_its_examples_match_and_its_counter_examples_do_not(signature: Signature) -> None:
    for example in signature.examples:
        shouted = Case({"daemon.log": ["nothing here", f"\x1b[31m{example.upper()}\x1b[0m"]})
        assert signature.matches(example), example
        # As a whole log: what the filter of literals lets through is what the expressions match, whatever the case.
        assert signature.id in {f.signature.id for f in scan(Case({"daemon.log": ["nothing here", example]}))}
        assert signature.id in {f.signature.id for f in scan(shouted)} or "\\b" in signature.found.pattern
    for counter in signature.counter:
        assert not signature.matches(plain(counter)), counter


@pytest.mark.parametrize("concept", CONCEPTS, ids=lambda s: s.id)
def test_a_concept_knows_its_examples_by_their_words(concept: Signature) -> None:
    for example in concept.examples:
        assert concept.id in {f.signature.id for f in scan(Case({"daemon.log": ["nothing here", example]}))}, example
    for counter in concept.counter:
        assert concept.id not in {f.signature.id for f in scan(Case({"daemon.log": [counter]}))}, counter


def test_lines_that_deny_or_tell_of_somebody_else_are_no_concepts() -> None:
    table = tomllib.loads((FOLDER / "lexicon.toml").read_text(encoding="utf-8"))["neutral"]
    assert [e for e in table["examples"] if not neutral().search(words_of(e))] == []
    assert [e for e in table["counter"] if neutral().search(words_of(e))] == []


def test_identifiers_are_taken_apart_and_lines_stay_lines() -> None:
    assert words_of("hipErrorOutOfMemory\nCL_OUT_OF_RESOURCES") == "hip Error Out Of Memory\nCL OUT OF RESOURCES"


def test_causes_explain_causes_and_every_one_has_a_next_step() -> None:
    for cause, about in causes().items():
        assert about["next"].endswith((".", ")")), cause
        assert set(about["explains"]) <= set(causes()) - {cause}, cause


def test_a_million_lines_are_read_and_the_line_is_found() -> None:
    lines = [f"2026-03-12 INFO partition {i % 16} done in {i % 97} ms" for i in range(300_000)]
    lines[123_456] = "CUDA error: no kernel image is available for execution on the device"
    (finding,) = (f for f in scan(Case({"daemon.log": lines})) if not f.concept)
    assert [e.line for e in finding.evidence] == [123_457]
