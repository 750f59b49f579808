"""Single chunks become segments, nothing is lost on the way, and what they were made of goes an hour later."""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import select

from jobs.collect import collect_logs
from jobs.compact import compact, compact_instance
from jobs.domain import archive
from jobs.domain.archive_models import Archive, Discard
from jobs.domain.runs import cancel_run
from jobs.tidy import delete_discarded
from logs.reader import StreamReader
from logs.wire import bundle_key, chunk_key
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene

HOUR_S = 3601


def shipped(scene: Scene, count: int) -> Agent:
    agent = scene.working()
    for n in range(count):
        agent.ship("bench", f"line {n}\n")
    return agent


def segments(scene: Scene, agent: Agent) -> list[tuple[int, int]]:
    with scene.context.sessions() as session:
        held = archive.segments_of(session, agent.instance_id, "bench")
    return [(segment.first_seq, segment.last_seq) for segment in held]


def objects(scene: Scene, agent: Agent) -> list[str]:
    prefix = f"runs/{agent.run_id}/{agent.instance_id}/bench/"
    return [info.key.removeprefix(prefix) for info in scene.context.store.list(prefix)]


def text(scene: Scene, agent: Agent) -> bytes:
    with scene.context.sessions() as session:
        records = archive.records_of(session, agent.instance_id)["bench"]
        held = archive.places_of(session, agent.instance_id)["bench"]
    reader = StreamReader(scene.context.store, agent.run_id, agent.instance_id, "bench", records, held)
    assert not any(line.gap for line in reader.lines(1, 500))
    return b"".join(reader.raw())


def test_a_stream_that_is_still_shipped(scene: Scene) -> None:
    agent = shipped(scene, 10)
    assert compact_instance(scene.context, agent.instance_id, at_least=11)
    assert segments(scene, agent) == []
    assert compact_instance(scene.context, agent.instance_id, at_least=10)
    assert segments(scene, agent) == [(0, 9)]
    agent.ship("bench", "line 10\n")
    several = [agent.cut("bench", f"line {n}\n") for n in range(11, 16)]
    agent.send_all("bench", several)
    assert segments(scene, agent) == [(0, 9), (11, 15)]
    for n in range(16, 20):
        agent.ship("bench", f"line {n}\n")
    assert compact_instance(scene.context, agent.instance_id, at_least=2)
    assert segments(scene, agent) == [(0, 9), (11, 15), (16, 19)]  # a single one between two stays as it is
    assert text(scene, agent) == b"".join(b"line %d\n" % n for n in range(20))

    # What was replaced goes when nobody can be reading it any more.
    before = objects(scene, agent)
    delete_discarded(scene.context)
    assert objects(scene, agent) == before
    scene.clock.advance(HOUR_S)
    delete_discarded(scene.context)
    assert [name for name in objects(scene, agent) if not name.startswith("_segments")] == ["0000000010.zst"]
    assert len(objects(scene, agent)) == 4
    assert text(scene, agent) == b"".join(b"line %d\n" % n for n in range(20))
    with scene.context.sessions() as session:
        assert session.scalar(select(Discard)) is None


def test_what_is_sealed_is_put_together_whole(scene: Scene) -> None:
    agent = shipped(scene, 5)
    compact()
    assert segments(scene, agent) == []
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    assert agent.seal().accepted
    compact_instance(scene.context, agent.instance_id, at_least=2)
    collect_logs(agent.instance_id, 1)
    assert scene.instance(agent.instance_id).evidence == "complete"
    compact()
    with scene.context.sessions() as session:
        assert session.get_one(Archive, agent.instance_id).compacted_ms == scene.clock()
    assert segments(scene, agent) == [(0, 4)]
    bundle = scene.context.store.get(bundle_key(agent.run_id, agent.instance_id), 1 << 24)
    assert zipfile.ZipFile(io.BytesIO(bundle)).read("streams/bench.log") == text(scene, agent)


def test_a_chunk_that_the_store_lost_is_left_out(scene: Scene) -> None:
    agent = shipped(scene, 7)
    scene.context.store.delete(chunk_key(agent.run_id, agent.instance_id, "bench", 3))
    compact_instance(scene.context, agent.instance_id, at_least=2)
    assert segments(scene, agent) == [(0, 2), (4, 6)]
    with scene.context.sessions() as session:
        kept = set(session.scalars(select(Discard.object_key)))
    assert chunk_key(agent.run_id, agent.instance_id, "bench", 3) not in kept


def test_two_workers_at_once(scene: Scene) -> None:
    """Whoever comes second throws its own segment away."""
    agent = shipped(scene, 12)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: compact_instance(scene.context, agent.instance_id, at_least=2), range(3)))
    assert segments(scene, agent) == [(0, 11)]
    scene.clock.advance(HOUR_S)
    delete_discarded(scene.context)
    assert len(objects(scene, agent)) == 1
    assert text(scene, agent) == b"".join(b"line %d\n" % n for n in range(12))
