"""What energy a proof took: the GPUs' board power (the `gpu` stream, once a second) over the proof's time.

A proof's time is what the machine says it took, ending when it came. While several are made at once they share the
power of the moment equally, so the sum over proofs never counts a joule twice. The power of all GPUs of the machine
counts, and that of nothing else: no CPU, no memory, no fans. A machine's figures are its own word.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MAX_GAP_MS = 5000
"""Between two samples further apart than this, nobody knows the power."""
COVERED = 0.95
"""Part of a proof's time that every GPU's samples must cover."""
MAX_WATTS = 5000.0
MAX_ROWS = 2_000_000


@dataclass(frozen=True)
class Energy:
    """`joules` of one proof, or None and in `why` the reason."""

    joules: float | None
    why: str = ""


@dataclass
class _Gpu:
    """Samples of one GPU in order, and up to each: the joules, and the milliseconds in which the power is known."""

    times: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    known: list[float] = field(default_factory=list)

    def add(self, at_ms: float, watts: float) -> None:
        gap = at_ms - self.times[-1] if self.times else math.inf
        if gap <= 0:
            return  # a clock that was set back: what it repeats is not counted
        counts = gap <= MAX_GAP_MS
        more = (self.watts[-1] + watts) / 2 * gap / 1000 if counts else 0.0
        self.joules.append((self.joules[-1] if self.joules else 0.0) + more)
        self.known.append((self.known[-1] if self.known else 0.0) + (gap if counts else 0.0))
        self.times.append(at_ms)
        self.watts.append(watts)

    def up_to(self, at_ms: float) -> tuple[float, float]:
        """(joules, milliseconds known) from the first sample to `at_ms`."""
        i = bisect_right(self.times, at_ms) - 1
        if i < 0 or i == len(self.times) - 1:
            return (0.0, 0.0) if i < 0 else (self.joules[i], self.known[i])
        gap, into = self.times[i + 1] - self.times[i], at_ms - self.times[i]
        if gap > MAX_GAP_MS:
            return self.joules[i], self.known[i]
        now = self.watts[i] + (self.watts[i + 1] - self.watts[i]) * into / gap
        return self.joules[i] + (self.watts[i] + now) / 2 * into / 1000, self.known[i] + into


Times = Sequence[tuple[float, float] | None]
"""(start, end) of each proof in milliseconds of the machine's clock; None where the machine did not say."""


def energies(lines: Iterable[str], times: Times) -> list[Energy]:
    """The energy of each proof, from the lines of the `gpu` stream."""
    gpus, why = _samples(lines)
    told = [time for time in times if time is not None and time[1] > time[0]]
    edges = sorted({edge for time in told for edge in time})
    sums = [(0.0, 0.0)]  # up to each edge: joules of one proof in flight, milliseconds known of all GPUs
    for begin, end in pairwise(edges):
        joules, known = 0.0, end - begin
        for gpu in gpus.values():
            (j0, k0), (j1, k1) = gpu.up_to(begin), gpu.up_to(end)
            joules, known = joules + j1 - j0, min(known, k1 - k0)
        sums.append((sums[-1][0] + joules, sums[-1][1] + known))
    shared = _shared(edges, sums, told)
    place = {edge: i for i, edge in enumerate(edges)}
    found = []
    for time in times:
        if time is None or time[1] <= time[0]:
            found.append(Energy(None, "the machine did not say how long the proof took"))
        elif not gpus:
            found.append(Energy(None, why))
        else:
            i, j = place[time[0]], place[time[1]]
            part = (sums[j][1] - sums[i][1]) / (time[1] - time[0])
            late = f"the power is known for {100 * part:.0f} % of the time that the proof took"
            found.append(Energy(round(shared[j] - shared[i], 3)) if part >= COVERED else Energy(None, late))
    return found


def _shared(
    edges: Sequence[float], sums: Sequence[tuple[float, float]], told: Sequence[tuple[float, float]]
) -> list[float]:
    """Up to each edge, the joules of a proof that was in flight all along: each stretch over how many were."""
    change = dict.fromkeys(edges, 0)
    for begin, end in told:
        change[begin] += 1
        change[end] -= 1
    total, flying = [0.0], 0
    for i in range(len(edges) - 1):
        flying += change[edges[i]]
        total.append(total[-1] + ((sums[i + 1][0] - sums[i][0]) / flying if flying else 0.0))
    return total


def _samples(lines: Iterable[str]) -> tuple[dict[str, _Gpu], str]:
    """The samples by GPU, or why there are none. A stranger wrote the lines: what is no sane sample is left out."""
    gpus: dict[str, _Gpu] = {}
    header: list[str] = []
    said = ""
    for row in _rows(lines):
        if "time_ms" in row and "power_w" in row:
            header = row
        elif not header:
            said = said or ",".join(row).strip()[:150]
        elif len(row) >= len(header):
            cells = dict(zip(header, row, strict=False))
            at, watts = _number(cells["time_ms"]), _number(cells["power_w"])
            if at is not None and watts is not None and watts <= MAX_WATTS and len(gpus) <= 64:
                gpus.setdefault(cells.get("index", ""), _Gpu()).add(at, watts)
    if gpus:
        return gpus, ""
    return {}, said or ("the GPU's driver tells no power" if header else "there is no GPU telemetry")


def _rows(lines: Iterable[str]) -> Iterable[list[str]]:
    for number, line in enumerate(lines):
        if number >= MAX_ROWS:
            return
        try:
            yield from csv.reader([line[:2000]])
        except csv.Error:
            continue


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
