"""What the logs say together: work that came out, how it ended, whether it ended well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.clues import Clue
from jobs.diagnosis.ending import Ending
from jobs.diagnosis.facts import ends
from jobs.diagnosis.report import Evidence
from jobs.diagnosis.scan import SHOWN, Finding
from jobs.diagnosis.signatures import expression

_DONE = expression([
    r"(?:proof|partition|job|request|task|segment|snark|sector|porep|prove)[^\n]{0,80}\b(?:done|complete[d]?|finished|succeeded|success|ok|generated|ready|proved|verified|valid)\b",
    r"\b(?:completed|finished|generated|proved|returned|sent|verified)\b[^\n]{0,50}(?:proof|partition|job|request|task|segment|snark)",
])  # fmt: skip
_NOT_DONE = expression(
    [
        r"\b(?:not|never|0|zero|no|without|before|until|waiting|fail\w*|error|invalid|unable|aborted|cancel\w*|incomplete)\b"
    ]
)
_POWER_LIMIT = re.compile(
    r"\b(?:(current|enforced|requested|default|max) )?power limit\W{1,40}(\d+(?:\.\d+)?) ?W\b", re.IGNORECASE
)
_TROUBLE = re.compile(
    r"error|fail|denied|abort|unable|refused|invalid|mismatch|fatal|giv(?:e|ing) up|panic|unusable", re.IGNORECASE
)
_PROGRESS = re.compile(r"\b(\d{1,7}) ?(?:/|of) ?(\d{1,7})\b|\b(\d{1,3}(?:\.\d+)?) ?%")


@dataclass(frozen=True)
class Story:
    """`done`: lines that tell of finished work, by file. `ending`: how it ended, as the logs say."""

    done: dict[str, list[Evidence]]
    ending: Ending
    advanced: tuple[Evidence, Evidence] | None


def read_story(case: Case) -> Story:
    """One pass over the logs (not the kernel's)."""
    done: dict[str, list[Evidence]] = {}
    ending = Ending()
    advanced = None
    for name, lines in case.streams.items():
        if "kernel" in name:
            continue
        kept = _tail_and_head(lines)
        for number, raw in kept:
            line = plain(raw)
            if _DONE.search(line) and not _NOT_DONE.search(line):
                done.setdefault(name, []).append(Evidence(name, number, line.strip()[:SHOWN]))
            ending.read(Evidence(name, number, line.strip()[:SHOWN]), len(lines) - number)
        advanced = _advance(name, kept) or advanced
    return Story(done, ending, advanced)


def _tail_and_head(lines: list[str]) -> list[tuple[int, str]]:
    """All lines of an ordinary log; of a huge one, its ends: what was done and how it ended is there."""
    if len(lines) <= 60_000:
        return list(enumerate(lines, 1))
    return [*enumerate(lines[:10_000], 1), *enumerate(lines[-50_000:], len(lines) - 49_999)]


def _advance(name: str, lines: list[tuple[int, str]]) -> tuple[Evidence, Evidence] | None:
    """The last two lines of the end of a log between which a count of the same total rose."""
    seen: dict[str, tuple[float, Evidence]] = {}
    rose = None
    for number, raw in lines[-4000:]:
        for k, n, percent in _PROGRESS.findall(raw[:600]):
            key, value = (n, float(k)) if n else ("%", float(percent))
            before = seen.get(key)
            evidence = Evidence(name, number, plain(raw).strip()[:SHOWN])
            if before is not None and value > before[0]:
                rose = (before[1], evidence)
            if before is None or value >= before[0]:
                seen[key] = (value, evidence)
    return rose


def together(case: Case, story: Story, findings: list[Finding]) -> Iterator[Clue]:
    """Clues that need more than one line."""
    by_cause: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.recovered is None:
            by_cause.setdefault(finding.signature.cause, []).append(finding)
    daemon = [name for name in story.done if not re.search(r"bench|client|setup", name)]
    finished = [e for name in daemon for e in story.done[name]]
    client = [
        f for c in ("client_aborts_batch", "client_timeout") for f in by_cause.get(c, []) if "daemon" not in f.file
    ]
    died = by_cause.keys() & {
        "daemon_crash",
        "host_oom_cgroup",
        "host_oom_global",
        "cuda_oom",
        "xid_error",
        "illegal_instruction_cpu",
    }
    if finished and client and not died:
        lines = [client[0].first[0], finished[-1]]
        for cause in {f.signature.cause for f in client}:
            healthy = (
                f"the prover was healthy: it finished {len(finished)} pieces of work, also when the client was gone"
            )
            yield Clue(cause, 0.4, healthy, lines, "The prover failing without the client's help.")  # fmt: skip
    timeouts = by_cause.get("measured_timeout", [])
    if timeouts and story.advanced is not None:
        yield Clue("measured_timeout", 0.5, "the work was still advancing when the time was over", list(story.advanced))
        yield Clue("daemon_hang", -0.5, "the work was still advancing", list(story.advanced))
    yield from _power_limit(case)
    yield from _silence(case, story)


def _power_limit(case: Case) -> Iterator[Clue]:
    """What `nvidia-smi -q` prints on two lines: the limit that holds, and the card's own."""
    for name, lines in case.streams.items():
        found = {}
        for number, line in enumerate(lines[:20_000], 1):
            if told := _POWER_LIMIT.search(line):
                found[(told[1] or "current").lower()] = (float(told[2]), Evidence(name, number, plain(line).strip()[:SHOWN]))
        now, own = found.get("current") or found.get("enforced") or found.get("requested"), found.get("default")
        if now and own and now[0] < 0.93 * own[0]:
            words = f"power limit {now[0]:g} W, default {own[0]:g} W"
            yield Clue("power_cap", 0.75, words, [now[1], own[1]], "power.limit equal to power.default_limit.")
            return


def _silence(case: Case, story: Story) -> Iterator[Clue]:
    """Logs that stop in the middle, with nobody telling how the processes ended."""
    if ends(case) or story.ending.ill is not None or story.ending.well is not None or not case.streams:
        return
    name, lines = max(case.streams.items(), key=lambda item: len(item[1]))
    if lines and not _TROUBLE.search(plain(lines[-1])):
        yield Clue(
            "host_vanished",
            0.15,
            "the logs stop without an end, and no exit code was recorded",
            [Evidence(name, len(lines), plain(lines[-1]).strip()[:SHOWN])],
        )
