"""Whether a proof is still wanted: what every stage asks between two pieces of work, so that a cancelled or
late proof stops soon and leaves the cores to the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from gpu.errors import Cancelled, DeadlineExceeded

T = TypeVar("T")


class Ticket:
    """Goes with one proof through all stages. `job` and `partition` say whose it is, for status and logs;
    `deadline` is in seconds of time.monotonic(), None for never.
    """

    def __init__(self, job: str = "", partition: int = 0, deadline: float | None = None) -> None:
        self.job = job
        self.partition = partition
        self.deadline = deadline
        self._cancelled: str | None = None

    def cancel(self, why: str = "the proof was cancelled by request; ask again for a new one") -> None:
        """From now on `check` raises Cancelled, with the first reason that was given."""
        if self._cancelled is None:
            self._cancelled = why

    @property
    def cancelled(self) -> bool:
        return self._cancelled is not None

    def check(self) -> None:
        """Raises Cancelled or DeadlineExceeded once the proof is no longer wanted."""
        if self._cancelled is not None:
            raise Cancelled(self._cancelled)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise DeadlineExceeded("the proof was not done by its deadline; give it more time, or a faster machine")

    def over(self, pool: Executor) -> Executor:
        """`pool`, with a check before each task: the tasks of a proof that is not wanted any more fail at once."""
        return _CheckedPool(pool, self)


class _CheckedPool(Executor):
    def __init__(self, pool: Executor, ticket: Ticket) -> None:
        self._pool = pool
        self._ticket = ticket

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        self._ticket.check()
        return fn(*args, **kwargs)
