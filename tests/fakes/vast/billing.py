"""The meter of each instance, and the credit of each account. Exact to the millisecond; the bill shown lags."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakes.vast.clock import Clock, Event

GPU, DISK, DOWN, UP = "gpu", "disk", "bwd", "bwu"
KINDS = (GPU, DISK, DOWN, UP)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
GB = 10**9


@dataclass(frozen=True, slots=True)
class Period:
    """While nothing changed: dollars per hour for GPU and disk."""

    begin_ms: int
    end_ms: int
    gpu: float
    disk: float

    def dollars(self, kind: str, begin_ms: int, end_ms: int) -> float:
        """The part of it between two moments."""
        rate = self.gpu if kind == GPU else self.disk
        return rate * max(0, min(self.end_ms, end_ms) - max(self.begin_ms, begin_ms)) / HOUR_MS


@dataclass(frozen=True, slots=True)
class Traffic:
    at_ms: int
    kind: str
    dollars: float


@dataclass(slots=True)
class Meter:
    """What one instance costs. `gpu` and `disk` are the present rates in dollars per hour, since `since_ms`."""

    since_ms: int
    gpu: float = 0.0
    disk: float = 0.0
    periods: list[Period] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)

    @property
    def dollars_per_hour(self) -> float:
        return self.gpu + self.disk

    def change(self, now_ms: int, gpu: float, disk: float) -> bool:
        """New rates from now on. False when they are the old ones."""
        if (gpu, disk) == (self.gpu, self.disk):
            return False
        if now_ms > self.since_ms and self.dollars_per_hour:
            self.periods.append(Period(self.since_ms, now_ms, self.gpu, self.disk))
        self.since_ms, self.gpu, self.disk = now_ms, gpu, disk
        return True

    def dollars(self, kind: str, begin_ms: int, end_ms: int) -> float:
        """What was used of one kind between two moments."""
        if kind in (DOWN, UP):
            return sum(t.dollars for t in self.traffic if t.kind == kind and begin_ms <= t.at_ms < end_ms)
        running = Period(self.since_ms, end_ms, self.gpu, self.disk)
        return sum(period.dollars(kind, begin_ms, end_ms) for period in (*self.periods, running))


class Purse:
    """An account's credit: it falls with the meters, and says so the moment that it is gone."""

    def __init__(self, clock: Clock, credit: float):
        self._clock = clock
        self._credit = credit
        self._since_ms = clock.now_ms
        self._dollars_per_hour = 0.0
        self._end: Event | None = None
        self.on_empty = lambda: None

    @property
    def credit(self) -> float:
        """Dollars left. Below zero once storage goes on after the end."""
        return self._credit - self._dollars_per_hour * (self._clock.now_ms - self._since_ms) / HOUR_MS

    def pay(self, dollars: float) -> None:
        """Paid in, or, below zero, taken out at once."""
        self._set(self.credit + dollars, self._dollars_per_hour)

    def burn(self, dollars_per_hour: float) -> None:
        """From now on the meters turn at this rate."""
        self._set(self.credit, dollars_per_hour)

    def _set(self, credit: float, dollars_per_hour: float) -> None:
        had = self._credit
        self._credit, self._since_ms, self._dollars_per_hour = credit, self._clock.now_ms, dollars_per_hour
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if credit > 0 and dollars_per_hour > 0:
            self._end = self._clock.after(credit / dollars_per_hour * 3600, self._run_out)
        elif credit <= 0 < had:
            self._end = self._clock.after(0, self._run_out)

    def _run_out(self) -> None:
        self._end = None
        self.on_empty()
