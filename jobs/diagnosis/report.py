"""What a diagnosis says. `Report.to_json` is what `provefleet diagnose --json` prints and what is stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Evidence:
    """Line `line` (1-based) of `file`; `text` is the line as it is shown, shortened."""

    file: str
    line: int
    text: str = ""


@dataclass(frozen=True)
class Hypothesis:
    """One possible cause. `test`: what would refute it. A refuted one says in `why` what speaks against it."""

    cause: str
    title: str
    likelihood: float
    evidence: list[Evidence] = field(default_factory=list)
    refuted: bool = False
    why: str = ""
    test: str = ""

    @property
    def word(self) -> str:
        """The likelihood in a word."""
        words = ((0.8, "very likely"), (0.5, "likely"), (0.2, "possible"), (0.0, "unlikely"))
        return next(word for least, word in words if self.likelihood >= least)


@dataclass(frozen=True)
class Moment:
    """A line that marks a step of the story; `t` is the time as the log writes it."""

    t: str
    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Report:
    """The likeliest cause first, refuted ones last. `rules` names the version of the rules that said so."""

    stage: str
    outcome: str
    symptom: str
    hypotheses: list[Hypothesis]
    next_step: str
    image: str = ""
    timeline: list[Moment] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    rules: str = ""

    @property
    def top(self) -> Hypothesis | None:
        """The likeliest cause; None when everything is refuted or nothing was found."""
        return next((h for h in self.hypotheses if not h.refuted), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        """From what `to_json` gave."""
        hypotheses = [
            Hypothesis(**{**h, "evidence": [Evidence(**e) for e in h["evidence"]]}) for h in data["hypotheses"]
        ]
        timeline = [Moment(**m) for m in data["timeline"]]
        return cls(**{**data, "hypotheses": hypotheses, "timeline": timeline})
