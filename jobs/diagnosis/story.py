"""What the logs say together: work that came out, how it ended, whether it ended well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.clues import Clue, cite
from jobs.diagnosis.figures import ends, rates
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
_WELL = expression([
    r"(?:all|\b\d+ ?(?:/|of) ?\d+)[^\n]{0,60}(?:verified|valid|succeeded|ok\b|passed|done|complete)",
    r"(?:benchmark|bench|run|batch|result)[^\n]{0,30}(?:finished|complete[d]?|passed|success|succeeded|: ok|done)",
    r"benchmark result: [1-9][\d.]* proofs",
    r"\b[1-9][\d.]* proofs?(?:/| per )h(?:our)?\b|throughput[^\n]{0,20}[1-9]",
    r"(?:exit(?:ed)?|ended|finished)[^\n]{0,30}(?:code|status)[ :=]*0\b",
    r"snarkjs: ok!|proof (?:is )?(?:valid|verified|ok)\b",
    r"verification[^\n]{0,10}(?:ok|passed|succeeded|true)|evidence sealed|sealed: complete|all good",
])  # fmt: skip
_NOT_WELL = expression(
    [
        r"\b(?:0|no|not|none of the|zero) (?:proofs?|valid|verified)",
        r"\bnot\b|\bfail\w*|error[s]?[ :=]+[1-9]|\b0 (?:of|/) ?\d|\binvalid\b|abort|incomplete|timed out",
    ]
)
_ILL = expression([
    r"benchmark failed|exited with error|result: 0 proofs|\b0 ?(?:/|of) ?[1-9]\d* proofs",
    r"fatal|panicked|core dumped|giving up|gave up|aborting|will be destroyed",
    r"exit(?:ed)?[^\n]{0,20}(?:code|status)[ :=]*[1-9]\d*|(?:run|batch|benchmark|job|stage)[^\n]{0,30}\bfailed\b",
])  # fmt: skip
_IGNORED = re.compile(r"ignored|harmless|non-fatal|retry(?:ing)?\\b|second attempt ok", re.IGNORECASE)
_POWER_LIMIT = re.compile(
    r"\b(current|enforced|requested|default) power limit\W{1,40}(\d+(?:\.\d+)?) ?W\b", re.IGNORECASE
)
_TROUBLE = re.compile(
    r"error|fail|denied|abort|unable|refused|invalid|mismatch|fatal|giv(?:e|ing) up|panic|unusable", re.IGNORECASE
)
BEFORE_SERVING = ("loading", "tunnels", "params", "benchmark")
"""Stages for which a rate that was reached says that all is well; one that serves may still break later."""
_PROGRESS = re.compile(r"\b(\d{1,7}) ?(?:/|of) ?(\d{1,7})\b|\b(\d{1,3}(?:\.\d+)?) ?%")


@dataclass(frozen=True)
class Story:
    """`done`: lines that tell of finished work, by file. `well`, `ill`: the last lines that say so."""

    done: dict[str, list[Evidence]]
    well: Evidence | None
    ill: Evidence | None
    well_from_end: int
    advanced: tuple[Evidence, Evidence] | None


def read_story(case: Case) -> Story:
    """One pass over the logs (not the kernel's)."""
    done: dict[str, list[Evidence]] = {}
    well = ill = None
    from_end = 0
    advanced = None
    for name, lines in case.streams.items():
        if "kernel" in name:
            continue
        kept = _tail_and_head(lines)
        for number, raw in kept:
            line = plain(raw)
            if _DONE.search(line) and not _NOT_DONE.search(line):
                done.setdefault(name, []).append(Evidence(name, number, line.strip()[:SHOWN]))
            if _WELL.search(line) and not _NOT_WELL.search(line) and _whole(line):
                well, from_end = Evidence(name, number, line.strip()[:SHOWN]), len(lines) - number
            if _ILL.search(line) and not _IGNORED.search(line):
                ill = Evidence(name, number, line.strip()[:SHOWN])
        advanced = _advance(name, kept) or advanced
    return Story(done, well, ill, from_end, advanced)


def _tail_and_head(lines: list[str]) -> list[tuple[int, str]]:
    """All lines of an ordinary log; of a huge one, its ends: what was done and how it ended is there."""
    if len(lines) <= 60_000:
        return list(enumerate(lines, 1))
    return [*enumerate(lines[:10_000], 1), *enumerate(lines[-50_000:], len(lines) - 49_999)]


def _whole(line: str) -> bool:
    """False where it says k of n with k < n."""
    return all(int(k) >= int(n) for k, n, percent in _PROGRESS.findall(line) if k and n)


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


def ended_well(case: Case, story: Story, stage: str, unsettled: bool = False) -> tuple[bool, str, list[Evidence]]:
    """Whether the run came to a good end: (verdict, why, lines). `unsettled`: a grave line comes after."""
    said = case.text(r"run\.(?:outcome|result|verdict|status)", r"\boutcome\b").lower()
    if re.search(r"\b(?:ok|passed|success\w*|completed?|done)\b", said):
        return True, f"the run is recorded as {said}", cite(case, "outcome", "result", "verdict", "status")
    if re.search(r"fail|broken|slow|error|abort|timeout|killed", said):
        return False, case.text(r"run\.reason") or f"the run is recorded as {said}", []
    bad = [f"{name} ended with {signal or code}" for name, code, signal in ends(case) if _is_bad(name, code, signal)]
    if bad:
        return False, bad[0], []
    rate, least, proofs = rates(case)
    if (rate is not None and least is not None and rate < least) or rate == 0 or proofs == 0:
        return False, "the rate is under the minimum or nothing came out", []
    told = [name for name, code, _ in ends(case) if code == 0]
    good = rate is not None and least is not None and rate >= least
    if story.ill is not None and not (good and stage in BEFORE_SERVING):
        return False, f"the log says: {story.ill.text}", [story.ill]
    if good and (stage in BEFORE_SERVING or (story.well is not None and not unsettled)):
        return True, f"{rate:g} proofs/h, {least:g} asked", [*([story.well] if story.well else []), *cite(case, "rate")]
    if story.well is not None and (told or (story.well_from_end <= 60 and not unsettled)):
        return True, f"the log says: {story.well.text}", [story.well]
    return False, "", []


def _is_bad(name: str, code: int | None, signal: str) -> bool:
    # A daemon is ended on purpose when the work is over.
    stopped = signal.upper().removeprefix("SIG") in ("TERM", "15", "INT", "2") or code in (143, 130)
    if stopped and re.search(r"daemon|serv", name):
        return False
    return bool(signal and signal.lower() not in ("", "0", "none")) or code not in (0, None)


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
                found[told[1].lower()] = (float(told[2]), Evidence(name, number, plain(line).strip()[:SHOWN]))
        now, own = found.get("current") or found.get("enforced") or found.get("requested"), found.get("default")
        if now and own and now[0] < 0.93 * own[0]:
            words = f"power limit {now[0]:g} W, default {own[0]:g} W"
            yield Clue("power_cap", 0.75, words, [now[1], own[1]], "power.limit equal to power.default_limit.")
            return


def _silence(case: Case, story: Story) -> Iterator[Clue]:
    """Logs that stop in the middle, with nobody telling how the processes ended."""
    if ends(case) or story.ill is not None or story.well is not None or not case.streams:
        return
    name, lines = max(case.streams.items(), key=lambda item: len(item[1]))
    if lines and not _TROUBLE.search(plain(lines[-1])):
        yield Clue(
            "host_vanished",
            0.25,
            "the logs stop without an end, and no exit code was recorded",
            [Evidence(name, len(lines), plain(lines[-1]).strip()[:SHOWN])],
        )
