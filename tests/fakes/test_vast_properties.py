"""What holds whatever happens on the market, in any order."""

from __future__ import annotations

from itertools import combinations
from random import Random

import httpx
import pytest

from tests.fakes.conftest import KEY, Customer
from tests.fakes.vast import motion, nasty
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.market import Market

STATUSES = ("running", "frozen", "unknown", "offline", "exited", "hibernating")


def anything(rng: Random, market: Market, customer: Customer) -> None:
    """One thing that a customer or the market may do."""
    mine = list(market.accounts[0].live.values())
    i: Instance | None = rng.choice(mine) if mine else None
    what = rng.randrange(12)
    if what < 3 and market.offers:
        offer = rng.choice(list(market.offers.values()))
        price = None if rng.random() < 0.5 else round(offer.dph_base * rng.uniform(0.2, 1.0), 4) or None
        customer.create(offer, disk=rng.choice((8, 20, 100)), price=price, cancel_unavail=rng.random() < 0.5)
    elif what == 3:
        motion.tick(market)
    elif what == 4:
        market.life.lives.append(rng.choice(nasty.TROUBLES))
    elif i is None:
        market.add_machine(num_gpus=rng.choice((1, 2, 4)))
    elif what == 5:
        customer.destroy(i)
    elif what == 6:
        customer.set(i, state=rng.choice(("running", "stopped")))
    elif what == 7:
        market.life.outbid(i, rng.choice((None, 30.0, 600.0)))
    elif what == 8:
        market.life.set(i, actual=rng.choice(STATUSES))
    elif what == 9:
        market.transfer(i, rng.randrange(10**10), rng.randrange(10**10))
    elif what == 10:
        motion.reprice(market, i.machine, rng.uniform(0.1, 0.9))
    else:
        market.scenario(rng.choice(("N1", "N2", "N4:applied", "N6", "N7", "N23:reappears", "N3")))


@pytest.mark.parametrize("seed", range(12))
def test_money_and_gpus_are_where_they_belong(seed: int) -> None:
    rng = Random(seed)
    market = Market(seed)
    market.limits.enforce = False
    market.add_account(KEY, credit=40.0)
    customer = Customer(market)
    market.seed_offers(8)
    for _ in range(80):
        try:
            anything(rng, market, customer)
        except httpx.TransportError:
            pass
        market.advance(rng.choice((0, 1, 7, 60, 1800)))

        assert 40.0 - market.accounts[0].purse.credit == pytest.approx(market.bill(), abs=1e-7)
        for machine in market.machines.values():
            sold = machine.taken.keys()
            assert not any(set(gpus) & sold for gpus in machine.offers)
            assert all(o is market.offers[o.id] for o in machine.offers.values())
        working = [i for i in market.live() if i.cur == "running"]
        for a, b in combinations(working, 2):
            shared = a.machine is b.machine and set(a.offer.gpus) & set(b.offer.gpus)
            assert not shared or market.double_rent
        assert {i.id for i in market.live()} == market.accounts[0].live.keys()
        assert all(i.meter.dollars_per_hour == 0 for i in market.instances.values() if not i.live)
