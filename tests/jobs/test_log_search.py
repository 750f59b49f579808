"""Search over real chunks in a real S3, on both databases: nothing that is there is missed."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from jobs.domain.models import Chunk, Instance
from jobs.domain.search_models import ChunkGrams
from jobs.log_search import Hit, Progress, Scope, search
from logs.chunks import ChunkCutter
from logs.query import parse
from logs.wire import chunk_key
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene

EVERYWHERE = Scope()
NEEDLE = "CUDA_ERROR_OUT_OF_MEMORY"


def found(
    scene: Scene, text: str, where: Scope = EVERYWHERE, *, regex: bool = False, **more: object
) -> tuple[list[Hit], Progress]:
    progress = Progress()
    options: dict[str, object] = {"clock_s": lambda: 0.0, "deadline_s": 10.0, "limit": 100, **more}
    with scene.context.sessions() as session:
        told = search(session, scene.context.store, parse(text, regex=regex), where, progress=progress, **options)  # type: ignore[arg-type]
        hits = [hit for hit in told if hit is not None]
    return hits, progress


def lines_of(hits: list[Hit]) -> list[tuple[str, int]]:
    return [(hit.stream, hit.line) for hit in hits]


@pytest.fixture
def agent(scene: Scene) -> Agent:
    agent = scene.working(proofs=2)
    agent.ship("setup", "one\ntwo sm_120\nthree\n")
    for n in range(5):
        agent.ship("daemon", f"partition {n} done\nerrors: 0\n")
    agent.ship("daemon", f"thread panicked: {NEEDLE} at 0x7f00\nafter\n")
    return agent


def test_words_parts_phrases_and_expressions(scene: Scene, agent: Agent) -> None:
    hits, progress = found(scene, NEEDLE.lower())
    assert lines_of(hits) == [("daemon", 11)]
    assert (hits[0].text, hits[0].before, hits[0].after) == (
        f"thread panicked: {NEEDLE} at 0x7f00".encode(), b"", b"after"
    )  # fmt: skip
    assert progress.ended == "everything was searched"
    assert progress.read_bytes < progress.looked_bytes
    assert lines_of(found(scene, "R_OUT_OF_M")[0]) == [("daemon", 11)]
    assert lines_of(found(scene, "panicked 0x7f00")[0]) == [("daemon", 11)]
    assert lines_of(found(scene, r"sm_1[02]\d", regex=True)[0]) == [("setup", 2)]
    assert lines_of(found(scene, r"partition [13]|three", regex=True)[0]) == [
        ("daemon", 3),
        ("daemon", 7),
        ("setup", 3),
    ]
    assert found(scene, "nowhere")[0] == []
    assert found(scene, "nowhere")[1].read_bytes == 0


def test_a_line_that_runs_through_chunks_is_one_line(scene: Scene, agent: Agent) -> None:
    agent.ship("bench", "x\nthe end of this li")
    agent.ship("bench", "ne is in the next\n")
    agent.ship("bench", "y" * 60_000 + "middle" + "z" * 10)
    agent.ship("bench", "\n")
    assert lines_of(found(scene, "this line is")[0]) == [("bench", 2)]
    (hit,) = found(scene, "middlezz")[0]
    assert hit.line == 3
    assert b"middlezz" in hit.text
    assert len(hit.text) < 500


def test_chunks_are_read_together_and_each_hit_has_the_time_of_its_own(scene: Scene, agent: Agent) -> None:
    times, chunks = [], []
    for n in range(14):
        scene.clock.advance(2)
        times.append(scene.clock())
        chunks.append(agent.cut("bench", f"line a{n}\nq{n:07}x\n"))
    agent.send_all("bench", chunks)
    for asked in (r"q\d{7}x", r"^line a\d+$"):
        hits, progress = found(scene, asked, regex=True)
        assert [hit.line for hit in hits] == list(range(2 if "q" in asked else 1, 29, 2))
        assert [hit.t_ms for hit in hits] == times
        assert progress.read_bytes > 0


def test_a_line_of_megabytes_is_one_line(scene: Scene, agent: Agent) -> None:
    cutter = ChunkCutter("bench")
    cutter.feed(
        b"start " + random.Random(1).randbytes(3 << 20).replace(b"\n", b" ") + b" finish\nnext\n", scene.clock()
    )
    while (cut := cutter.cut(scene.clock())) is not None:
        agent.send("bench", *cut)
    assert lines_of(found(scene, "start finish")[0]) == [("bench", 1)]


def test_secrets_are_masked_before_a_line_is_cut(scene: Scene, agent: Agent) -> None:
    long = "x" * 300 + " password=" + "S3cretS3cret" * 30 + " needle " + "y" * 500
    agent.ship("bench", f"{long}\nanother needle\n{long}\n")
    hits, _ = found(scene, "needle")
    assert len(hits) == 3
    assert not any(b"S3cret" in text for hit in hits for text in (hit.text, hit.before, hit.after))


def test_windows_line_ends(scene: Scene, agent: Agent) -> None:
    agent.ship("bench", "one\r\nfoobar\r\n")
    assert lines_of(found(scene, "foobar$", regex=True)[0]) == [("bench", 2)]


def test_where_to_look(scene: Scene, agent: Agent) -> None:
    instance = scene.instance(agent.instance_id)
    inside = [
        Scope(run=agent.run_id[:8]), Scope(machine=instance.machine_id), Scope(stream="daemon"),
        Scope(outcome="active"),
        Scope(level="error"), Scope(from_ms=scene.clock.now_ms - 10_000, to_ms=scene.clock.now_ms + 10_000),
    ]  # fmt: skip
    outside = [
        Scope(run="ffff"), Scope(machine="none"), Scope(stream="setup"), Scope(outcome="passed"), Scope(gpu="5090"),
        Scope(image="sha256:zz"), Scope(from_ms=scene.clock.now_ms + 10_000), Scope(to_ms=1),
    ]  # fmt: skip
    assert all(lines_of(found(scene, NEEDLE, where)[0]) == [("daemon", 11)] for where in inside)
    assert all(found(scene, NEEDLE, where)[0] == [] for where in outside)
    assert found(scene, "errors:", Scope(level="error"))[0] == []
    with scene.context.sessions() as session:
        row = session.get_one(Instance, agent.instance_id)
        row.facts = {**row.facts, "gpus": [{"name": "NVIDIA GeForce RTX 5090"}]}
        session.commit()
    assert lines_of(found(scene, NEEDLE, Scope(gpu="rtx 5090"))[0]) == [("daemon", 11)]
    assert found(scene, NEEDLE, replace(Scope(), gpu="50_0"))[0] == []


def test_limits_are_told(scene: Scene, agent: Agent) -> None:
    hits, progress = found(scene, "done", limit=2)
    assert (len(hits), progress.ended) == (2, "the first 2 hits")
    ticks = itertools.count(0.0, 4.0)
    hits, progress = found(scene, "nowhere", clock_s=lambda: next(ticks))
    assert (hits, progress.ended) == ([], "stopped after 10 s")


def test_without_an_index_and_with_a_lost_chunk(scene: Scene, agent: Agent) -> None:
    with scene.context.sessions() as session:
        session.query(ChunkGrams).delete()
        session.commit()
        lost = session.query(Chunk).where(Chunk.stream == "daemon").order_by(Chunk.seq).first()
        assert lost is not None
        scene.context.store.delete(chunk_key(agent.run_id, agent.instance_id, "daemon", lost.seq))
    hits, progress = found(scene, NEEDLE)
    assert lines_of(hits) == [("daemon", 11)]
    assert progress.unread == 1
