"""The agent's side of the protocol, without a machine: each call goes to the domain as the machine app would."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any

from gpu.protocol import (
    Lease,
    Leased,
    Progress,
    Pull,
    Pulled,
    Register,
    Registered,
    Result,
    Seal,
    Sealed,
    StreamEnd,
)
from jobs.context import Context
from jobs.domain import agents, evidence
from logs.chunks import ChunkCutter
from logs.wire import ChunkRecord
from tests.jobs.proofs import simulated

if TYPE_CHECKING:
    from tests.jobs.scene import Clock


class Agent:
    """One machine's agent. It remembers what it shipped, as the real one does."""

    def __init__(self, context: Context, clock: Clock, run_id: str, instance_id: str):
        self.context, self.clock = context, clock
        self.run_id, self.instance_id = run_id, instance_id
        self.token = ""
        self.registration: Registered | None = None
        self.cutters: dict[str, ChunkCutter] = {}
        self.raw_bytes: dict[str, int] = {}
        self.shipped: list[tuple[str, ChunkRecord, bytes]] = []

    def register(self, bootstrap_token: str, **facts: Any) -> Agent:
        message = Register(facts={"cpu": "test", **facts}, agent_version="1")
        self.registration = agents.register(self.context, bootstrap_token, message)
        self.token = self.registration.token
        return self

    def lease(self, stage: str = "params", **progress: Any) -> Leased:
        return agents.lease(self.context, self.token, Lease(Progress(stage, **progress), {"load": 0.5}))

    def pull(self, stage: str = "", round_number: int = 1) -> Pulled:
        if not stage:
            assert self.registration is not None
            stage = self.registration.spec.stages[-1]
        return agents.pull(self.context, self.token, Pull(stage, round_number))

    def result(self, index: int, round_number: int = 1, **fields: Any) -> None:
        agents.store_result(self.context, self.token, Result(index, round_number, **fields))

    def prove(self, index: int, round_number: int = 1) -> None:
        """Send a proof that holds, of what was asked for."""
        public = self._expected(index, round_number)
        self.result(index, round_number, ok=True, proof=simulated(public), public=public, machine_ms=900.0)

    def _expected(self, index: int, round_number: int) -> list[str]:
        from sqlalchemy import select

        from jobs.domain.models import Proof

        with self.context.sessions() as session:
            mine = (Proof.run_id == self.run_id, Proof.round == round_number, Proof.index == index)
            return session.scalars(select(Proof.expected_public).where(*mine)).one()

    def cut(self, stream: str, text: str) -> tuple[ChunkRecord, bytes]:
        """The next chunk of a stream, not shipped."""
        cutter = self.cutters.setdefault(stream, ChunkCutter(stream))
        cutter.feed(text.encode(), self.clock())
        cut = cutter.cut(self.clock())
        assert cut is not None
        self.raw_bytes[stream] = self.raw_bytes.get(stream, 0) + cut[0].raw_bytes
        return cut

    def ship(self, stream: str, text: str) -> None:
        record, frame = self.cut(stream, text)
        self.send(stream, record, frame)

    def send(self, stream: str, record: ChunkRecord, frame: bytes) -> Any:
        self.shipped.append((stream, record, frame))
        return evidence.store_chunk(self.context, self.token, stream, record.seq, record, frame)

    def send_all(self, stream: str, chunks: list[tuple[ChunkRecord, bytes]]) -> Any:
        """Many at once."""
        self.shipped += [(stream, *chunk) for chunk in chunks]
        return evidence.store_chunks(self.context, self.token, stream, chunks)

    def artifact(self, name: str, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        evidence.store_artifact(self.context, self.token, name, io.BytesIO(data), len(data), digest)

    def manifest(self, reason: str = "told to") -> Seal:
        streams = {
            name: StreamEnd(cutter.seq, cutter.line - 1, self.raw_bytes[name], cutter.prev_sha256)
            for name, cutter in self.cutters.items()
        }
        return Seal(streams, {"bench": 0}, {}, {"params": 1.0}, reason)

    def seal(self, reason: str = "told to") -> Sealed:
        return agents.seal(self.context, self.token, self.manifest(reason))
