"""A case in, a report out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.diagnosis.across import across
from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.clues import Clue
from jobs.diagnosis.concepts import neutral, words_of
from jobs.diagnosis.ending import Ending, ended_well
from jobs.diagnosis.facts import ends
from jobs.diagnosis.figures import figures, image_words
from jobs.diagnosis.pace import pace
from jobs.diagnosis.report import Evidence, Hypothesis, Moment, Report
from jobs.diagnosis.scan import CALM, Finding, scan
from jobs.diagnosis.signatures import digest
from jobs.diagnosis.stages import failed_stage, uses
from jobs.diagnosis.story import Story, read_story, together
from jobs.diagnosis.telemetry import telemetry
from jobs.diagnosis.weigh import causes, recovered, weigh

DECISIVE = 0.15
"""Under this likelihood no cause is worth acting on."""
KNOWN_OTHERWISE = 0.3
"""What a concept's weight is worth on lines whose wording a signature of another cause knows."""
SURE, STARTS, CAME_LATER = 0.9, 0.45, 0.8
NEUTRAL = 0.75
"""What a signature's weight is worth on lines that deny it, or that tell of somebody else."""
VAGUE = ("own_bug", "daemon_crash", "client_aborts_batch", "client_timeout")
"""Causes whose lines say that something went wrong rather than what."""
EXPECTED_FILES = ("setup", "daemon", "bench")
# Said of a line that its program goes on: it may be the cause, but by itself it is not the end.
_MILD = re.compile(
    r"\b(?:retry(?:ing)?|attempt [12] ?(?:/|of)|will try again|trying again|warn(?:ing)?|ignored|non-fatal|harmless)\b",
    re.IGNORECASE,
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,8}|\b\d\d:\d\d:\d\d(?:[.,]\d+)?|\[ *\d+\.\d{3,6}\]")
_TUNNEL_TALK = re.compile(r"tunnel|port[- ]forward|\b1234\b|\bcurio\b|\blotus\b", re.IGNORECASE)


def diagnose(case: Case) -> Report:
    """The report on one run. Pure; the same case gives the same report."""
    findings, story = scan(case), read_story(case)
    stage = failed_stage(case, _home(findings))
    well, why, lines = ended_well(case, story.ending, stage, _unsettled(findings, story.ending))
    clues = [
        *_from_lines(findings),
        *figures(case, stage),
        *telemetry(case),
        *together(case, story, findings),
        *pace(case, ended=bool(ends(case)) or story.ending.ill is not None or story.ending.well is not None),
        *across(case),
        *_tempting(case, stage),
    ]
    hypotheses = weigh(clues, stage, uses(case, stage))
    if well:
        hypotheses = _nothing_failed(hypotheses, why, lines)
    top = next((h for h in hypotheses if not h.refuted), None)
    return Report(
        stage=stage,
        outcome="ok" if well else "failed",
        symptom=why if why else _symptom(case, story, stage),
        hypotheses=hypotheses,
        next_step=_next_step(top, case),
        image=image_words(case),
        timeline=_timeline(case, findings, story),
        missing=_missing(case),
        rules=digest(),
    )


def _home(findings: list[Finding]) -> str:
    """The stage in which the gravest finding's cause is at home."""
    gravest = max(findings, key=lambda f: f.signature.weight, default=None)
    return str(causes()[gravest.signature.cause].get("stage", "loading")) if gravest else "loading"


def _missing(case: Case) -> list[str]:
    return [f"{name}.log" for name in EXPECTED_FILES if not any(file.startswith(name) for file in case.streams)]


def _unsettled(findings: list[Finding], ending: Ending) -> bool:
    """A grave line, of a trouble that did not pass, stands after the last good word in its file."""
    return ending.well is not None and any(
        finding.recovered is None
        and finding.file == ending.well.file
        and finding.signature.weight >= 0.7
        and finding.evidence[-1].line > ending.well.line
        and not _MILD.search(finding.evidence[-1].text)
        for finding in findings
    )


def _from_lines(findings: list[Finding]) -> Iterator[Clue]:
    known = {
        (e.file, e.line): f.signature.cause
        for f in findings
        if not f.concept and f.signature.cause not in VAGUE
        for e in f.evidence
    }
    sure = max((f.signature.weight for f in findings if not f.concept and f.recovered is None), default=0.0)
    began = _began(findings)
    for finding in findings:
        signature, evidence = finding.signature, finding.evidence
        # The gravest of its lines: one that ends a program beats many that are tried again.
        grave = _grave(finding)
        weight = signature.weight if grave else signature.weight * 0.55
        if finding.concept and all(known.get((e.file, e.line), signature.cause) != signature.cause for e in evidence):
            weight *= KNOWN_OTHERWISE
        elif finding.concept and sure >= SURE:
            weight /= 2  # words alone say little beside a wording that names a cause for sure
        if not finding.concept and all(neutral().search(words_of(e.text)) for e in evidence):
            weight *= NEUTRAL
        if grave and grave[0].line > began.get(finding.file, grave[0].line):
            weight *= CAME_LATER
        ordered = [*grave, *(e for e in evidence if e not in grave)]
        times = f" ({finding.count} times)" if finding.count > 1 else ""
        clue = Clue(
            signature.cause, weight, f"{finding.file} says: {ordered[0].text[:160]}{times}", ordered, signature.test
        )
        yield clue
        if finding.recovered is not None:
            yield recovered(clue, finding.recovered)


def _grave(finding: Finding) -> list[Evidence]:
    """Its lines that are not tried again, nor what a program prints in passing."""
    return [e for e in finding.evidence if not (_MILD.search(e.text) or (finding.concept and CALM.search(e.text)))]


def _began(findings: list[Finding]) -> dict[str, int]:
    """The first grave line of each file: what comes later is often a consequence."""
    began: dict[str, int] = {}
    for finding in findings:
        if finding.recovered is None and finding.signature.cause not in VAGUE and finding.signature.weight >= STARTS:
            for evidence in _grave(finding)[:1]:
                began[finding.file] = min(evidence.line, began.get(finding.file, evidence.line))
    return began


def _tempting(case: Case, stage: str) -> Iterator[Clue]:
    """What people suspect from what happened elsewhere or before: named, so that it can be refuted."""
    talk = case.told("fleet", "notes", "run")
    sources = {**case.sources, **{name: lines for name, lines in case.streams.items() if name.startswith("setup")}}
    lines = [
        Evidence(name, number, plain(line).strip()[:300])
        for name, all_lines in sources.items()
        for number, line in enumerate(all_lines[:5000], 1)
        if _TUNNEL_TALK.search(line)
    ]
    if _TUNNEL_TALK.search(talk) or lines:
        yield Clue(
            "tunnel_down",
            0.05,
            "a tunnel is mentioned",
            lines[:3],
            "The failed stage using the tunnel at all.",
        )
    if stage in ("benchmark", "serve") and not case.text("expected_digest"):
        yield Clue(
            "stale_image",
            0.02,
            f"which image ran is {image_words(case)}",
            [],
            "The digest that ran being the one that was deployed.",
        )


def _nothing_failed(others: list[Hypothesis], why: str, lines: list[Evidence]) -> list[Hypothesis]:
    """The run ended well: alarming lines are shown as refuted by that."""
    title = causes()["none"]["title"]
    first = Hypothesis("none", title, 0.95, lines, False, why, "A proof of this run that does not verify.")
    rest = [
        Hypothesis(h.cause, h.title, round(min(h.likelihood, 0.04) / max(1, len(others)), 3), h.evidence, True,
                   h.why if h.refuted else f"the run ended well all the same ({why}); {h.why}", h.test)
        for h in others
    ]  # fmt: skip
    return [first, *rest]


def _symptom(case: Case, story: Story, stage: str) -> str:
    if story.ending.ill is not None:
        return story.ending.ill.text
    last = [(name, lines) for name, lines in case.streams.items() if lines and "kernel" not in name]
    if last:
        name, lines = last[-1]
        return f"{name} ends in {stage} with: {plain(lines[-1]).strip()[:200]}"
    return f"it ended in {stage}; no log says how"


def _next_step(top: Hypothesis | None, case: Case) -> str:
    if top is not None and top.likelihood >= DECISIVE:
        return str(causes().get(top.cause, {}).get("next", "Look at the cited lines."))
    wanted = ", ".join(_missing(case)) or "the kernel log and the exit codes"
    return f"Nothing decisive is here. Get {wanted} of the next run like it."


def _timeline(case: Case, findings: list[Finding], story: Story) -> list[Moment]:
    """The first lines, what was found, how it ended: in the order of the files and lines, at most 40."""
    marks: dict[tuple[str, int], str] = {}
    for name, lines in case.streams.items():
        for number in (1, len(lines)):
            if lines and lines[number - 1].strip():
                marks[name, number] = plain(lines[number - 1]).strip()[:200]
    for finding in findings:
        for evidence in finding.evidence[:2]:
            marks[evidence.file, evidence.line] = evidence.text[:200]
    for last in (story.ending.ill, story.ending.well):
        if last is not None:
            marks[last.file, last.line] = last.text[:200]
    moments = [
        Moment(found[0] if (found := _TIME.search(text)) else "", text, file, line)
        for (file, line), text in marks.items()
    ]
    order = {name: i for i, name in enumerate(case.streams)}
    return sorted(
        moments, key=lambda m: (m.t[-15:] if m.t and not m.t.startswith("[") else "~", order.get(m.file, 99), m.line)
    )[:40]
