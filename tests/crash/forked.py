"""A world in a process of its own, forked from one that was brought to its stage before: what took a hundred steps is
there in milliseconds, and exactly as it was."""

from __future__ import annotations

import gc
import os
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tests.crash.ground import Ground
from tests.crash.world import World


class Forked:
    """`do` calls a method of the world or of its cuts (`cuts.arm`). AssertionError holds the child's traceback."""

    def __init__(self, ground: Ground, world: World):
        self._ours, theirs = Pipe()
        gc.freeze()  # what is here already is never garbage: looking for it would copy every page of it
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()  # else the end of the parent would never be seen
            _serve(ground, world, theirs)
        theirs.close()

    def do(self, what: str, *arguments: Any) -> Any:
        self._ours.send((what, arguments))
        well, told = self._ours.recv()
        assert well, told
        return told

    def close(self) -> None:
        self._ours.close()
        os.waitpid(self._pid, 0)


def _serve(ground: Ground, world: World, orders: Connection) -> None:
    """The child's life; it never returns."""
    gc.disable()
    try:
        world.become(ground)
        while True:
            what, arguments = orders.recv()
            try:
                target: Any = world
                for name in what.split("."):
                    target = getattr(target, name)
                orders.send((True, target(*arguments) if callable(target) else target))
            except Exception:  # noqa: BLE001 - the parent raises it
                orders.send((False, traceback.format_exc()))
    except (EOFError, OSError):
        world.remove()
    finally:
        os._exit(0)
