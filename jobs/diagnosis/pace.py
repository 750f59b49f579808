"""What the times and the counts in the logs tell: who fell silent first, what stood still, what still advanced."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.clues import Clue
from jobs.diagnosis.report import Evidence

SILENT_S = 300.0
TOGETHER_S = 5.0
SAME_LINES = 3
JUMP_S = 1800.0
_CLOCK = re.compile(r"(?<![\d:])(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?!:)")
RISING = 4
_DIGITS = re.compile(r"\d+")
_NO_COUNT = re.compile(r"retry|attempt|wait|still|elapsed|uptime|heartbeat|poll|error|fail", re.IGNORECASE)
_TAIL, _SHOWN, _DAY_S = 30, 300, 86400.0
# What changes in a line that otherwise says the same again.
_VARIES = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]?|\d{1,2}:\d\d:\d\d\S*|\b\d+(?:\.\d+)? ?(?:ms|s|sec\w*|"
    r"min\w*|h)\b|\[ *\d+\.\d+\]|\belapsed\S*"
)
_WAITS = re.compile(
    r"wait|still|progress|download|pull|extract|fetch|transfer|unpack|loading|pending|"
    r"queue|[0-9] ?%|\d ?[kmgt]?i?b?/ ?\d",
    re.IGNORECASE,
)
BEATS = 4
_HOLDS = re.compile(
    r"(?:queue\w*|pending|in[- ]?flight|active|running|busy|jobs?|tasks?|proofs?|depth|"
    r"backlog)[a-z_ ]*[=: ]+[1-9]|[1-9]\d* (?:queued|pending|in flight|active|running|"
    r"jobs?|tasks?|proofs? (?:open|left))",
    re.IGNORECASE,
)
_ANSWERED = re.compile(
    r"\b[45]\d\d\b|refused|error|retry|http/|POST|GET|nothing to do|no (?:job|task|work)|idle", re.IGNORECASE
)
_IMAGE = r"layer|image|extract|unpack|pull|\b[0-9a-f]{6,12}: "
_PARAMS = r"param|srs|zkey|\bkey\b|setup|ptau|crs|download|fetch|transfer|curl|wget|aria2"
_STANDS = (
    (re.compile(_IMAGE, re.IGNORECASE), "image_pull_stuck"),
    (re.compile(_PARAMS, re.IGNORECASE), "param_fetch_network"),
    (re.compile(r"upload|part \d|chunk|evidence|s3\b", re.IGNORECASE), "upload_network"),
)


def pace(case: Case, *, ended: bool) -> Iterator[Clue]:
    """Clues from times and repeated lines; `ended`: the logs or facts tell how the run ended."""
    lasts = {name: last for name, lines in case.streams.items() if (last := _last_time(name, lines))}
    if case.gpu and (last := _last_time(case.gpu_file, ["", *(", ".join(row.values()) for row in case.gpu)])):
        lasts[case.gpu_file] = last
    yield from _fell_silent(lasts)
    yield from _stopped_together(case, lasts, ended=ended)
    yield from _torn(case, ended=ended)
    yield from _beats_only(case)
    for name, lines in case.streams.items():
        yield from _stands_still(name, lines)


def clock_s(line: str) -> float | None:
    """The time of day that a line carries, in seconds; None without one."""
    found = _CLOCK.search(line[:200])
    if not found or int(found[1]) > 23:
        return None
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) + float(f"0.{found[4] or 0}")


def _last_time(name: str, lines: list[str]) -> tuple[float, Evidence] | None:
    """The newest time among a file's last lines, and the last line."""
    times = [t for line in lines[-_TAIL:] if (t := clock_s(line)) is not None]
    if not times:
        return None
    return max(times), Evidence(name, len(lines), plain(lines[-1]).strip()[:_SHOWN])


def _fell_silent(lasts: dict[str, tuple[float, Evidence]]) -> Iterator[Clue]:
    """A prover that says nothing any more while others go on."""
    for name, (last, line) in lasts.items():
        if not re.match(r"daemon|prover|worker|service", name):
            continue
        others = {n: t for n, (t, _) in lasts.items() if n != name}
        later = max(others.values(), default=last)
        if SILENT_S <= later - last < _DAY_S / 4:
            minutes = (later - last) / 60
            where = max(others, key=lambda n: others[n])
            words = f"{name} says nothing for the last {minutes:.0f} min, while {where} goes on"
            yield Clue("daemon_hang", 0.35, words, [line, lasts[where][1]], "The prover's log going on.")


def _stopped_together(case: Case, lasts: dict[str, tuple[float, Evidence]], *, ended: bool) -> Iterator[Clue]:
    if ended or len(lasts) < 2:
        return
    times = [t for t, _ in lasts.values()]
    if max(times) - min(times) <= TOGETHER_S:
        lines = [line for _, line in lasts.values()]
        yield Clue("host_vanished", 0.3, f"{len(lasts)} logs stop in the same {TOGETHER_S:.0f} s, with no end", lines)


def _torn(case: Case, *, ended: bool) -> Iterator[Clue]:
    """A last line that breaks off: whoever wrote it was gone at once."""
    for name in sorted(case.torn) if not ended else ():
        lines = case.streams[name]
        before = [len(line) for line in lines[-9:-1] if line.strip()]
        if len(before) >= 4 and 0 < len(lines[-1]) < 0.8 * min(before):
            where = Evidence(name, len(lines), plain(lines[-1]).strip()[:_SHOWN])
            yield Clue("host_vanished", 0.3, f"{name} breaks off in the middle of a line", [where])


def _beats_only(case: Case) -> Iterator[Clue]:
    """A prover that says only that it lives, in the same words and figures, after work that it finished or took."""
    for name, lines in case.streams.items():
        if not re.match(r"daemon|prover|worker|service", name) or len(lines) < BEATS:
            continue
        tail = {_VARIES.sub("", plain(line)).strip() for line in lines[-BEATS:]}
        if len(tail) == 1 and _HOLDS.search(next(iter(tail))) and not _ANSWERED.search(next(iter(tail))):
            where = [
                Evidence(name, n, plain(lines[n - 1]).strip()[:_SHOWN]) for n in (len(lines) - BEATS + 1, len(lines))
            ]
            yield Clue("daemon_hang", 0.45, f"at its end {name} says the same {BEATS} times, with work in hand", where)


def advancing(name: str, lines: list[str]) -> tuple[Evidence, Evidence] | None:
    """The first and last of the newest lines of one kind whose count rose each time, up to the end of the log; None
    without."""
    kinds: dict[str, list[tuple[int, list[int], str]]] = {}
    first = max(1, len(lines) - 300 + 1)
    for number, raw in enumerate(lines[-300:], first):
        line = _VARIES.sub("", plain(raw)[:300])
        kinds.setdefault(_DIGITS.sub("#", line), []).append((number, [int(n[:15]) for n in _DIGITS.findall(line)], raw))
    for rows in kinds.values():
        newest = rows[-RISING:]
        if (
            len(newest) < RISING
            or newest[-1][0] < len(lines) - 25
            or any(_NO_COUNT.search(raw) for _, _, raw in newest)
        ):
            continue
        columns = zip(*(numbers for _, numbers, _ in newest), strict=True)
        if any(all(0 < b - a <= max(3, a) for a, b in itertools.pairwise(column)) for column in columns):
            ends = [Evidence(name, number, plain(raw).strip()[:_SHOWN]) for number, _, raw in (newest[0], newest[-1])]
            return ends[0], ends[1]
    return None


def _stands_still(name: str, lines: list[str]) -> Iterator[Clue]:
    """The last lines say the same again and again: what they wait for does not come."""
    kept = [(n, plain(raw).strip()) for n, raw in enumerate(lines[-400:], max(1, len(lines) - 399)) if raw.strip()]
    same: list[tuple[int, str]] = []
    for number, line in reversed(kept[-60:]):
        if same and _VARIES.sub("", line) != _VARIES.sub("", same[0][1]):
            if len(same) >= SAME_LINES:
                break
            same = []
        same.append((number, line))
    if len(same) < SAME_LINES or not _WAITS.search(same[0][1]) or _ANSWERED.search(same[0][1]):
        return
    cause = next((cause for wanted, cause in _STANDS if wanted.search(same[0][1])), "daemon_hang")
    evidence = [Evidence(name, n, line[:_SHOWN]) for n, line in reversed(same[:3])]
    yield Clue(cause, 0.4, f"the last {len(same)} lines of {name} say the same: {same[0][1][:120]}", evidence)
