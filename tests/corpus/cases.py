"""Reading the corpus, and judging a report by a label."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.diagnosis.engine import diagnose
from jobs.diagnosis.load import load_case
from jobs.diagnosis.report import Report

FOLDER = Path(__file__).parent / "failures"
SPLITS = tuple(name for name in ("dev", "held_out", "blind") if (FOLDER / name).is_dir())
UNSEEN = tuple(name for name in SPLITS if name != "dev")  # those that no signature was written from
RIVAL = 0.5  # a cause less than half as likely as the first is no rival of it


@dataclass(frozen=True)
class Labelled:
    split: str
    name: str
    folder: Path
    label: dict[str, Any]

    @property
    def accepted(self) -> set[str]:
        return {self.label["cause"], *self.label.get("acceptable", [])}


def labelled(split: str) -> list[Labelled]:
    return [
        Labelled(split, path.parent.name, path.parent, tomllib.loads(path.read_text()))
        for path in sorted((FOLDER / split).glob("*/label.toml"))
    ]


@dataclass(frozen=True)
class Judged:
    case: Labelled
    report: Report

    @property
    def ranked(self) -> list[str]:
        return [h.cause for h in self.report.hypotheses if not h.refuted]

    @property
    def top1(self) -> bool:
        return self.ranked[:1] != [] and self.ranked[0] in self.case.accepted

    @property
    def top3(self) -> bool:
        return bool(self.case.accepted & set(self.ranked[:3]))

    @property
    def outcome(self) -> bool:
        return self.report.outcome == self.case.label["outcome"]

    @property
    def stage(self) -> bool:
        return self.report.stage == self.case.label["stage"]

    @property
    def refutes(self) -> bool:
        """What must be refuted is, or is no rival of the first cause."""
        top = self.report.top
        rivals = [h for h in self.report.hypotheses if top and not h.refuted and h.likelihood > RIVAL * top.likelihood]
        return not set(self.case.label["refuted"]) & {h.cause for h in rivals}

    @property
    def cites(self) -> bool:
        """The decisive line is among the evidence of the first hypothesis."""
        wanted = {(d["file"], d["line"]) for d in self.case.label["decisive"]}
        top = self.report.top
        return not wanted or (top is not None and bool(wanted & {(e.file, e.line) for e in top.evidence}))


def judge(case: Labelled) -> Judged:
    return Judged(case, diagnose(load_case(case.folder)))


def table(rows: dict[str, list[Judged]]) -> str:
    """Shares by split, and how many were missed by cause; which ones only of `dev`, so that the others stay unseen."""
    out = [f"{'split':<10}{'n':>4}{'top-1':>8}{'top-3':>8}{'outcome':>9}{'stage':>7}{'cited':>7}{'refuted':>9}"]
    for split, judged in rows.items():
        share = [
            sum(getattr(j, name) for j in judged) / len(judged)
            for name in ("top1", "top3", "outcome", "stage", "cites", "refutes")
        ]
        out.append(
            f"{split:<10}{len(judged):>4}"
            + "".join(f"{100 * s:>{w}.0f} %"[: w + 2] for s, w in zip(share, (6, 6, 7, 5, 5, 7), strict=True))
        )
    for split, judged in rows.items():
        missed = Counter(j.case.label["cause"] for j in judged if not j.top1)
        if missed:
            out.append(f"missed in {split}: " + ", ".join(f"{cause} {n}" for cause, n in sorted(missed.items())))
        if split == "dev":
            out += [f"  {j.case.name}: {j.case.label['cause']}, said {j.ranked[:3]}" for j in judged if not j.top1]
    return "\n".join(out)
