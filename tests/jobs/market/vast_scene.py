"""A whole controller on the fake Vast.ai: provider and jobs as shipped, one clock, and machines that work."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from sqlalchemy import select

from jobs import reconcile
from jobs.context import Context
from jobs.domain.controller import controller_id
from jobs.domain.market_models import Mark
from jobs.domain.models import Instance, Run
from jobs.domain.states import ENDED, VERDICTS
from jobs.domain.tables import Base
from jobs.domain.work import transaction
from jobs.prepare import prepare
from logs.wire import artifact_key
from tests.fakes.vast import scenarios
from tests.fakes.vast.app import create_app
from tests.fakes.vast.instances import Instance as Rented
from tests.fakes.vast.market import Market
from tests.jobs.market.machine import Machine
from tests.jobs.market.wire import IMAGE, KEY
from tests.jobs.scene import Clock, Scene

URL = "http://127.0.0.1:7"
SETTINGS = {
    "vast_url": URL,
    "payload_image": IMAGE,
    "public_url": "http://127.0.0.1:9",
    "lease_s": 300,
}
MAX_OBJECT_BYTES = 64 << 20
# What would stop or start a machine, instead of ending it.
STOPS = {"PUT /api/v0/instances/{id}", "PUT /api/v0/instances"}


class OnlyThere(httpx.BaseTransport):
    """To the market, in process. Any other address is a leak."""

    def __init__(self, market: Market):
        self._inner = httpx.WSGITransport(create_app(market))  # type: ignore[arg-type]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert str(request.url).startswith(URL), f"a request left for {request.url}"
        return self._inner.handle_request(request)


class VastScene(Scene):
    """Runs go to provider `vast`. `tick` lets time pass for everybody: market, machines, controller.

    `market` follows the scene's clock and has our account, which somebody else uses too.
    """

    market: Market  # type: ignore[assignment]

    def __init__(self, context: Context, clock: Clock, market: Market):
        super().__init__(context, clock, market)  # type: ignore[arg-type]
        self.account = market.add_account(KEY, credit=50.0, name="ours")
        self.stranger = market.add_instance(self.account, "somebody else's")
        market.logs.base = URL
        market.on_rent = self._booted
        context.sleep = clock.advance
        context.vast_transport = OnlyThere(market)
        self.machines: dict[int, Machine] = {}
        self.proofs_a_tick = 1
        self.mute = 0  # of the machines that boot next, so many have an agent that never calls
        with transaction(context) as session:
            self.ours = f"provefleet:{controller_id(session, context)}:"

    def request(self, **fields: Any) -> str:
        return super().request(**{"provider": "vast", "max_dollars": 5.0, "lease_s": 300, **fields})

    def tick(self, seconds: float = 5.0, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(seconds)
            self.market.clock.catch_up()
            for machine in list(self.machines.values()):
                machine.act()
            for run_id in self._unplaced():
                prepare(run_id, 1)
            self._watched_ms = reconcile.tick(self.context, self._watched_ms)

    def until(self, holds: Callable[[], bool], limit: int = 300, seconds: float = 5.0) -> None:
        for _ in range(limit):
            if holds():
                return
            self.tick(seconds)
        raise AssertionError(f"still not after {limit} ticks of {seconds} s\n{self.told()}")

    def finish(self, run_id: str, limit: int = 300, seconds: float = 5.0) -> Run:
        """Until the run has its verdict and nothing of ours is rented any more."""
        self.until(lambda: self.run(run_id).state in VERDICTS and self.at_rest(), limit, seconds)
        return self.run(run_id)

    def at_rest(self) -> bool:
        with self.context.sessions() as session:
            return session.scalar(select(Instance.id).where(Instance.state.not_in(ENDED)).limit(1)) is None

    def machines_of(self, run_id: str) -> list[Instance]:
        """The run's machines that were really had, in their order."""
        return [i for i in self.instances() if i.run_id == run_id and i.rented_ms is not None]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events()]

    def left(self, run_id: str, seconds: float = 5.0) -> list[Instance]:
        """Both machines of a run whose first one comes to nothing, while it works."""
        self.proofs_a_tick = 0
        self.until(lambda: len(self.machines_of(run_id)) == 2, seconds=seconds)
        self.proofs_a_tick = 2
        assert self.finish(run_id).state == "passed", self.told()
        return self.machines_of(run_id)

    def deletes(self) -> int:
        return sum(seen.route == scenarios.DESTROY for seen in self.market.requests)

    def reasons(self) -> str:
        return "\n".join(event.reason for event in self.events())

    def story(self, instance: Instance) -> str:
        """All that is on record about one machine."""
        return "\n".join(f"{e.kind} {e.reason}" for e in self.events() if e.instance_id == instance.id)

    def marks(self) -> list[Mark]:
        with self.context.sessions() as session:
            return list(session.scalars(select(Mark)))

    def artifact(self, instance: Instance, name: str) -> bytes:
        return self.context.store.get(artifact_key(instance.run_id or "none", instance.id, name), MAX_OBJECT_BYTES)

    def _booted(self, rented: Rented) -> None:
        if (rented.label or "").startswith(self.ours) and rented.id not in self.machines:
            self.machines[rented.id] = Machine(self, rented)
            self.machines[rented.id].ended = self.mute > 0
            self.mute -= 1

    def _unplaced(self) -> list[str]:
        """Without Redis reconcile does every job itself but this one, which needs a worker."""
        due = (Run.state.in_(("queued", "active")), Run.wake_at_ms <= self.clock() + 5_000)
        with self.context.sessions() as session:
            return list(session.scalars(select(Run.id).where(*due)))

    # What must hold whatever happened.

    def check(self, logged: str = "") -> None:
        """The invariants of a scenario, once nothing of ours runs any more. `logged`: all that was written to logs."""
        market = self.market
        with self.context.sessions() as session:
            rows, runs = list(session.scalars(select(Instance))), list(session.scalars(select(Run)))
        owned = {name for row in rows if row.state not in ENDED for name in (row.label, row.provider_id)}
        assert [i for i in market.live(self.ours) if not i.foreign and not owned & {i.label, str(i.id)}] == []
        assert market.double_rentals() == {}
        assert market.foreign_touched() == []
        assert market.violations == []
        assert {seen.route for seen in market.requests} & STOPS == set()
        for row in rows:
            if row.rented_ms is not None and row.run_id is not None:
                assert row.evidence_sha256 or row.evidence_gap, f"{row.id}: neither evidence nor why there is none"
                cost = market.bill(int(row.provider_id or 0))
                assert cost <= row.reserved_dollars + 1e-9, f"it cost ${cost}, ${row.reserved_dollars} was held"
        for run in runs:
            cost = sum(market.bill(int(i.provider_id or 0)) for i in rows if i.run_id == run.id and i.rented_ms)
            assert run.max_dollars is None or cost <= run.max_dollars
            assert run.state not in VERDICTS or run.reason
        for where, text in self._everything_written(logged):
            assert market.key_seen_in(text) == [], f"the account's key is in {where}"

    def _everything_written(self, logged: str) -> list[tuple[str, str | bytes]]:
        with self.context.sessions() as session:
            found: list[tuple[str, str | bytes]] = [
                (table.name, repr(session.execute(table.select()).all())) for table in Base.metadata.sorted_tables
            ]
        rented = self.market.instances.values()
        found += [(f"container {i.id}", json.dumps([i.env, i.asked_env, i.args, i.onstart])) for i in rented]
        runs = {i.run_id or "none" for i in self.instances()}
        keys = [thing.key for run in runs for thing in self.context.store.list(f"runs/{run}/")]
        found += [(key, self.context.store.get(key, MAX_OBJECT_BYTES)) for key in keys]
        return [*found, ("the log", logged)]
