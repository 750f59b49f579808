"""What the logs say together: work that came out, how it ended, whether it ended well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.clues import Clue
from jobs.diagnosis.ending import Ending
from jobs.diagnosis.facts import ends
from jobs.diagnosis.pace import advancing, clock_s
from jobs.diagnosis.report import Evidence
from jobs.diagnosis.scan import SHOWN, Finding
from jobs.diagnosis.signatures import expression

_DONE = expression(
    [
        r"(?:proof|partition|job|request|task|segment|snark|sector|porep|prove|statement|"
        r"circuit|shard|block|batch|item)[^\n]{0,80}\b(?:done|complete[d]?|finished|succeeded|"
        r"success|ok|generated|ready|proved|verified|valid)\b",
        r"\b(?:completed|finished|generated|proved|returned|sent|"
        r"verified)\b[^\n]{0,50}(?:proof|partition|job|request|task|segment|snark)",
    ]
)
_NOT_DONE = expression(
    [
        r"\b(?:not|never|0|zero|no|without|before|until|waiting|fail\w*|error|invalid|unable|"
        r"aborted|cancel\w*|incomplete)\b"
    ]
)
_DEATHS = {
    "daemon_crash",
    "host_oom_cgroup",
    "host_oom_global",
    "cuda_oom",
    "xid_error",
    "illegal_instruction_cpu",
    "no_kernel_image_for_gpu",
    "ecc_error",
    "wrong_witness",
    "daemon_hang",
}
# What a client is told that asks too much or at a bad moment: to be tried again, no reason to end a batch.
_REFUSAL = re.compile(
    r"RESOURCE_?EXHAUSTED|UNAVAILABLE|\b(?:429|503|502)\b|too many requests|try again|"
    r"busy|queue (?:is )?full|slots? taken|no (?:free )?slots?|overloaded|back ?pressure|"
    r"connection reset|broken pipe|transport error|ECONNRESET|h2 (?:stream|"
    r"protocol) error|GOAWAY|stream removed",
    re.IGNORECASE,
)
_LATE = re.compile(r"time[d]? ?-?out|timeout|deadline|time limit|too (?:long|slow)|gave up waiting", re.IGNORECASE)
_RETRIED = re.compile(r"retry|attempt \d|retrying", re.IGNORECASE)
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
        advanced = _advance(name, kept) or advancing(name, lines) or advanced
    return Story(done, ending, advanced)


def _tail_and_head(lines: list[str]) -> list[tuple[int, str]]:
    """All lines of an ordinary log; of a huge one, its ends: what was done and how it ended is there."""
    if len(lines) <= 30_000:
        return list(enumerate(lines, 1))
    return [*enumerate(lines[:5_000], 1), *enumerate(lines[-25_000:], len(lines) - 24_999)]


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
    died = {f.signature.cause for f in findings if not f.concept and f.recovered is None} & _DEATHS
    if finished and not died:
        healthy = f"the prover was healthy: it finished {len(finished)} pieces of work, also when the client was gone"
        test = "The prover failing without the client's help."
        for cause in {f.signature.cause for f in client}:
            yield Clue(cause, 0.4, healthy, [client[0].first[0], finished[-1]], test)
        gave_up = _gave_up(case) or _left_early(case, finished)
        if gave_up is not None and "client_timeout" not in {f.signature.cause for f in client if not f.concept}:
            yield Clue("client_aborts_batch", 0.4, f"{healthy}; it was one refusal", [gave_up, finished[-1]], test)
            yield Clue("own_bug", -0.5, "the prover was healthy, and its client stopped at a refusal", [gave_up])
    stopped = any(code in (124, 143) or "TERM" in signal.upper() for _, code, signal in ends(case))
    if (stopped or by_cause.get("measured_timeout")) and story.advanced is not None:
        yield Clue("measured_timeout", 0.5, "the work was still advancing when the time was over", list(story.advanced))
        yield Clue("daemon_hang", -0.5, "the work was still advancing", list(story.advanced))
    yield from _silence(case, story)


def _gave_up(case: Case) -> Evidence | None:
    """The line at a client's end that tells of a refusal which would have passed."""
    for name, lines in case.streams.items():
        if re.match(r"bench|client", name):
            for number in range(len(lines), max(0, len(lines) - 12), -1):
                line = plain(lines[number - 1]).strip()
                if _REFUSAL.search(line) and not _RETRIED.search(line):
                    return Evidence(name, number, line[:SHOWN])
    return None


def _left_early(case: Case, finished: list[Evidence]) -> Evidence | None:
    """The last line of a client that stopped with an error while its prover went on to finish work."""
    for name, lines in case.streams.items():
        if re.match(r"bench|client", name) and lines:
            tail = [plain(line).strip() for line in lines[-12:]]
            times = [t for line in lines[-40:] if (t := clock_s(line)) is not None]
            later = [
                e for e in finished if times and (t := clock_s(e.text)) is not None and 2 < t - max(times) < 6 * 3600
            ]
            if later and any(_TROUBLE.search(line) for line in tail) and not any(_LATE.search(line) for line in tail):
                return Evidence(name, len(lines), tail[-1][:SHOWN])
    return None


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
