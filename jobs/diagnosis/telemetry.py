"""What the GPU's own figures say (`gpu.csv`, the columns of `nvidia-smi --query-gpu`, or our `gpu` stream)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from jobs.diagnosis.case import Case, as_number
from jobs.diagnosis.clues import Clue
from jobs.diagnosis.report import Evidence

HOT_C, WARM_C = 84.0, 78.0
BUSY, IDLE = 40.0, 5.0
_ACTIVE = ("active", "1", "true", "yes", "on")
# Words of column names by other authors, and the words of nvidia-smi that they mean.
_SAID = (
    (r"\btemp\b|\btemp(?=c\b)|\bt_?gpu\b", "temperature"),
    (r"\b(?:gpu_?)?util\b|\bload\b|\bbusy\b|sm_?activity", "utilization"),
    (r"\bmem\b|\bvram\b|\bfb\b", "memory"),
    (r"\bpwr\b|\bwatts?\b", "power draw"),
    (r"\btdp\b|\bpower (?:cap|target)\b", "power limit"),
    (r"\blanes?\b", "width"),
    (r"\blink gen\b|\bpcie gen\b", "pcie link gen"),
    (r"\bmhz\b|\bsm_?clk\b|\bclk\b|\bfreq\w*", "clock sm"),
    (r"\b(?:gpu |graphics |core )clock\b|\bclocks? (?:gr|graphics|gpu|core)\b", "clock sm"),
    (r"\bunc\b|\bdbe\b", "ecc uncorr"),
)
_LOST = re.compile(r"GPU is lost|requires reset|ERR!|fallen off|reset required", re.IGNORECASE)
# Bits of clocks_event_reasons.active (nvml.h).
_BITS = {"sw_power_cap": 0x4, "hw_slowdown": 0x8, "sw_thermal": 0x20, "hw_thermal": 0x40, "hw_power_brake": 0x80}


def telemetry(case: Case) -> Iterator[Clue]:
    """Clues from the rows; none without rows."""
    if not case.gpu:
        return
    column = _Columns(case)
    yield from _lost(column)
    yield from _heat(column)
    yield from _power(column)
    yield from _link(column)
    yield from _memory(column)
    yield from _idle(column)
    for row, value in column.numbers("ecc", "uncorr"):
        if value > 0:
            yield Clue("ecc_error", 0.6, f"{value:g} uncorrectable ECC errors", [column.cite(row)])
            break


class _Columns:
    """Columns by words of their names."""

    def __init__(self, case: Case):
        self.rows = case.gpu
        self._file = case.gpu_file
        self._names = {name: f"{name} {_meant(name)}" for name in case.gpu[0]}

    def name(self, *words: str, without: tuple[str, ...] = ()) -> str | None:
        for name, meant in self._names.items():
            if all(w in meant for w in words) and not any(w in meant for w in without):
                return name
        return None

    def numbers(self, *words: str, without: tuple[str, ...] = ()) -> list[tuple[int, float]]:
        """(row, value) of the rows that have one."""
        name = self.name(*words, without=without)
        if name is None:
            return []
        read = ((i, as_number(row.get(name, ""))) for i, row in enumerate(self.rows))
        return [(i, value) for i, value in read if value is not None]

    def flagged(self, *words: str) -> list[int]:
        """Rows in which a column of reasons is active: a column of its own, or a word in the column of all reasons."""
        name = self.name(*words)
        if name is not None:
            return [i for i, row in enumerate(self.rows) if row.get(name, "").strip().lower() in _ACTIVE]
        every = self.name("reasons") or self.name("throttle")
        wanted = "_".join(words)
        return [i for i, row in enumerate(self.rows) if every and _among(wanted, row.get(every, "").lower())]

    def cite(self, row: int) -> Evidence:
        return Evidence(self._file, row + 2, ", ".join(self.rows[row].values())[:300])


def _meant(name: str) -> str:
    """A column's name in nvidia-smi's words."""
    said = re.sub(r"[\W_]+", " ", name.lower()).strip()
    for pattern, words in _SAID:
        said = re.sub(pattern, words, said)
    return said


def _among(reason: str, said: str) -> bool:
    """A reason is among those of a cell: by name, or as a bit of the mask."""
    if re.fullmatch(r"0x[0-9a-f]{1,16}", said):
        return bool(int(said, 16) & _BITS.get(reason, 0))
    plain = re.sub(r"[\W_]+", "_", said)
    return reason in plain or (reason.endswith("thermal") and "thermal" in plain and "sw" not in plain)


def _top(
    values: list[tuple[int, float]], key: Callable[[tuple[int, float]], float] = lambda v: v[1]
) -> tuple[int, float]:
    return max(values, key=key)


def _lost(column: _Columns) -> Iterator[Clue]:
    """What nvidia-smi writes into the cells of a card that it can't reach."""
    for i, row in enumerate(column.rows):
        if any(_LOST.search(cell) for cell in row.values()):
            cell = next(cell for cell in row.values() if _LOST.search(cell))
            yield Clue("xid_error", 0.8, f"nvidia-smi says {cell} from sample {i + 1} on", [column.cite(i)],
                       "The same GPU passing an hour of load (dcgmi diag -r 3).")  # fmt: skip
            return


def _busy_rows(column: _Columns) -> set[int]:
    return {i for i, value in column.numbers("utilization", without=("memory",)) if value >= BUSY}


def _heat(column: _Columns) -> Iterator[Clue]:
    heat = column.numbers("temperature", without=("memory",))
    if not heat:
        return
    flagged = sorted({*column.flagged("hw_thermal"), *column.flagged("sw_thermal")})
    row, hottest = _top(heat)
    if flagged:
        words = f"thermal slowdown in {len(flagged)} of {len(column.rows)} samples, up to {hottest:g} C"
        yield Clue("thermal_throttle", 0.7, words, [column.cite(flagged[0])])
    elif hottest >= HOT_C and _clocks_fall(column, hot=[i for i, v in heat if v >= HOT_C - 2]):
        yield Clue("thermal_throttle", 0.6, f"{hottest:g} C, and the clocks fell", [column.cite(row)])
    elif hottest < WARM_C:
        yield Clue("thermal_throttle", -0.8, f"it was never hotter than {hottest:g} C", [column.cite(row)])


def _clocks_fall(column: _Columns, hot: list[int]) -> bool:
    clocks = dict(column.numbers("clock", "sm", without=("max",)))
    most = max(clocks.values(), default=0.0)
    return any(clocks.get(i, most) < 0.8 * most for i in hot)


def _power(column: _Columns) -> Iterator[Clue]:
    limits = dict(column.numbers("power", "limit", without=("default", "max", "min")))
    defaults = dict(column.numbers("power", "default"))
    for row, limit in limits.items():
        if limit < 0.93 * defaults.get(row, limit):
            yield Clue("power_cap", 0.75, f"power limit {limit:g} W, default {defaults[row]:g} W", [column.cite(row)])
            return
    flagged = column.flagged("sw_power_cap")
    draws = dict(column.numbers("power", "draw")) or dict(column.numbers("power_w"))
    if len(flagged) > len(column.rows) / 2:
        yield Clue(
            "power_cap",
            0.3 if defaults else 0.5,
            f"held back by its power limit in {len(flagged)} samples",
            [column.cite(flagged[0])],
        )
    elif limits and draws and max(draws.values()) < 0.85 * min(limits.values()):
        yield Clue("power_cap", -0.6, f"it drew {max(draws.values()):g} W at most, under its limit", [])


def _link(column: _Columns) -> Iterator[Clue]:
    busy = _busy_rows(column) or set(range(len(column.rows)))
    for words, unit in ((("width",), "lanes"), (("gen",), "generation")):
        now = dict(column.numbers("pcie", *words, without=("max",)))
        most = dict(column.numbers("pcie", *words, "max"))
        under_load = [(i, v) for i, v in now.items() if i in busy]
        if not under_load:
            continue
        row, best = _top(under_load)
        expected = most.get(row, 16.0 if unit == "lanes" else 0.0)
        if best < expected and (unit == "lanes" or best <= expected - 2):
            weight = 0.75 if best <= expected / 4 else 0.6
            yield Clue("pcie_narrow", weight, f"PCIe {unit} {best:g} of {expected:g} under load", [column.cite(row)])
            return
        if unit == "lanes":
            yield Clue("pcie_narrow", -0.5, f"{best:g} PCIe lanes under load, as the card has", [column.cite(row)])


def _memory(column: _Columns) -> Iterator[Clue]:
    used = dict(column.numbers("memory", "used"))
    total = dict(column.numbers("memory", "total"))
    shares = [(i, used[i] / total[i]) for i in used if total.get(i)]
    if not shares:
        return
    row, most = _top(shares)
    if most > 0.96:
        yield Clue("cuda_oom", 0.3, f"GPU memory was {most:.0%} full", [column.cite(row)])
    elif most < 0.7:
        yield Clue("cuda_oom", -0.3, f"GPU memory was {most:.0%} full at most", [column.cite(row)])


def _idle(column: _Columns) -> Iterator[Clue]:
    use = column.numbers("utilization", without=("memory",))
    if len(use) < 5:
        return
    trailing = 0
    for _, value in reversed(use):
        if value > IDLE:
            break
        trailing += 1
    if trailing >= max(5, len(use) // 3) and trailing < len(use):
        row = use[-trailing][0]
        yield Clue(
            "daemon_hang", 0.35, f"the GPU went idle and stayed so for the last {trailing} samples", [column.cite(row)]
        )
