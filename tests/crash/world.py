"""One controller over its deaths, its marketplace and its machines, in virtual time.

A world is brought to a stage once, and forked for each schedule that begins there: see `forked`.
"""

from __future__ import annotations

import io
import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr
from redis import Redis
from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.pool import QueuePool

from jobs import reconcile
from jobs.context import Context, use
from jobs.domain import deadlines
from jobs.domain.controller import controller_id
from jobs.domain.db import on_sqlite
from jobs.domain.instances import request_destroy
from jobs.domain.models import Instance, Run
from jobs.domain.runs import cancel_run, create_run, parse_request
from jobs.domain.states import ENDED, VERDICTS, WORKING
from jobs.domain.work import transaction
from jobs.market import billing
from jobs.prepare import prepare
from jobs.settings import Settings
from jobs.watch import watch
from tests.crash.cuts import Cuts, CutTransport, Died, s3_error
from tests.crash.ground import Ground
from tests.crash.machine import Machine
from tests.crash.s3 import ENDPOINT
from tests.fakes.vast.app import create_app
from tests.fakes.vast.instances import Instance as Rented
from tests.fakes.vast.market import Market
from tests.jobs.scene import CIRCUIT, NO_REDIS

KEY = "the-account-key-that-must-stay-here"
LEASE_S = 300
COMPILED: dict[Any, Any] = {}  # statements, for all engines: a fork would compile each of them anew
LISTED_AFTER_S = 6.0  # by then the list that we go by is read anew
QUICK_TICKS, MOST_TICKS = 16, 80
TROUBLES = {
    "the list fails": ("GET /api/v1/instances", "500_before", 2),
    "the list is half a page": ("GET /api/v1/instances", "truncated"),
    "a destroy is a lie": ("DELETE /api/v0/instances/{id}", "lie"),
    "destroys are refused": ("DELETE /api/v0/instances/{id}", "503_after", 2),
    "too many requests": ("PUT /api/v0/asks/{id}", "429_text"),
    "the gateway gives up after the create": ("PUT /api/v0/asks/{id}", "504_after"),
    "the create says nothing": ("PUT /api/v0/asks/{id}", "empty"),
    "logs can't be asked for": ("PUT /api/v0/instances/request_logs/{id}", "500_before", 3),
}
EVENTS = (
    *TROUBLES, "a destroyed machine shows again", "prices moved", "outbid", "the host is offline",
    "the container ended", "new machines are listed late",
)  # fmt: skip
IMAGE = "registry.test/provefleet/payload@sha256:" + "5" * 64


class World:
    """`tick` lets the controller work, `pass_time` the rest of the world. A killed process has a successor at once."""

    def __init__(self, ground: Ground, seed: int, offers: int = 3):
        self.cuts = Cuts(echo=self._echo)
        self.s3 = ground.s3
        self.objects = self.s3.objects = {}
        self.market = Market(seed=seed)
        self.market.pull_s = 1.0
        self.market.add_account(KEY, credit=50.0, name="ours")
        for _ in range(offers):
            self.market.add_machine("RTX 4090")
        stranger = self.market.add_account("a-strangers-key", name="stranger")
        self.market.add_instance(stranger, "somebody else's")
        self.market_transport = httpx.WSGITransport(app=create_app(self.market))
        self.market.on_rent, self.market.on_destroy = self._booted, self._gone
        self.machines: list[Machine] = []
        self.controller_is_up = True
        self.helpless = False
        self.unsealed: list[str] = []
        self.log = _listen()
        self.settings = _settings(ground.folder)
        self._database = ground.new_file()
        shutil.copy(ground.template, self._database)
        self._paced: dict[str, int] = {}  # what Redis would remember
        # Made once, for all forks and all deaths: an engine learns its statements, and its first connection, slowly.
        self._engine, self._mortal_engine = self._new_engine(), self._new_engine()
        self._mortal(self._mortal_engine)
        self._redis = Redis.from_url(NO_REDIS)
        self.machine_app = self._context(cut=False)
        self.process = self._context(cut=True)
        with self.as_machine_app(), transaction(self.machine_app) as session:
            self.ours = f"provefleet:{controller_id(session, self.machine_app)}:"
        self.market.add_instance(self.market.accounts[0], "provefleet:" + "0" * 32 + ":" + "1" * 32)

    def now_ms(self) -> int:
        return self.market.now_ms

    def _echo(self, call: Callable[[], Any]) -> Any:
        """What the network repeats is no impatience of ours."""
        before = len(self.market.violations)
        try:
            return call()
        finally:
            del self.market.violations[before:]

    def _context(self, cut: bool) -> Context:
        context = Context(self.settings, now_ms=self.now_ms, sleep=self.market.advance)
        context.paced = self._paced
        context.vast_transport = CutTransport(self.market_transport, self.cuts) if cut else self.market_transport
        context.store = self.s3.store
        context.engine = self._mortal_engine if cut else self._engine
        context.redis = self._redis
        return context

    def _new_engine(self) -> Engine:
        """As the product's, but for connections that are kept: to open one takes longer than what is done with it."""
        engine = create_engine(
            "sqlite://",
            poolclass=QueuePool,
            creator=lambda: sqlite3.connect(self._database, check_same_thread=False),
            execution_options={"compiled_cache": COMPILED},
        )
        on_sqlite(engine)
        return engine

    def _mortal(self, engine: Engine) -> None:
        """The dead neither read nor write; and a process may die right before a commit."""

        @event.listens_for(engine, "before_cursor_execute")
        def _(*_: Any) -> None:
            if self.cuts.dead:
                raise Died

        @event.listens_for(engine, "commit")
        def _(_connection: Any) -> None:
            self.cuts.commit()

    @contextmanager
    def as_machine_app(self) -> Iterator[None]:
        """In the process of the machine app or the site, which is not cut."""
        around, self.s3.around = self.s3.around, lambda _name, call: call()
        try:
            yield
        finally:
            self.s3.around = around

    def become(self, ground: Ground) -> None:
        """In a fork: go on with a database of our own, and never touch a connection of the parent's."""
        parents, self._database = self._database, ground.new_file()
        with sqlite3.connect(parents) as old, sqlite3.connect(self._database) as new:
            old.backup(new)
        self.objects = self.s3.objects = dict(self.objects)
        for engine in (self._engine, self._mortal_engine):
            engine.dispose(close=False)
        self.machine_app, self.process = self._context(cut=False), self._context(cut=True)
        for machine in self.machines:
            machine.use(self.machine_app)

    def become_worker(self, url: str) -> None:
        """In a fork: a worker on the parent's database, that speaks to the market at `url` by a socket."""
        now = self.now_ms()
        for engine in (self._engine, self._mortal_engine):
            engine.dispose(close=False)
        settings = self.settings.model_copy(update={"vast_url": url})
        self.process = Context(settings, now_ms=lambda: now, sleep=lambda _: None)
        self.process.engine, self.process.store, self.process.redis = self._engine, self.s3.store, self._redis

    @contextmanager
    def _mortally(self) -> Iterator[None]:
        """In a worker's process: it may die in here, and then a new one takes its place."""
        self.s3.around = lambda name, call: self.cuts.around(name, call, s3_error, sent=False)
        use(self.process)
        try:
            yield
        except Died:
            self.process.engine.dispose()
            self.cuts.dead = False
            self.process = self._context(cut=True)
        finally:
            self.s3.around = lambda _name, call: call()

    # What happens.

    def ask(self) -> str:
        """An operator asks for a run; the limits leave room for three machines one after the other."""
        request = {"circuit": CIRCUIT, "proofs": 1, "provider": "vast", "max_duration_s": 900, "lease_s": LEASE_S}
        with self.as_machine_app():
            return create_run(self.machine_app, parse_request(request), "operator")

    def tick(self) -> None:
        """All of the controller works once, and then the machines."""
        self.prepare()
        self.jobs()
        self.reconcile()
        self.act()

    def prepare(self) -> None:
        """The runs that wait for a machine."""
        for run_id in self._runs_to_prepare():
            with self._mortally():
                prepare(run_id, 1)

    def jobs(self) -> None:
        """Every job that is due: without Redis, reconcile does them itself."""
        with self._mortally():
            reconcile.wake_due(self.process)

    def reconcile(self) -> None:
        """The rest of reconcile's tick, without the provider `local`, which has nothing to cut."""
        with self._mortally():
            deadlines.enforce(self.process)
            watch(self.process, "vast")
            billing.tick(self.process)

    def again(self) -> None:
        """Every job once more, as RQ may: the same call for the same row."""
        for row in self.rows():
            job = {"renting": "deploy", "sealing": "collect_logs", "destroying": "destroy"}.get(row.state)
            if job:
                with self._mortally():
                    reconcile.INLINE[job](row.id, row.job_attempt)

    def pass_time(self, seconds: float) -> None:
        self.market.advance(seconds)
        self.act()

    def away(self, seconds: float) -> None:
        """The whole controller is down for so long; machines find nobody."""
        # Where the container does not run either, nobody is left who could end it: only then a bill has no bound.
        self.helpless = self.helpless or any(i.actual != "running" for i in self.market.live(self.ours))
        self.controller_is_up = False
        for _ in range(4):
            self.pass_time(seconds / 4)
        self.controller_is_up = True

    def operator(self, what: str) -> None:
        """A person on the site cancels what runs, or has its machine destroyed by force; or asks for one more run."""
        with self.as_machine_app():
            if what == "asks":
                self.ask()
                return
            for row in self.rows():
                if what == "cancels" and row.run_id:
                    cancel_run(self.machine_app, row.run_id, "operator", "for this test")
                elif what == "forces" and row.state in WORKING:
                    request_destroy(self.machine_app, row.id, "operator", "for this test", force=True)

    def trouble(self, what: str) -> None:
        """What the marketplace and its hosts do to us."""
        mine = self.market.live(self.ours)
        if what in TROUBLES:
            self.market.fault(*TROUBLES[what])
        elif what == "a destroyed machine shows again":
            self.market.life.reappearing += 1
        elif what == "prices moved":
            for offer in list(self.market.offers.values()):
                self.market.renew(offer)
        for rented in mine:
            if what == "outbid":
                self.market.life.outbid(rented, 200.0)
            elif what == "the host is offline":
                self.market.life.set(rented, actual="offline")
            elif what == "the container ended":
                self.market.life.exit(rented, 137)
            elif what == "new machines are listed late":
                rented.listed_from_ms = self.now_ms() + 30_000

    def act(self) -> None:
        """The machines do what they do."""
        with self.as_machine_app():
            for machine in self.machines:
                machine.act()

    def _booted(self, rented: Rented) -> None:
        if (rented.label or "").startswith(self.ours) and all(m.rented is not rented for m in self.machines):
            self.machines.append(Machine(self, rented))

    def _gone(self, rented: Rented) -> None:
        """Nothing of ours may end with its evidence neither sealed nor given up on the record, unless by itself."""
        if not (rented.label or "").startswith(self.ours) or any(m.over for m in self.machines if m.rented is rented):
            return
        # An orphan that was adopted has a row of its own, beside the one that its label was made for.
        row = self.row_by_provider_id(str(rented.id)) or self.row_of(rented.label or "")
        kept = row is not None and (row.evidence_sha256 or row.evidence_gap or row.forced_by)
        if not kept:
            self.unsealed.append(f"{rented.label} in state {row.state if row else 'unknown'}")

    # What is true now.

    def rows(self) -> list[Instance]:
        with self.machine_app.sessions() as session:
            return list(session.scalars(select(Instance)))

    def row(self, instance_id: str) -> Instance | None:
        with self.machine_app.sessions() as session:
            return session.get(Instance, instance_id)

    def row_of(self, label: str) -> Instance | None:
        with self.machine_app.sessions() as session:
            return session.scalar(select(Instance).where(Instance.label == label))

    def row_by_provider_id(self, provider_id: str) -> Instance | None:
        with self.machine_app.sessions() as session:
            return session.scalar(select(Instance).where(Instance.provider_id == provider_id))

    def _runs_to_prepare(self) -> list[str]:
        now = self.now_ms()
        with self.process.sessions() as session:
            due = (Run.state.in_(("queued", "active")), Run.wake_at_ms <= now + 5_000)
            return list(session.scalars(select(Run.id).where(*due)))

    def at_rest(self) -> bool:
        """Every run has its verdict, every machine is accounted for, and the market has nothing of ours."""
        with self.machine_app.sessions() as session:
            working = session.scalar(select(Run.id).where(Run.state.not_in(VERDICTS)).limit(1))
            living = session.scalar(select(Instance.id).where(Instance.state.not_in(ENDED)).limit(1))
        return working is None and living is None and not self.market.live(self.ours)

    def finish(self, to_rest: bool) -> list[str]:
        """Nothing is cut any more. After one more list everything of ours must have an owner; with `to_rest` the
        controller works until all is over. Returns what was broken of the promises."""
        self.cuts.calm()
        self.market.faults.clear()
        self.market.advance(LISTED_AFTER_S)
        with self._mortally():
            watch(self.process, "vast")
        broken = self._without_owner()
        for n in range(MOST_TICKS if to_rest else 0):
            if self.at_rest():
                break
            self.tick()
            self.pass_time(LISTED_AFTER_S if n < QUICK_TICKS else 30.0)
        else:
            if to_rest and not self.at_rest():
                broken.append(f"not at rest: {[(r.state, r.reason) for r in self.rows()]}")
        return broken + self._broken() + (self._leaks() if to_rest else [])

    def _without_owner(self) -> list[str]:
        """What runs under our label, and no row that is not over stands for it."""
        owned = {name for row in self.rows() if row.state not in ENDED for name in (row.label, row.provider_id)}
        return [f"{i!r} runs without an owner" for i in self.market.live(self.ours) if not owned & {i.label, str(i.id)}]

    def _broken(self) -> list[str]:
        market = self.market
        broken = [f"two rentals for one intent: {label}: {ids}" for label, ids in market.double_rentals().items()]
        broken += [f"destroyed unsealed: {what}" for what in self.unsealed]
        broken += [f"touched what is not ours: {i!r}: {i.touched}" for i in market.foreign_touched()]
        broken += [f"the market's limits were broken: {violation}" for violation in market.violations]
        for row in self.rows():
            bill = market.bill(row.label)
            if row.run_id and not self.helpless and bill > row.reserved_dollars + 1e-9:
                broken.append(f"{row.label} cost ${bill:.4f} of ${row.reserved_dollars:.4f} reserved")
        return broken

    def _leaks(self) -> list[str]:
        """Where the account key is, and must not be."""
        with self.machine_app.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        places = {"the database": self._database.read_bytes(), "the log": self.log.getvalue().encode()}
        places |= {f"object {key}": data for key, (data, _) in self.objects.items()}
        places |= {f"the environment of {i.id}": repr(i.env).encode() for i in self.market.instances.values()}
        return [f"the account key is in {place}" for place, data in places.items() if KEY.encode() in data]

    def remove(self) -> None:
        """Nothing is left of its database."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._database}{suffix}").unlink(missing_ok=True)


def _listen() -> io.StringIO:
    """All that is logged in this process from now on, and nothing of it on the screen."""
    heard = io.StringIO()
    logging.basicConfig(stream=heard, level=logging.INFO, force=True)
    return heard


def _settings(folder: Path) -> Settings:
    return Settings(
        state_dir=folder,
        redis_url=SecretStr(NO_REDIS),
        database_url=SecretStr("sqlite://"),
        agent_bind="127.0.0.1:9",
        public_url="http://127.0.0.1:9",
        s3_endpoint=ENDPOINT,
        s3_public_endpoint="http://127.0.0.1:8",
        vast_url="http://127.0.0.1:7",
        vast_api_key=SecretStr(KEY),
        payload_image=IMAGE,
        lease_s=LEASE_S,
    )
