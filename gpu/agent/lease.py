"""The lease: renewed by a thread of its own, whatever the prover does; without renewal it ends the work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpu.agent.client import Client, Refused, Unreachable, delays
from gpu.agent.orders import Orders, Status
from gpu.protocol import Command, Lease, Leased, Upload

LEASE_THREAD = "lease"
GONE = 410  # the instance is destroyed, only this process does not know yet
FIRST_RENEWAL_S = 0.2
MIN_NEXT_S = 0.1
MAX_NEXT_S = 60.0


class LeaseKeeper(threading.Thread):
    """Renews until stopped; hands the commands of each reply to `orders`, and tells them when the lease is over.

    `ends` and `emergency_until` are monotonic seconds; `telemetry` is asked before and `renewed` called after each
    renewal.
    """

    def __init__(self, client: Client, status: Status, orders: Orders, lease_s: float, log: Callable[[str], None]):
        super().__init__(name=LEASE_THREAD, daemon=True)
        self.emergency: Upload | None = None
        self.emergency_until = 0.0
        self.renewed: Callable[[], None] = lambda: None
        self.telemetry: Callable[[], dict[str, float]] = dict
        self._client, self._status, self._orders, self._log = client, status, orders, log
        self._clock_offset_ms: float | None = None
        self._quickest_s = float("inf")
        self.ends = time.monotonic() + lease_s
        self._acknowledged: set[str] = set()
        self._stopping = threading.Event()

    def run(self) -> None:
        wait, waits, lost = FIRST_RENEWAL_S, delays(), False
        while not self._stopping.is_set():
            self._status.changed.wait(wait)
            self._status.changed.clear()
            sent = time.monotonic()
            if sent >= self.ends:
                self._orders.expire("the lease could not be renewed")
                return
            try:
                reply = self._client.lease(Lease(self._status.get(), self.telemetry(), sorted(self._acknowledged)))
            except (Unreachable, Refused) as error:
                if isinstance(error, Refused) and error.status == GONE:
                    self._orders.take(Command("exit", str(error)))
                    return
                if not lost:
                    self._log(f"the lease is not renewed, {self.ends - sent:.0f} s are left: {error}")
                lost, wait = True, min(next(waits), max(0.05, self.ends - time.monotonic()))
                continue
            if lost:
                self._log("the lease is renewed again")
            lost, waits = False, delays()
            self._compare_clocks(reply.now_ms, time.monotonic() - sent)
            wait = self._obey(reply, sent)

    def clock_offset_ms(self) -> float | None:
        """How far the controller's clock is ahead of ours, to half of the quickest renewal's time; None if unknown."""
        return self._clock_offset_ms

    def stop(self) -> None:
        self._stopping.set()
        self._status.changed.set()

    def _compare_clocks(self, controllers_ms: int, took_s: float) -> None:
        if controllers_ms and took_s < 2 * self._quickest_s:
            self._quickest_s = min(self._quickest_s, took_s)
            self._clock_offset_ms = controllers_ms - (time.time() - took_s / 2) * 1000

    def _obey(self, reply: Leased, sent: float) -> float:
        """Take over what the reply says; seconds to wait before the next renewal."""
        self.ends = sent + reply.lease_s
        if reply.emergency is not None:
            self.emergency = reply.emergency
            self.emergency_until = sent + reply.emergency.expires_s
        for command in reply.commands:
            word = self._orders.take(command)
            if word and word not in self._acknowledged:
                self._acknowledged.add(word)
                self._log(f"the controller says {command.name}: {command.reason or 'no reason given'}")
        self.renewed()
        return min(max(reply.next_s, MIN_NEXT_S), MAX_NEXT_S, max(MIN_NEXT_S, reply.lease_s / 3))
