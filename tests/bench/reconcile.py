"""How long reconcile's round takes while hundreds of machines run: SQL, the marketplace's pages, the account.

The fake marketplace answers in process, and waiting for its pace is left out: sleeping moves the clock only.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import httpx
from pydantic import SecretStr

from jobs import reconcile
from jobs.context import Context
from jobs.domain.controller import controller_id
from jobs.domain.db import migrate
from jobs.domain.instances import label_of
from jobs.domain.models import Instance, Run
from jobs.domain.work import transaction
from jobs.settings import Settings
from tests.fakes.memory import fast_parent
from tests.fakes.vast.app import create_app
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import IMAGE, KEY
from tests.jobs.scene import NO_REDIS, Clock

LEASE_S = 900


class Fleet:
    """`count` machines that are rented, heard of and at work, and the controller they belong to."""

    def __init__(self, folder: Path, count: int, database_url: str = ""):
        self.clock = Clock()
        self.market = Market(now_ms=self.clock)
        settings = Settings(
            state_dir=folder,
            database_url=SecretStr(database_url or f"sqlite:///{folder / 'bench.db'}"),
            redis_url=SecretStr(NO_REDIS),
            vast_api_key=SecretStr(KEY),
            vast_url="http://127.0.0.1:7",
            payload_image=IMAGE,
            public_url="http://127.0.0.1:9",
        )
        migrate(settings)
        self.context = Context(settings, now_ms=self.clock)
        self.context.sleep = self.clock.advance
        self.context.vast_transport = httpx.WSGITransport(create_app(self.market))  # type: ignore[arg-type]
        self.account = self.market.add_account(KEY, credit=1e6, name="ours")
        self._watched_ms = 0
        with transaction(self.context) as session:
            ours = controller_id(session, self.context)
        for _ in range(count):
            self._rent(ours)

    def _rent(self, ours: str) -> None:
        now, run_id, instance_id = self.clock(), self.context.new_id(), self.context.new_id()
        label = label_of(ours, instance_id)
        rented = self.market.add_instance(self.account, label, foreign=False)
        limits = {"max_duration_s": 86400, "proofs": 100, "concurrency": 1, "partition_workers": 1, "lease_s": LEASE_S}
        run = Run(
            id=run_id, kind="benchmark", payload="groth16", state="active", provider="vast", inputs={}, created_by="b",
            created_ms=now, started_ms=now, **limits,
        )  # fmt: skip
        instance = Instance(
            id=instance_id, run_id=run_id, label=label, provider="vast", offer_id=f"o{rented.id}",
            machine_id=str(rented.machine.id), provider_id=str(rented.id), state="benchmarking", state_ms=now,
            stage="benchmark", stage_ms=now, stage_deadline_ms=now + 86_400_000, moved_ms=now, dollars_per_hour=0.4,
            reserved_dollars=100.0, rented_ms=now, heard_ms=now, lease_expires_ms=now + 86_400_000, created_ms=now,
        )  # fmt: skip
        with self.context.sessions() as session:
            session.add_all([run, instance])
            session.commit()

    def cycle(self, seconds: float = 5.0) -> float:
        """Wall seconds of one round, `seconds` after the one before."""
        self.clock.advance(seconds)
        self.market.clock.catch_up()
        begun = time.perf_counter()
        self._watched_ms = reconcile.tick(self.context, self._watched_ms)
        return time.perf_counter() - begun


def measure(count: int = 500, cycles: int = 7) -> tuple[float, float]:
    """(median, worst) wall seconds of a round over `count` machines, its first (which writes every row) included."""
    with tempfile.TemporaryDirectory(prefix="provefleet-bench-", dir=fast_parent()) as folder:
        fleet = Fleet(Path(folder), count)
        rounds = [fleet.cycle() for _ in range(cycles)]
        with fleet.context.sessions() as session:
            states = {row.state for row in session.query(Instance)}
        assert states == {"benchmarking"}, f"a round ended machines that work: {states}"
        fleet.context.engine.dispose()
    return statistics.median(rounds), max(rounds)


if __name__ == "__main__":
    median, worst = measure()
    print(f"reconcile, 500 machines: {median:.2f} s a round, {worst:.2f} s at worst")
