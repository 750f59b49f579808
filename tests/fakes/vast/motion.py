"""The market moves: prices drift, others rent and leave, offers vanish and come back under new ids, bids rise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.vast import machines
from tests.fakes.vast.machines import Machine

if TYPE_CHECKING:
    from tests.fakes.vast.market import Market

SOMEBODY = -1
"""Who holds a GPU that another customer has rented."""


def let(market: Market, machine: Machine, count: int = 1) -> bool:
    """Another customer takes GPUs of a machine. False when it has not so many free."""
    free = machine.free()
    if len(free) < count:
        return False
    for index in free[:count]:
        machine.taken[index] = SOMEBODY
    market.refresh_offers(machine)
    return True


def leave(market: Market, machine: Machine) -> None:
    """The other customers of a machine are gone."""
    for index in [index for index, who in machine.taken.items() if who == SOMEBODY]:
        del machine.taken[index]
    market.refresh_offers(machine)


def reprice(market: Market, machine: Machine, min_bid_share: float) -> None:
    """The lowest bid changes: who bids less is out at once, who bids enough again comes back."""
    machine.min_bid_share = min_bid_share
    for i in list(market.instances.values()):
        if i.machine is not machine or not i.is_bid or not i.live:
            continue
        if i.cur == "running" and i.dph_base < i.offer.min_bid:
            market.life.outbid(i)
        elif i.cur == "stopped" and i.dph_base >= i.offer.min_bid and i.account.purse.credit > 0:
            market.life.resume(i)


def tick(market: Market) -> None:
    """One step of all of it. What we hold ourselves stays ours, though a bid may lose it."""
    rng = market.rng
    for offer in list(market.offers.values()):
        if rng.random() < 0.10:
            offer.price_factor = round(min(2.0, max(0.5, offer.price_factor * rng.lognormvariate(0.0, 0.06))), 4)
        if rng.random() < 0.03:
            market.renew(offer)
    for machine in list(market.machines.values()):
        chance = rng.random()
        if chance < 0.03:
            let(market, machine, rng.randrange(1, machine.num_gpus + 1))
        elif chance < 0.10:
            leave(market, machine)
        elif chance < 0.11:
            machine.rentable = rng.random() < 0.95
        elif chance < 0.12:
            machine.listed = rng.random() < 0.9
            market.refresh_offers(machine)
        elif chance < 0.14:
            reprice(market, machine, round(rng.uniform(0.4, 0.8), 3))
    if rng.random() < 0.2:
        _replace(market)


def _replace(market: Market) -> None:
    """An idle machine leaves for good, and another one comes."""
    idle = [machine for machine in market.machines.values() if not machine.taken]
    if idle:
        leaver = market.rng.choice(idle)
        leaver.listed = False
        market.refresh_offers(leaver)
        del market.machines[leaver.id]
    newcomer = machines.draw(market.rng, market.next_id("machine"), market.next_id("host"), market.now_ms)
    market.list_machine(newcomer)


def keep_moving(market: Market, every_s: float) -> None:
    """A `tick` every so often, from now on."""

    def again() -> None:
        tick(market)
        market.clock.after(every_s, again)

    market.clock.after(every_s, again)
