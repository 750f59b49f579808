"""What names of cards tell, beside what a program says it holds."""

from __future__ import annotations

import pytest

from jobs.diagnosis.cards import capability, card_without_code
from jobs.diagnosis.case import Case
from jobs.diagnosis.engine import diagnose
from jobs.diagnosis.report import Evidence


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("NVIDIA RTX PRO 4000 Blackwell", (12, 0)),
        ("NVIDIA B200", (10, 0)),
        ("NVIDIA H200", (9, 0)),
        ("NVIDIA L40S", (8, 9)),
        ("NVIDIA RTX 4000 Ada Generation", (8, 9)),
        ("NVIDIA RTX A6000", (8, 6)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("Tesla T4", (7, 5)),
        ("NVIDIA GeForce GTX 1080 Ti", (6, 1)),
        ("AMD Radeon RX 7900", None),
    ],
)
def test_cards_and_their_compute_capability(card: str, expected: tuple[int, int] | None) -> None:
    assert capability(card) == expected


def clues(card: str, *lines: str) -> int:
    return len(list(card_without_code(card, [Evidence("daemon.log", n, text) for n, text in enumerate(lines, 1)])))


def test_code_runs_on_newer_cards_of_its_generation_only() -> None:
    assert clues("RTX 5090", "modules: sm_80 sm_86 sm_89") == 1
    assert clues("RTX 4090", "modules: sm_80 sm_86") == 0
    assert clues("RTX 3090", "modules: sm_89") == 1
    assert clues("", "found NVIDIA GeForce RTX 5090", "built for sm_90a") == 1


def test_ptx_or_no_list_of_code_says_nothing() -> None:
    assert clues("RTX 5090", "kernels: sm_80 sm_89, PTX compute_89") == 0
    assert clues("RTX 5090", "nvidia-smi lists one card of sm_89 next door") == 0
    assert clues("some card", "kernels: sm_80") == 0


def test_the_list_alone_ranks_the_cause_first() -> None:
    lines = ["found NVIDIA GeForce RTX 5090", "modules: sm_80 sm_86 sm_89", "proof failed: internal error"]
    top = diagnose(Case({"daemon.log": lines}, {"run": {"outcome": "failed"}})).top
    assert top is not None
    assert top.cause == "no_kernel_image_for_gpu"
    assert [(e.file, e.line) for e in top.evidence] == [("daemon.log", 2), ("daemon.log", 1)]


def test_proofs_that_are_made_on_the_processor() -> None:
    def top(line: str) -> str:
        report = diagnose(Case({"bench.log": [line] * 6 + ["51 proofs/h, minimum 180"]}, {"run": {"outcome": "slow"}}))
        return report.top.cause if report.top else ""

    assert top("proof: synthesis 61 s, gpu 4 s, verify 0.1 s") == "slow_cpu"
    assert top("proof: synthesis 900 ms, gpu 61 s, verify 0.1 s") != "slow_cpu"
