"""What old runs leave behind: nothing but what SQL knows, the manifest, and the lines that are cited."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.collect import collect_logs
from jobs.compact import compact
from jobs.context import Context, use
from jobs.domain import archive
from jobs.domain.db import writing
from jobs.domain.models import Artifact
from jobs.domain.runs import cancel_run
from jobs.log_search import Progress, Scope, search
from jobs.retention import expire, expire_instance
from jobs.tidy import delete_discarded
from logs.query import parse
from logs.reader import Line, StreamReader
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene

DAY_S, HOUR_S = 86_400, 3_601


@pytest.fixture
def scene(scene: Scene, make_context: Callable[..., Context]) -> Scene:
    """Cancelled runs expire after two days here, those that passed after one."""
    context = make_context(keep_cancelled_days=2, keep_passed_days=1)
    context.store = scene.context.store
    scene.context = context
    use(context)
    return scene


def over(scene: Scene, chunks: int = 30) -> Agent:
    """A run that was cancelled, sealed and destroyed. Each of its chunks has ten lines."""
    agent = scene.working()
    agent.send_all("bench", [agent.cut("bench", ten(n)) for n in range(chunks)])
    agent.artifact("notes.txt", b"of no use any more")
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    assert agent.seal().accepted
    collect_logs(agent.instance_id, 1)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")
    return agent


def ten(chunk: int) -> str:
    return "".join(f"this is line {chunk * 10 + n + 1}\n" for n in range(10))


def pin(scene: Scene, agent: Agent, lines: range, stream: str = "bench") -> None:
    with writing(scene.context.sessions) as session:
        archive.pin(session, scene.clock(), agent.instance_id, stream, lines, "test", "anna")


def page(scene: Scene, agent: Agent) -> list[Line]:
    with scene.context.sessions() as session:
        records = archive.records_of(session, agent.instance_id)["bench"]
        places = archive.places_of(session, agent.instance_id)
    return StreamReader(scene.context.store, agent.run_id, agent.instance_id, "bench", records, places["bench"]).lines(
        1, 500
    )


def left(scene: Scene, agent: Agent) -> list[str]:
    scene.clock.advance(HOUR_S)
    delete_discarded(scene.context)
    prefix = f"runs/{agent.run_id}/{agent.instance_id}/"
    return sorted(info.key.removeprefix(prefix) for info in scene.context.store.list(prefix))


def test_a_cited_line_never_expires(scene: Scene) -> None:
    agent = over(scene)
    for _ in range(2):
        pin(scene, agent, range(95, 96))
        pin(scene, agent, range(200, 203))
    whole = page(scene, agent)
    expire()
    assert page(scene, agent) == whole
    scene.clock.advance(2 * DAY_S)
    expire()
    lines = page(scene, agent)
    kept = [line for line in lines if not line.gap]
    assert {95, 200, 201, 202} <= {line.number for line in kept}
    assert len(kept) < 60
    assert all(line == whole[line.number - 1] for line in kept)
    assert [line.text.split(": ")[1][:10] for line in lines if line.gap] == ["expired on"] * 3
    told = scene.events("archive.expired")
    assert [event.actor for event in told] == ["retention"]
    names = left(scene, agent)
    assert [name.split("/")[0] for name in names] == ["_evidence", "bench", "bench"]
    assert names[0] == "_evidence/manifest.json"
    assert page(scene, agent) == lines
    # Once is enough, and compaction has nothing to do there.
    expire()
    compact()
    assert len(scene.events("archive.expired")) == 1
    # What SQL knows stays: the hash chain and the names of what there was.
    with scene.context.sessions() as session:
        assert len(archive.records_of(session, agent.instance_id)["bench"]) == 30
        assert session.get(Artifact, (agent.instance_id, "notes.txt")) is not None


def test_a_search_finds_what_is_left_of_an_expired_run(scene: Scene) -> None:
    agent = over(scene)
    pin(scene, agent, range(95, 96))
    scene.clock.advance(2 * DAY_S)
    expire()
    found, progress = [], Progress()
    with scene.context.sessions() as session:
        asked = {"clock_s": lambda: 0.0, "deadline_s": 9.0, "limit": 99, "progress": progress}
        for hit in search(session, scene.context.store, parse("this is line"), Scope(), **asked):  # type: ignore[arg-type]
            found += [hit.line] if hit else []
    assert 95 in found
    assert len(found) <= 20
    assert progress.unread == 0


def test_nothing_expires_unless_a_setting_says_so(scene: Scene, make_context: Callable[..., Context]) -> None:
    agent = over(scene, chunks=4)
    scene.clock.advance(10_000 * DAY_S)
    use(make_context())
    expire()
    use(make_context(keep_passed_days=1, keep_failed_days=1))
    expire()
    assert not any(line.gap for line in page(scene, agent))


def test_a_run_that_an_operator_keeps(scene: Scene) -> None:
    agent = over(scene, chunks=4)
    scene.clock.advance(2 * DAY_S)
    archive.keep_run(scene.context, agent.run_id, "anna", "the first of its kind")
    archive.keep_run(scene.context, agent.run_id, "bert", "again")
    expire()
    assert not expire_instance(scene.context, agent.instance_id)
    assert not any(line.gap for line in page(scene, agent))
    assert [(event.actor, event.reason) for event in scene.events("archive.kept")] == [
        ("anna", "the first of its kind")
    ]
    archive.let_go(scene.context, agent.run_id, "bert")
    expire()
    assert [line.gap for line in page(scene, agent)] == [True]


def test_a_store_that_is_away_loses_nothing(scene: Scene, make_context: Callable[..., Context]) -> None:
    agent = over(scene, chunks=4)
    pin(scene, agent, range(3, 4))
    scene.clock.advance(2 * DAY_S)
    use(make_context(s3_endpoint="http://127.0.0.1:1", keep_cancelled_days=2))
    expire()
    use(scene.context)
    assert not any(line.gap for line in page(scene, agent))
    expire()
    assert any(line.gap for line in page(scene, agent))


def test_a_file_of_the_provider_s_that_is_cited_stays(scene: Scene) -> None:
    agent = over(scene, chunks=4)
    pin(scene, agent, range(1, 2), stream="provider")
    scene.clock.advance(2 * DAY_S)
    expire()
    assert [name for name in left(scene, agent) if "_artifacts" in name] == ["_artifacts/provider.log"]
