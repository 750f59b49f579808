"""The lives of instances, ordinary and nasty: each yields the seconds until it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.fakes.vast.instances import LOADING, Instance

if TYPE_CHECKING:
    from tests.fakes.vast.lifecycle import Lifecycle

LAYERS = (
    "3c645031de29",
    "0d6448aff889",
    "0a7674e3e8fe",
    "b71b637b97c5",
    "56dc85502937",
    "ec6d5f6c9ed9",
    "47b8539d532f",
)
UNAVAILABLE = "Required resources are currently unavailable, state change queued."
STEP_S = 30.0
"""At most that long between two texts of an image that moves on: a slow one has more layers."""
PROVISION_S, CREATE_S, START_S, STOP_S = 2.0, 2.0, 2.0, 4.0


def provisioning(life: Lifecycle, i: Instance) -> Iterator[float]:
    """Nothing yet, then a container that was created and not started."""
    yield PROVISION_S
    life.set(i, actual="created", cur="running", msg=None)
    i.say(life.now_ms, f"creating container from {i.image}")
    yield CREATE_S


def pulling(life: Lifecycle, i: Instance, seconds: float) -> Iterator[float]:
    """The image comes down layer by layer over `seconds`, each step another text."""
    words = ("Pulling fs layer", "Downloading", "Download complete", "Extracting", "Pull complete")
    more = [f"{n * 2_654_435_761:012x}" for n in range(int(seconds / STEP_S / len(words)) - len(LAYERS))]
    steps = [f"{layer}: {word}" for word in words for layer in (*LAYERS, *more)]
    for text in steps:
        life.set(i, actual="loading", msg=text)
        i.say(life.now_ms, text)
        yield seconds / len(steps)


def starting(life: Lifecycle, i: Instance) -> Iterator[float]:
    yield START_S
    life.run(i)


def normal(life: Lifecycle, i: Instance) -> Iterator[float]:
    """null, created, loading with progress, running."""
    yield from provisioning(life, i)
    yield from pulling(life, i, life.market.pull_s)
    yield from starting(life, i)


def stopping(life: Lifecycle, i: Instance, shows: str = "exited") -> Iterator[float]:
    """The state fields have changed already; the container follows, and its last message stays."""
    yield STOP_S
    life.set(i, actual=shows, ports_open=False)


def outbid(life: Lifecycle, i: Instance, resume_after_s: float | None) -> Iterator[float]:
    """A running container is stopped, one that loads goes on saying so; the state fields tell."""
    if i.actual not in LOADING:
        yield from stopping(life, i)
    if resume_after_s is not None:
        yield max(0.0, resume_after_s - STOP_S)
        yield from resuming(life, i)


def resuming(life: Lifecycle, i: Instance) -> Iterator[float]:
    """Back on its GPUs, unless somebody else has them."""
    if life.hold(i):
        life.set(i, intended="running", cur="running", next="running", actual="loading", msg="starting container")
        yield from starting(life, i)


def queued(life: Lifecycle, i: Instance) -> Iterator[float]:
    """A start that waits for its GPUs, and fires the moment that they are free."""
    while not life.hold(i):
        yield 10.0
    life.set(i, cur="running", actual="loading", msg="starting container")
    yield from starting(life, i)


def reverting(life: Lifecycle, i: Instance) -> Iterator[float]:
    """A start that waited, and was silently given up."""
    yield 30.0
    life.set(i, intended="stopped", next="stopped")


def left_stopped(life: Lifecycle, i: Instance) -> Iterator[float]:
    """A create that asked for a stopped instance."""
    life.release(i)
    life.set(i, actual="created", intended="stopped", cur="stopped", next="stopped")
    yield STOP_S
    life.set(i, actual="exited")


def unavailable(life: Lifecycle, i: Instance) -> Iterator[float]:
    """A create that could not start and was not cancelled: stopped, and billed for its disk."""
    life.release(i)
    life.set(i, actual="loading", intended="stopped", cur="stopped", next="stopped", msg=UNAVAILABLE)
    yield STOP_S
    life.set(i, actual="exited")
