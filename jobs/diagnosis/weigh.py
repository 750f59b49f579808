"""From clues to ranked hypotheses.

The belief in a cause is 1 - product(1 - weight) over its independent clues. A cause that another, well-supported one
explains keeps a fraction: its lines are consequences. What is left is scaled so that all likelihoods sum to at most 1.
Nothing here knows the date, or what was fixed lately.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jobs.diagnosis.clues import Clue
from jobs.diagnosis.report import Evidence, Hypothesis
from jobs.diagnosis.stages import ORDER

EXPLAINED, RECOVERED, REFUTED = 0.2, 0.06, 0.15
STRONG = 0.45
MAX_EVIDENCE = 8
MAX_HYPOTHESES = 10
FEW, COMMON = 3, 0.03
"""With fewer hypotheses than this, what is common in the failed stage is named too, at most this likely."""
EXPLAINED_STANDS = 0.4
"""A cause at least this well supported by itself stays among the hypotheses though another one explains it."""


@cache
def causes() -> dict[str, dict[str, Any]]:
    """`causes.toml`."""
    return tomllib.loads((Path(__file__).parent / "causes.toml").read_text(encoding="utf-8"))


@dataclass
class _Belief:
    score: float = 0.0
    clues: list[Clue] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    alone: float = 0.0  # the score before another cause explained it


def weigh(clues: Iterable[Clue], stage: str, used: frozenset[str]) -> list[Hypothesis]:
    """Hypotheses of a run that failed in `stage`, the likeliest first, refuted ones last."""
    beliefs: dict[str, _Belief] = defaultdict(_Belief)
    for clue in clues:
        belief = beliefs[clue.cause]
        belief.clues.append(clue)
        if clue.weight < 0:
            belief.against.append(clue.text)
    for cause, belief in beliefs.items():
        belief.score = _score(belief.clues)
        for reason in _impossible(cause, stage, used, belief):
            belief.against.append(reason)
            belief.score *= REFUTED
        belief.alone = belief.score
    _explain(beliefs)
    standing, refuted = _ranked(beliefs)
    named = {h.cause for h in refuted} | {h.cause for h in standing}
    common = [cause for cause in causes() if stage in causes()[cause].get("common", []) and cause not in named]
    # In the order of `common`, which is that of how often a stage fails by it.
    common.sort(key=lambda cause: causes()[cause]["common"][stage], reverse=True)
    supported = [h for h in standing if h.likelihood > COMMON]
    room = max(0.0, 0.998 - sum(h.likelihood for h in standing))  # less what rounding adds
    for cause in common[: max(0, FEW - len(supported))]:
        share = round(
            min([COMMON, room / FEW, *(h.likelihood for h in supported)]) * causes()[cause]["common"][stage], 3
        )
        why = f"nothing speaks for it but that a run often fails by it in {stage}"
        standing.append(Hypothesis(cause, causes()[cause]["title"], share, [], False, why))
    return [*sorted(standing, key=lambda h: -h.likelihood), *refuted]


def _score(clues: list[Clue]) -> float:
    doubt, denial = 1.0, 1.0
    seen: dict[str, float] = {}
    for clue in clues:
        if clue.weight < 0:
            denial *= 1 + clue.weight
        else:
            seen[clue.text] = max(seen.get(clue.text, 0.0), clue.weight)
    for weight in seen.values():
        doubt *= 1 - min(weight, 0.97)
    return (1 - doubt) * denial


def _impossible(cause: str, stage: str, used: frozenset[str], belief: _Belief) -> list[str]:
    """Why the failed stage can't have failed by this; [] if it can."""
    about = causes().get(cause, {})
    needs, until = about.get("uses"), about.get("until")
    reasons = []
    if needs and needs not in used and not _own_lines(belief):
        reasons.append(
            f"the stage that failed ({stage}) does not use a {needs}; it uses {', '.join(sorted(used)) or 'nothing'}"
        )
    if until and ORDER.index(stage) > ORDER.index(until):
        reasons.append(f"the run had passed {until} and failed in {stage}")
    return reasons


def _own_lines(belief: _Belief) -> bool:
    """The failed stage's own programs tell of it."""
    return any(
        e.file.startswith(("bench", "daemon", "service"))
        for clue in belief.clues
        if clue.weight > 0
        for e in clue.evidence
    )


def _explain(beliefs: dict[str, _Belief]) -> None:
    """The strongest first: what it explains keeps a fraction, and explains nothing itself."""
    consequence: set[str] = set()
    for cause, belief in sorted(beliefs.items(), key=lambda item: -_root(item[0], item[1].score)):
        if belief.score < STRONG or cause in consequence:
            continue
        for other in causes().get(cause, {}).get("explains", []):
            if other in beliefs and other not in consequence and beliefs[other].score <= belief.score * 1.6:
                consequence.add(other)
                beliefs[other].score *= EXPLAINED
                beliefs[other].notes.append(f"a consequence of: {causes()[cause]['title']}")


def _root(cause: str, score: float) -> float:
    """What explains much comes before what explains little, among the well supported."""
    return score + 0.02 * len(causes().get(cause, {}).get("explains", []))


def _ranked(beliefs: dict[str, _Belief]) -> tuple[list[Hypothesis], list[Hypothesis]]:
    """(standing, refuted), the likeliest first."""
    total = sum(b.score for b in beliefs.values())
    scale = 1.0 if total <= 0.97 else 0.97 / total
    standing: list[Hypothesis] = []
    refuted: list[Hypothesis] = []
    for cause, belief in beliefs.items():
        stands = not belief.against and belief.alone >= EXPLAINED_STANDS
        out = bool(belief.against or belief.notes) and belief.score < 0.2 and not stands
        if not out and belief.score < 0.02:
            continue
        (refuted if out else standing).append(_hypothesis(cause, belief, belief.score * scale, refuted=out))
    standing.sort(key=lambda h: -h.likelihood)
    refuted.sort(key=lambda h: -h.likelihood)
    return standing[:MAX_HYPOTHESES], refuted


def _hypothesis(cause: str, belief: _Belief, likelihood: float, *, refuted: bool) -> Hypothesis:
    about = causes().get(cause, {})
    told = sorted(belief.clues, key=lambda c: -c.weight)
    for_it = [c for c in told if c.weight > 0]
    evidence = _evidence(for_it if for_it and not refuted else told)
    reasons = (
        belief.notes + belief.against
        if refuted
        else [c.text for c in for_it[:3]] + belief.notes + [f"against it: {a}" for a in belief.against]
    )
    test = next((c.test for c in told if c.test), "")
    return Hypothesis(
        cause,
        about.get("title", cause),
        round(likelihood, 3),
        evidence,
        refuted,
        "; ".join(dict.fromkeys(reasons)),
        test,
    )


def _evidence(clues: list[Clue]) -> list[Evidence]:
    """The first lines of each clue before the second ones: every clue shows something."""
    rows = [clue.evidence for clue in clues]
    out: list[Evidence] = []
    for i in range(MAX_EVIDENCE):
        for row in rows:
            if i < len(row) and row[i] not in out:
                out.append(row[i])
    return out[:MAX_EVIDENCE]


def recovered(clue: Clue, how: Evidence) -> Clue:
    """The clue of a trouble that passed: it hardly counts, and the line that says so stands beside it."""
    return Clue(clue.cause, -(1 - RECOVERED), f"it passed: {how.text[:120]}", [*clue.evidence[:2], how], clue.test)
