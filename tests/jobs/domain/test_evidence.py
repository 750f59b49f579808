"""Chunks and artifacts on their way into the archive: once, in order, checked, and never acknowledged when lost."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zstandard
from pydantic import SecretStr
from sqlalchemy import select

from jobs.context import Context
from jobs.domain import archive, evidence
from jobs.domain.agents import AgentRefused
from jobs.domain.archive_models import Archive, Discard
from jobs.domain.models import Chunk, Instance
from jobs.domain.runs import cancel_run
from logs.errors import NoSuchObject, StoreError
from logs.reader import StreamReader
from logs.tail import TailUnavailable
from logs.wire import GENESIS, MAX_ARTIFACTS_BYTES, MAX_INSTANCE_BYTES, ChunkRecord, chunk_key
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene


def refused(code: str, call: Callable[[], Any]) -> AgentRefused:
    with pytest.raises(AgentRefused) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def keys(scene: Scene, agent: Agent) -> list[str]:
    return [info.key.rsplit("/", 2)[-2] for info in scene.context.store.list(f"runs/{agent.run_id}/")]


def test_chunks_are_stored_once_and_in_order(scene: Scene) -> None:
    agent = scene.registered()
    first, second, third = (agent.cut("bench", text) for text in ("a\n", "b\n", "c\n"))
    assert refused("out_of_order", lambda: agent.send("bench", *second)).status == 409
    assert agent.send("bench", *first).next_seq == 1
    assert agent.send("bench", *second).next_seq == 2
    # An acknowledgement was lost: the same chunk again, at once or much later.
    assert agent.send("bench", *second).next_seq == 2
    assert agent.send("bench", *first) == evidence.ChunkAck(True, 2)
    assert agent.send("bench", *third).next_seq == 3
    assert keys(scene, agent) == ["bench"] * 3


def ship_all(agent: Agent, chunks: list[tuple[ChunkRecord, bytes]]) -> Any:
    return agent.send_all("bench", chunks)


def lines_of(scene: Scene, agent: Agent) -> bytes:
    with scene.context.sessions() as session:
        records = archive.records_of(session, agent.instance_id)["bench"]
        segments = archive.places_of(session, agent.instance_id)["bench"]
    return b"".join(
        StreamReader(scene.context.store, agent.run_id, agent.instance_id, "bench", records, segments).raw()
    )


def test_many_at_once_are_one_object(scene: Scene) -> None:
    agent = scene.registered()
    chunks = [agent.cut("bench", f"line {n}\n") for n in range(12)]
    assert ship_all(agent, chunks[:6]).next_seq == 6
    # The answer was lost: they come again, now with more. Those that are in are passed over.
    assert ship_all(agent, chunks[:6]).next_seq == 6
    assert ship_all(agent, chunks[4:]).next_seq == 12
    assert keys(scene, agent) == ["_segments", "_segments"]
    assert lines_of(scene, agent) == b"".join(b"line %d\n" % n for n in range(12))
    assert ship_all(agent, [agent.cut("bench", "few\n"), agent.cut("bench", "are not\n")]).next_seq == 14
    assert sorted(keys(scene, agent)) == ["_segments", "_segments", "bench", "bench"]
    assert lines_of(scene, agent).endswith(b"line 11\nfew\nare not\n")


def test_of_many_at_once_all_are_taken_or_none(scene: Scene) -> None:
    agent = scene.registered()
    chunks = [agent.cut("bench", f"line {n}\n") for n in range(8)]
    refused("out_of_order", lambda: ship_all(agent, chunks[1:]))
    refused("chain_broken", lambda: ship_all(agent, [*chunks[:4], *chunks[5:]]))
    refused("bad_chunk", lambda: ship_all(agent, [*chunks[:7], (chunks[7][0], b"junk")]))
    assert keys(scene, agent) == []
    forged = Agent(scene.context, scene.clock, agent.run_id, agent.instance_id)
    ship_all(agent, chunks[:6])
    others = [forged.cut("bench", f"line {n}\n" if n != 3 else "other\n") for n in range(8)]
    forged.token = agent.token
    refused("conflict", lambda: ship_all(forged, others))
    assert lines_of(scene, agent) == b"".join(b"line %d\n" % n for n in range(6))


def test_the_same_chunks_by_many_calls_at_once(scene: Scene) -> None:
    """An agent that gave up waiting sends again while its first call is still under way, in other company."""
    agent = scene.registered()
    chunks = [agent.cut("bench", f"line {n}\n") for n in range(20)]

    def ship(end: int) -> None:
        for _ in range(50):
            try:
                return ship_all(agent, chunks[:end])
            except AgentRefused as error:
                if error.code != "overtaken":
                    raise
        raise AssertionError("it never got through")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ship, (5, 20, 9, 14)))
    assert lines_of(scene, agent) == b"".join(b"line %d\n" % n for n in range(20))
    # What nothing refers to is marked for deletion, and nothing else.
    with scene.context.sessions() as session:
        held = {segment.key(agent.run_id, agent.instance_id, "bench")
                for segment in archive.segments_of(session, agent.instance_id, "bench")}  # fmt: skip
        marked = set(session.scalars(select(Discard.object_key)))
    stored = {info.key for info in scene.context.store.list(f"runs/{agent.run_id}/") if "_segments" in info.key}
    assert stored - held == marked


def test_other_bytes_under_a_number_that_is_taken(scene: Scene) -> None:
    agent = scene.registered()
    agent.ship("bench", "a\n")
    forged = Agent(scene.context, scene.clock, agent.run_id, agent.instance_id)
    forged.token = agent.token
    assert refused("conflict", lambda: forged.ship("bench", "z\n")).status == 409


def test_a_broken_chain_is_refused(scene: Scene) -> None:
    agent = scene.registered()
    agent.ship("bench", "a\n")
    record, frame = agent.cut("bench", "b\n")
    for field in ({"prev_sha256": GENESIS}, {"first_line": 5}):
        bad = dataclasses.replace(record, **field)
        refused("chain_broken", lambda bad=bad: agent.send("bench", bad, frame))  # type: ignore[misc]
    agent.send("bench", record, frame)


def test_frames_that_lie(scene: Scene) -> None:
    agent = scene.registered()
    record, frame = agent.cut("bench", "a\n")
    store = evidence.store_chunk

    def send(record: ChunkRecord, frame: bytes, stream: str = "bench", seq: int = 0) -> Any:
        return store(scene.context, agent.token, stream, seq, record, frame)

    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(b"\0" * (256 << 20))
    for bad in (b"", b"junk", frame[:-1], frame + b"x", bomb, b"\0" * 100_000):
        assert refused("bad_chunk", lambda bad=bad: send(record, bad)).status == 400  # type: ignore[misc]
    refused("bad_chunk", lambda: send(record, frame, seq=1))
    for name in ("../x", "Bench", "a/b", "", "_evidence", "x" * 33):
        refused("bad_chunk", lambda name=name: send(record, frame, stream=name))  # type: ignore[misc]
    refused("bad_chunk", lambda: send(dataclasses.replace(record, lines=2), frame))
    refused("bad_chunk", lambda: send(dataclasses.replace(record, raw_sha256="0" * 64), frame))
    assert keys(scene, agent) == []
    with pytest.raises(AgentRefused, match="not known"):
        store(scene.context, "guess", "bench", 0, record, frame)


def test_quotas(scene: Scene) -> None:
    agent = scene.registered()
    for n in range(16):
        agent.ship(f"s{n}", "x\n")
    assert refused("quota", lambda: agent.ship("s16", "x\n")).status == 413
    with scene.context.sessions() as session:
        session.get_one(Archive, agent.instance_id).raw_bytes = MAX_INSTANCE_BYTES
        session.commit()
    assert refused("quota", lambda: agent.ship("s1", "y\n")).status == 413


def test_what_the_archive_does_not_take_is_not_acknowledged(scene: Scene, make_context: Callable[..., Context]) -> None:
    agent = scene.registered()
    down = make_context(s3_endpoint="http://127.0.0.1:1", s3_secret_access_key=SecretStr("x"))
    record, frame = agent.cut("bench", "a\n")
    with pytest.raises(StoreError):
        evidence.store_chunk(down, agent.token, "bench", 0, record, frame)
    with pytest.raises(StoreError):
        evidence.store_artifact(down, agent.token, "x", io.BytesIO(b"1"), 1, hashlib.sha256(b"1").hexdigest())
    with scene.context.sessions() as session:
        assert session.get(Chunk, (agent.instance_id, "bench", 0)) is None
    assert agent.send("bench", record, frame).next_seq == 1


def test_a_crash_between_the_bytes_and_the_row(scene: Scene) -> None:
    agent = scene.registered()
    record, frame = agent.cut("bench", "a\n")
    scene.context.store.put_once(chunk_key(agent.run_id, agent.instance_id, "bench", 0), frame)
    assert agent.send("bench", record, frame).next_seq == 1


def test_artifacts(scene: Scene) -> None:
    agent = scene.registered()
    agent.artifact("timings/a.json", b"{}")
    agent.artifact("timings/a.json", b"{}")
    agent.artifact("timings/a.json", b"other bytes change nothing")
    for name in ("../a", "/a", "a//b", ".hidden", "con", "a" * 300, "a\0b", ""):
        refused("bad_name", lambda name=name: agent.artifact(name, b"x"))  # type: ignore[misc]

    def store(data: bytes, length: int, sha256: str) -> None:
        evidence.store_artifact(scene.context, agent.token, "b", io.BytesIO(data), length, sha256)

    digest = hashlib.sha256(b"abc").hexdigest()
    for data, length, sha256 in ((b"ab", 3, digest), (b"abcd", 4, digest), (b"abc", 3, "0" * 64), (b"abc", -1, digest)):
        code = "bad_artifact"
        refused(code, lambda a=data, b=length, c=sha256: store(a, b, c))  # type: ignore[misc]
    assert refused("too_large", lambda: store(b"", 1 << 40, digest)).status == 413
    store(b"abcd", 3, digest)  # what comes after the announced length is not read


def test_artifacts_have_a_quota_of_bytes(scene: Scene) -> None:
    agent = scene.registered()
    agent.artifact("a", b"12345")
    agent.artifact("a", b"12345")
    with scene.context.sessions() as session:
        account = session.get_one(Archive, agent.instance_id)
        assert account.artifact_bytes == 5
        account.artifact_bytes = MAX_ARTIFACTS_BYTES - 3
        session.commit()
    assert refused("quota", lambda: agent.artifact("b", b"1234")).status == 413
    agent.artifact("b", b"123")
    refused("quota", lambda: agent.artifact("c", b"1"))


def test_an_instance_from_before_it_had_an_account(scene: Scene) -> None:
    agent = scene.registered()
    agent.ship("bench", "1234\n")
    agent.artifact("a", b"123")
    with scene.context.sessions() as session:
        session.delete(session.get_one(Archive, agent.instance_id))
        session.commit()
    agent.ship("bench", "5\n")
    with scene.context.sessions() as session:
        account = session.get_one(Archive, agent.instance_id)
    assert (account.raw_bytes, account.artifact_bytes) == (7, 3)


def test_nothing_is_taken_once_the_evidence_is_sealed(scene: Scene) -> None:
    agent = scene.registered()
    agent.ship("bench", "a\n")
    late = agent.cut("bench", "b\n")
    with scene.context.sessions() as session:
        session.get_one(Instance, agent.instance_id).evidence_sha256 = "ab" * 32
        session.commit()
    assert refused("sealed", lambda: agent.send("bench", *late)).status == 409
    assert refused("sealed", lambda: agent.artifact("late.txt", b"late")).status == 409
    with pytest.raises(NoSuchObject):
        scene.context.store.head(f"runs/{agent.run_id}/{agent.instance_id}/_artifacts/late.txt")


def test_a_machine_that_is_gone_is_told_so(scene: Scene) -> None:
    agent = scene.registered()
    with scene.context.sessions() as session:
        session.get_one(Instance, agent.instance_id).state = "destroyed"
        session.commit()
    assert refused("gone", lambda: agent.ship("bench", "a\n")).status == 410


def test_the_tail_is_best_effort(scene: Scene, redis_context: Context) -> None:
    agent = scene.registered()

    def send(context: Context, data: bytes = b"line\n", stream: str = "bench") -> None:
        evidence.store_tail(context, agent.token, stream, 1, data)

    send(redis_context)
    assert refused("too_large", lambda: send(redis_context, b"x" * 20_000)).status == 413
    refused("bad_stream", lambda: send(redis_context, stream="../x"))
    with pytest.raises(TailUnavailable):
        send(scene.context)


def test_records_are_read_back_in_order(scene: Scene) -> None:
    agent = scene.registered()
    for text in ("a\n", "b\n", "c"):
        agent.ship("bench", text)
        agent.ship("setup", text)
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    with scene.context.sessions() as session:
        records = archive.records_of(session, agent.instance_id)
    assert list(records) == ["bench", "setup"]
    shipped = [record for stream, record, _ in agent.shipped if stream == "bench"]
    assert records["bench"] == shipped
