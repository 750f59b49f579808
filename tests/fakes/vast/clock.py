"""Virtual time, and what is due in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Action = Callable[[], None]


@dataclass(order=True, slots=True)
class Event:
    """Something that will happen at `due_ms`, unless it is cancelled."""

    due_ms: int
    number: int
    action: Action = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """Milliseconds since the epoch. Moved by hand, or following `source`; events run in the order they are due.

    While an event runs, `now_ms` is the moment it was due, however far the clock has jumped: a bill is exact
    to the millisecond even when nobody looked for an hour.
    """

    def __init__(self, source: int | Callable[[], int]):
        self._source = source if callable(source) else None
        self.now_ms: int = source() if callable(source) else source
        self._events: list[Event] = []
        self._number = 0
        self._moving = False

    @property
    def follows(self) -> bool:
        return self._source is not None

    def follow(self, source: Callable[[], int]) -> None:
        """From now on another clock moves this one."""
        self._source = source

    def at(self, due_ms: float, action: Action) -> Event:
        self._number += 1
        event = Event(max(round(due_ms), self.now_ms), self._number, action)
        heapq.heappush(self._events, event)
        return event

    def after(self, seconds: float, action: Action) -> Event:
        return self.at(self.now_ms + seconds * 1000, action)

    def advance(self, seconds: float) -> None:
        """Raises ValueError for a clock that follows another one."""
        if self._source is not None:
            raise ValueError("this market follows another clock: move that one")
        self._move_to(self.now_ms + round(seconds * 1000))

    def catch_up(self) -> None:
        """Bring the market to the source's time. Never back: a source that jumps back stands still here."""
        if self._source is not None and not self._moving:
            self._move_to(max(self._source(), self.now_ms))

    def _move_to(self, then_ms: int) -> None:
        self._moving = True
        try:
            while self._events and self._events[0].due_ms <= then_ms:
                event = heapq.heappop(self._events)
                if not event.cancelled:
                    self.now_ms = max(self.now_ms, event.due_ms)
                    event.action()
            self.now_ms = then_ms
        finally:
            self._moving = False
