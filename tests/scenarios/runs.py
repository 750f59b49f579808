"""A run as an operator follows it: asked for, looked at in SQL, its machine found among the processes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import psutil
from sqlalchemy import select

from jobs.domain import inputs
from jobs.domain.archive import places_of, records_of
from jobs.domain.models import Event, Input, Instance, Proof, Run
from jobs.domain.runs import RunRequest, create_run
from jobs.domain.states import ENDED, VERDICTS
from logs.reader import StreamReader
from tests.scenarios.world import PATIENCE, World, wait_for

FIXTURE = Path(__file__).parents[1] / "fixtures" / "bls12381_chain1k"
SETTLE_S = 30
"""The promise: the verdict comes this long after the end of a fault, or after the last proof."""


class Asked:
    """One run that was asked for, and every question about it that a scenario has."""

    def __init__(self, world: World, run_id: str) -> None:
        self.world = world
        self.id = run_id

    def row(self) -> Run:
        with self.world.context.sessions() as session:
            return session.get_one(Run, self.id)

    def instances(self) -> list[Instance]:
        with self.world.context.sessions() as session:
            return list(
                session.scalars(select(Instance).where(Instance.run_id == self.id).order_by(Instance.created_ms))
            )

    def instance(self) -> Instance:
        return self.instances()[-1]

    def proofs(self) -> list[Proof]:
        with self.world.context.sessions() as session:
            return list(session.scalars(select(Proof).where(Proof.run_id == self.id).order_by(Proof.index)))

    def came(self) -> int:
        return sum(p.received_ms is not None for p in self.proofs())

    def events(self) -> list[Event]:
        with self.world.context.sessions() as session:
            return list(session.scalars(select(Event).where(Event.run_id == self.id).order_by(Event.id)))

    def state(self) -> str:
        """The instance's state, or the run's while there is none."""
        found = self.instances()
        return found[-1].state if found else self.row().state

    # Waiting

    def reaches(self, *states: str, budget_s: float = 60) -> str:
        def look() -> str | None:
            now = self.state()
            row = self.row()
            assert now in states or row.state not in VERDICTS or now not in ENDED, f"{row.state}: {row.reason}"
            return now if now in states else None

        return wait_for(f"run {self.id} in {states}", look, budget_s)

    def proves(self, count: int = 2, budget_s: float = 120) -> None:
        """In the middle of its benchmark: `count` proofs are here and more are to come."""

        def look() -> bool:
            row = self.row()
            assert row.state not in VERDICTS, f"{row.state}: {row.reason}"
            return self.came() >= count

        try:
            wait_for(f"{count} proofs of run {self.id}", look, budget_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from error
        assert self.came() < self.row().proofs, "the benchmark was over before the fault; ask for more proofs"

    def ends(self, budget_s: float = 120) -> Run:
        """Over: a verdict, and nothing of it left at the provider."""

        def look() -> Run | None:
            row = self.row()
            over = row.state in VERDICTS and all(i.state in ENDED for i in self.instances())
            return row if over else None

        try:
            return wait_for(f"the end of run {self.id}", look, budget_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from error

    def story(self) -> str:
        """What happened, for a failed assertion."""
        told = [f"{e.at_ms} {e.actor} {e.kind} {e.old}>{e.new} {e.reason}" for e in self.events()]
        row = self.row()
        return "\n".join([f"run {self.id} {row.state}, {row.stage}: {row.reason}", *told])

    # The machine

    def folder(self) -> Path:
        provider_id = self.instance().provider_id
        assert provider_id is not None
        return self.world.state_dir.resolve() / "local" / provider_id

    def agent(self) -> psutil.Process:
        return psutil.Process(int(json.loads((self.folder() / "instance.json").read_text())["pid"]))

    def program(self, word: str) -> psutil.Process:
        """The prover's process of that command (`serve`, `bench`)."""

        def look() -> psutil.Process | None:
            for process in self.agent().children(recursive=True):
                try:
                    if word in process.cmdline()[:6]:
                        return process
                except psutil.Error:
                    continue
            return None

        return wait_for(f"the machine runs {word}", look, 20)

    # What is left of it

    def text(self, stream: str, instance: Instance | None = None) -> str:
        instance = instance or self.instance()
        with self.world.context.sessions() as session:
            records = records_of(session, instance.id).get(stream, [])
            places = places_of(session, instance.id)[stream]
        reader = StreamReader(self.world.context.store, self.id, instance.id, stream, records, places)
        return b"".join(reader.raw()).decode(errors="replace")

    def last_words_ms(self) -> int:
        """When the newest line in the archive was written."""
        with self.world.context.sessions() as session:
            return max(r[-1].t_last_ms for r in records_of(session, self.instance().id).values())

    def passed_all(self, *, rentals: int = 1) -> None:
        """The verdict that it has without a fault."""
        row = self.row()
        assert (row.state, row.result.get("verified")) == ("passed", row.proofs), self.story()
        assert [p.verdict for p in self.proofs()] == ["valid"] * row.proofs
        rented = [i for i in self.instances() if i.rented_ms is not None]
        assert len(rented) == rentals, self.story()
        assert (rented[-1].state, rented[-1].evidence) == ("destroyed", "complete"), rented[-1].evidence_text

    def settled(self, fault_ended_ms: int) -> None:
        """The verdict came in time after the fault, or after the machine's last proof, whichever was later."""
        row = self.row()
        last = max([p.received_ms or 0 for p in self.proofs()])
        late = (row.ended_ms or 0) - max(fault_ended_ms, last)
        assert late <= SETTLE_S * 1000 * PATIENCE, f"the verdict came {late} ms after the fault's end\n{self.story()}"


def the_key(world: World, kind: str = "zkey", data: bytes | None = None, name: str = "") -> Input:
    """An upload: the fixture's own key or witness, or `data`."""
    file = FIXTURE / {"zkey": "circuit.zkey", "wtns": "witness.wtns"}[kind]
    content = io.BytesIO(file.read_bytes() if data is None else data)
    return inputs.store_upload(world.context, kind, name or file.name, content, "tester")


def ask(world: World, proofs: int = 6, **fields: object) -> Asked:
    """Ask for a benchmark of the fixture's circuit, as the form would."""
    if "zkey_id" not in fields and "circuit" not in fields:
        fields |= {"zkey_id": the_key(world).id, "witness_ids": [the_key(world, "wtns").id]}
    request = RunRequest.model_validate({"proofs": proofs, "concurrency": 2, "partition_workers": 1, **fields})
    return Asked(world, create_run(world.context, request, "tester"))
