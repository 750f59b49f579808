"""A real RQ worker for a scene that has Redis."""

from __future__ import annotations

from rq import SimpleWorker
from rq.serializers import JSONSerializer

from jobs import queue
from tests.jobs.scene import Scene


def work(scene: Scene) -> None:
    """All that is queued now, by a worker that ends when nothing is left."""
    queues = [queue.queue(scene.context, name) for name in queue.QUEUES]
    SimpleWorker(queues, connection=scene.context.redis, serializer=JSONSerializer).work(
        burst=True, logging_level="ERROR"
    )
