"""What happens to an instance: how it boots, stops, starts, is outbid, vanishes.

A life is a generator (see `stages`): it changes the instance and yields the seconds until it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tests.fakes.vast import nasty, stages
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.errors import Refused
from tests.fakes.vast.instances import LOADING, Instance

if TYPE_CHECKING:
    from tests.fakes.vast.market import Market

Life = Callable[["Lifecycle", Instance], Iterator[float]]

REAPPEARS_MS = 20_000
EXPIRED_KEPT_S = 48 * 3600.0
UNPAID_KEPT_S = 24 * 3600.0


class Lifecycle:
    """Moves instances through their states. Everything that changes what an instance costs goes through here."""

    def __init__(self, market: Market):
        self.market = market
        self.lives: list[Life] = []
        """What the next instances go through, in the order of their creation; `stages.normal` once it is used up."""
        self.bill_loading = False
        """Vast's documents contradict each other; True is the dearer reading."""
        self.queued_start = "fires"
        """What becomes of a start that was queued because the GPUs were let: it `fires` once they are free, or
        `reverts` to stopped. Both were reported."""
        self.unreliable = False
        """Whether rentals go wrong by chance, more often on some machines than on others."""
        self.reappearing = 0
        """How many of the next destroys only hide the instance for a while."""

    @property
    def now_ms(self) -> int:
        return self.market.clock.now_ms

    # The states that cost.

    def set(self, i: Instance, **states: object) -> None:
        """Change fields of an instance, and its meter with them."""
        i.beat(self.now_ms)
        for name, value in states.items():
            setattr(i, name, value)
        self.charge(i)

    def charge(self, i: Instance) -> None:
        loading = self.bill_loading and i.actual in LOADING and i.cur != "stopped"
        gpu = i.live and (i.gpu_billed or loading)
        disk = i.live and i.actual != "offline"
        if i.meter.change(self.now_ms, i.dph_base if gpu else 0.0, i.disk_dollars_per_hour if disk else 0.0):
            mine = i.account.live.values()
            i.account.purse.burn(sum(other.meter.dollars_per_hour for other in mine))

    # A life.

    def begin(self, i: Instance) -> None:
        """A new instance starts on the life that was ordered for it, or on one as its machine has them."""
        life: Life = stages.normal
        if self.lives:
            life = self.lives.pop(0)
        elif self.unreliable and self.market.rng.random() < i.machine.trouble:
            life = self.market.rng.choice(nasty.TROUBLES)
        self.live(i, life(self, i))

    def live(self, i: Instance, steps: Iterator[float]) -> None:
        """Go through `steps` from now on, and give up what it was about to do."""
        if i.script is not None:
            i.script.cancel()
        self._step(i, steps)

    def _step(self, i: Instance, steps: Iterator[float]) -> None:
        i.script = None
        wait_s = next(steps, None)
        if wait_s is not None and i.live and i.script is None:
            i.script = self.market.clock.after(wait_s, lambda: self._step(i, steps))

    def halt(self, i: Instance) -> None:
        """Nothing more happens by itself."""
        if i.script is not None:
            i.script.cancel()
            i.script = None

    # What a customer orders.

    def stop(self, i: Instance, shows: str = "exited") -> None:
        """The state fields change at once, what it `shows` a few seconds later, its telemetry never."""
        self.release(i)
        self.set(i, intended="stopped", cur="stopped", next="stopped")
        self.live(i, stages.stopping(self, i, shows))

    def start(self, i: Instance) -> None:
        """Raises `Refused` with HTTP 200 when the GPUs were let to somebody else meanwhile."""
        if i.cur == "running" and i.actual == "running":
            return
        if not self.hold(i):
            self.set(i, intended="running", next="running")
            if self.queued_start == "fires":
                self.live(i, stages.queued(self, i))
            else:
                self.live(i, stages.reverting(self, i))
            raise Refused(200, "resources_unavailable", stages.UNAVAILABLE)
        self.set(i, intended="running", cur="running", next="running", actual="loading", msg="starting container")
        self.live(i, stages.starting(self, i))

    def reboot(self, i: Instance) -> None:
        self.set(i, actual="rebooting", ports_open=False)
        self.live(i, stages.starting(self, i))

    def recycle(self, i: Instance) -> None:
        """A new container from a newly pulled image: the old one's log is gone."""
        i.log.clear()
        self.set(i, actual="loading", ports_open=False, has_booted=False)
        self.live(i, stages.normal(self, i))

    def order_destroy(self, i: Instance) -> None:
        """What the API's destroy does: usually just that."""
        if self.reappearing > 0:
            self.reappearing -= 1
            i.shown_from_ms = i.listed_from_ms = self.now_ms + REAPPEARS_MS
        else:
            self.destroy(i)

    def destroy(self, i: Instance) -> None:
        self.halt(i)
        self.release(i)
        i.destroyed_ms = self.now_ms
        self.charge(i)
        del i.account.live[i.id]
        i.log.clear()
        i.daemon_log.clear()
        if self.market.ssh is not None:
            self.market.ssh.shut(i)
        if self.market.on_destroy is not None:
            self.market.on_destroy(i)

    # What happens to it.

    def outbid(self, i: Instance, resume_after_s: float | None = None) -> None:
        """Somebody pays more. No notice; it comes back by itself when the price falls, and bills again."""
        self.stop(i)
        self.live(i, stages.outbid(self, i, resume_after_s))

    def resume(self, i: Instance) -> None:
        """The price fell below the bid again: it comes back, if its GPUs are free."""
        self.live(i, stages.resuming(self, i))

    def out_of_credit(self, account: Account) -> None:
        """All of the account's instances stop at once; storage goes on, and without a card they are deleted."""
        for i in list(account.live.values()):
            if i.cur != "stopped":
                self.stop(i, "stopped")
            if not account.card:
                self._delete_after(i, UNPAID_KEPT_S)

    def expire(self, i: Instance) -> None:
        """The contract's end: stopped now, deleted two days later."""
        if i.live and self.now_ms >= i.end_ms:
            self.stop(i, "stopped")
            self._delete_after(i, EXPIRED_KEPT_S)

    def _delete_after(self, i: Instance, seconds: float) -> None:
        def delete() -> None:
            if i.live:
                self.destroy(i)

        self.market.clock.after(seconds, delete)

    def exit(self, i: Instance, code: int) -> None:
        """The container's process ended. The contract goes on, and so does the bill."""
        i.exit_code = code
        self.halt(i)
        self.set(i, actual="exited", ports_open=False)
        i.say(self.now_ms, f"container exited with code {code}")

    def run(self, i: Instance, text: str = "success, running image") -> None:
        """The container is up. What it does from here is its own affair."""
        i.has_booted = True
        i.started_ms = self.now_ms if i.started_ms is None else i.started_ms
        i.exit_code = None
        i.beat_ms = self.now_ms
        self.set(i, actual="running", cur="running", next="running", msg=f"{text} {i.image}", ports_open=True)
        i.write(self.now_ms, f"container {i.id} starts\n")
        if i.onstart:
            i.write(self.now_ms, f"onstart: {i.onstart.splitlines()[0][:60]}\n")
        i.say(self.now_ms, "container started")
        if self.market.ssh is not None and i.runtype != "args":
            self.market.ssh.open(i)
        if self.market.on_rent is not None:
            self.market.on_rent(i)

    # GPUs.

    def hold(self, i: Instance) -> bool:
        """Take its GPUs back. False when another instance has one of them."""
        taken = i.machine.taken
        if any(taken.get(index, i.id) != i.id for index in i.offer.gpus):
            return False
        for index in i.offer.gpus:
            taken[index] = i.id
        self.market.refresh_offers(i.machine)
        return True

    def release(self, i: Instance) -> None:
        for index in i.offer.gpus:
            if i.machine.taken.get(index) == i.id:
                del i.machine.taken[index]
        self.market.refresh_offers(i.machine)
