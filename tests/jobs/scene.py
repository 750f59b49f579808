"""A scene: a controller, a marketplace, and machines brought to the point where a test begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from jobs import reconcile
from jobs.context import Context
from jobs.deploy import deploy
from jobs.domain import inputs
from jobs.domain.market_models import Machine, Mark, Offer
from jobs.domain.models import Event, Input, Instance, Proof, Run
from jobs.domain.runs import create_run, parse_request
from jobs.market import reputation
from jobs.prepare import prepare
from tests.fakes.market import FakeMarket
from tests.jobs.agent import Agent
from tests.jobs.proofs import CHAIN, VKEY

NO_REDIS = "unix:///nonexistent/valkey.sock"
CIRCUIT = "chain/8/bls12381"
T0 = 1_780_000_000_000


class Clock:
    """Milliseconds since the epoch, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = T0

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class Scene:
    """Runs use a built-in circuit whose key is `tests.jobs.proofs.VKEY`, so that proofs can be had at once."""

    def __init__(self, context: Context, clock: Clock, market: FakeMarket):
        self.context, self.clock, self.market = context, clock, market
        self._watched_ms = 0
        with context.sessions() as session:
            key = session.scalar(select(Input).where(Input.circuit == CIRCUIT))
        if key is None:
            facts = {"curve": "bls12381", "n_vars": 10, "n_public": 1}
            key = inputs.register(context, "zkey", "chain.zkey", "ab" * 32, 1000, facts, VKEY, "test")
            with context.sessions() as session:
                session.get_one(Input, key.id).circuit = CIRCUIT
                session.commit()

    # What an operator does.

    def request(self, **fields: Any) -> str:
        """A run, asked for."""
        data = {"circuit": CIRCUIT, "proofs": 2, "concurrency": 1, **fields}
        return create_run(self.context, parse_request(data), "operator")

    def upload_fixture(self) -> tuple[str, str]:
        """(key, witness) that snarkjs made, uploaded."""
        ids = []
        for kind, name in (("zkey", "circuit.zkey"), ("wtns", "witness.wtns")):
            with (CHAIN / name).open("rb") as file:
                ids.append(inputs.store_upload(self.context, kind, name, file, "operator").id)
        return ids[0], ids[1]

    # How far a run has come.

    def placed(self, **fields: Any) -> tuple[str, str]:
        """(run, instance): the intent is written down, nothing is rented."""
        if not self.market.scan():
            self.market.offer("o1")
        run_id = self.request(**fields)
        prepare(run_id, 1)
        return run_id, self.instance_of(run_id).id

    def rented(self, **fields: Any) -> tuple[str, str]:
        """(run, instance): the machine boots."""
        run_id, instance_id = self.placed(**fields)
        deploy(instance_id, 1)
        assert self.instance(instance_id).state == "loading"
        return run_id, instance_id

    def bootstrap_token(self, instance_id: str) -> str:
        return self.market.envs[self.instance(instance_id).label]["PROVEFLEET_BOOTSTRAP_TOKEN"]

    def registered(self, **fields: Any) -> Agent:
        """The agent of a machine that fetches its parameters."""
        run_id, instance_id = self.rented(**fields)
        return Agent(self.context, self.clock, run_id, instance_id).register(self.bootstrap_token(instance_id))

    def working(self, **fields: Any) -> Agent:
        """The agent of a machine that has its tasks."""
        agent = self.registered(**fields)
        agent.lease("benchmark" if self.run(agent.run_id).kind == "benchmark" else "prove")
        agent.pull()
        return agent

    # What time does.

    def tick(self, seconds: float = 1.0, times: int = 1) -> None:
        """Reconcile, as often as told, after a pause each."""
        for _ in range(times):
            self.clock.advance(seconds)
            self._watched_ms = reconcile.tick(self.context, self._watched_ms)

    def tick_until(self, holds: Callable[[], bool], limit: int = 60, seconds: float = 1.0) -> None:
        for _ in range(limit):
            if holds():
                return
            self.tick(seconds)
        raise AssertionError(f"still not after {limit} ticks; {self.told()}")

    # What became of it.

    def run(self, run_id: str) -> Run:
        with self.context.sessions() as session:
            return session.get_one(Run, run_id)

    def instance(self, instance_id: str) -> Instance:
        with self.context.sessions() as session:
            return session.get_one(Instance, instance_id)

    def instance_of(self, run_id: str) -> Instance:
        """The newest one."""
        with self.context.sessions() as session:
            query = select(Instance).where(Instance.run_id == run_id).order_by(Instance.created_ms.desc())
            return session.scalars(query).first() or _missing()

    def instances(self) -> list[Instance]:
        with self.context.sessions() as session:
            return list(session.scalars(select(Instance).order_by(Instance.created_ms)))

    def proofs(self, run_id: str, round_number: int = 1) -> list[Proof]:
        with self.context.sessions() as session:
            mine = (Proof.run_id == run_id, Proof.round == round_number)
            return list(session.scalars(select(Proof).where(*mine).order_by(Proof.index)))

    def machine(self, machine_id: str) -> Machine:
        with self.context.sessions() as session:
            return session.get_one(Machine, ("local", machine_id))

    def mark(self, machine_id: str) -> Mark | None:
        """The worst one that counts now."""
        with self.context.sessions() as session:
            return reputation.current(session, self.clock(), "local", machine_id)

    def mark_kind(self, machine_id: str) -> str:
        mark = self.mark(machine_id)
        return mark.kind if mark else ""

    def offers(self) -> list[Offer]:
        with self.context.sessions() as session:
            return list(session.scalars(select(Offer).where(Offer.gone_ms.is_(None)).order_by(Offer.offer_id)))

    def events(self, kind: str = "") -> list[Event]:
        with self.context.sessions() as session:
            found = session.scalars(select(Event).order_by(Event.id))
            return [e for e in found if not kind or e.kind == kind]

    def told(self) -> str:
        """The last events, for a failing test."""
        return "\n".join(f"{e.kind} {e.old}->{e.new} {e.reason}" for e in self.events()[-15:])


def _missing() -> Instance:
    raise AssertionError("this run has no instance")
