"""Witnesses end with their run, and not before its machine is gone."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import SecretStr

from jobs.context import Context, use
from jobs.prepare import witness_prefix
from jobs.tidy import tidy
from tests.jobs.scene import Scene


def test_witnesses_end_with_their_run(scene: Scene, make_context: Callable[..., Context]) -> None:
    agent = scene.working()
    prefix = witness_prefix(agent.run_id)

    def left() -> list[str]:
        return [info.key for info in scene.context.store.list(prefix)]

    made = left()
    assert len(made) >= 2
    tidy()
    assert left() == made
    scene.market.exit(scene.instance(agent.instance_id).label)
    scene.tick_until(lambda: scene.run(agent.run_id).state == "failed")
    tidy()
    assert left() == made  # the verdict is given, but the machine is still there
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")
    use(make_context(s3_endpoint="http://127.0.0.1:1", s3_secret_access_key=SecretStr("x")))
    tidy()
    use(scene.context)
    assert left() == made
    assert scene.events("run.tidied") == []
    for _ in range(2):
        tidy()
    assert left() == []
    assert len(scene.events("run.tidied")) == 1
