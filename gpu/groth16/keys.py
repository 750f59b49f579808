"""Loaded proving keys under a memory budget: least recently used first out, never one that is in use."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu.errors import BadFile, KeyInUse, OutOfMemory
from gpu.groth16.key import ProvingKey, load_key
from gpu.groth16.ticket import Ticket

_POLL_S = 0.1  # how soon a waiting stage notices that its proof is no longer wanted

Identity = tuple[str, int, int, int]


@dataclass
class _Held:
    key: ProvingKey
    uses: int = 0
    used_at: float = field(default_factory=time.monotonic)


class KeyStore:
    """Keys by file identity: a file that changed on disk is another key. `budget` is in bytes, `wanted` as
    `load_key` takes it.
    """

    def __init__(self, pool: Executor, threads: int, budget: int, wanted: str = "scalar") -> None:
        self.budget = budget
        self._wanted = wanted
        self._pool = pool
        self._threads = threads
        # Loads queue behind one another: two at once would need twice the memory and gain no time. Whoever waits
        # for room waits at the head of that queue, so that a steady use of other keys can't starve it.
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._held: OrderedDict[Identity, _Held] = OrderedDict()

    @contextlib.contextmanager
    def using(self, path: str, ticket: Ticket | None = None) -> Iterator[ProvingKey]:
        """The key for as long as the block runs."""
        key = self.acquire(path, ticket or Ticket())
        try:
            yield key
        finally:
            self.release(key)

    def acquire(self, path: str, ticket: Ticket, loading: Callable[[], None] | None = None) -> ProvingKey:
        """The key, loaded if need be (`loading` is then called first), and kept until `release`.

        BadFile for a bad one, OutOfMemory for one over the budget, the ticket's errors while it waits.
        """
        identity = _identity(path)
        with self._in_turn(ticket):
            with self._changed:
                held = self._held.get(identity)
                if held is None:
                    self._make_room(path, identity[2], ticket)
            if held is None:
                if loading is not None:
                    loading()
                held = _Held(load_key(path, ticket.over(self._pool), self._threads, self._wanted))
            with self._changed:
                return self._admit(identity, held)

    def release(self, key: ProvingKey) -> None:
        """Ends one use of a key that `acquire` gave."""
        with self._changed:
            held = next(held for held in self._held.values() if held.key is key)
            held.uses -= 1
            held.used_at = time.monotonic()
            self._evict_idle()
            self._changed.notify_all()

    def preload(self, path: str, ticket: Ticket | None = None) -> dict[str, Any]:
        """Loads a key ahead of its first proof, and says what `facts` says of it."""
        with self.using(path, ticket) as key, self._changed:
            return self._fact(next(held for held in self._held.values() if held.key is key))

    def evict(self, path: str) -> bool:
        """Forgets the key of this path; False when there is none. KeyInUse while a proof uses it."""
        resolved = str(Path(path).resolve())
        with self._changed:
            found = [identity for identity in self._held if identity[0] == resolved]
            if any(self._held[identity].uses for identity in found):
                raise KeyInUse(f"{path}: the key is in use; try again when its proofs have ended, or cancel them")
            for identity in found:
                del self._held[identity]
            self._changed.notify_all()
            return bool(found)

    @property
    def resident_bytes(self) -> int:
        with self._changed:
            return self._total()

    def facts(self) -> list[dict[str, Any]]:
        """What is resident, most recently used last."""
        with self._changed:
            return [self._fact(held) for held in self._held.values()]

    def _fact(self, held: _Held) -> dict[str, Any]:
        return {
            "path": held.key.path,
            "curve": held.key.curve.name,
            "domain_size": held.key.facts.domain_size,
            "n_coefficients": held.key.facts.n_coefficients,
            "n_bytes": held.key.n_bytes,
            "in_use": held.uses,
            "last_used_s": 0.0 if held.uses else round(time.monotonic() - held.used_at, 3),
        }

    @contextlib.contextmanager
    def _in_turn(self, ticket: Ticket) -> Iterator[None]:
        while not self._turn.acquire(timeout=_POLL_S):
            ticket.check()
        try:
            yield
        finally:
            self._turn.release()

    def _make_room(self, path: str, size: int, ticket: Ticket) -> None:
        """Evicts idle keys, and waits for those in use, until `size` more bytes fit. Holds `_changed`."""
        if size > self.budget:
            raise OutOfMemory(
                f"{path}: the key has {size >> 20} MiB, over the {self.budget >> 20} MiB that keys may "
                "use; take a machine with more memory, or give keys more of it (--key-memory-mib)"
            )
        while not self._evict_idle(size):
            ticket.check()
            self._changed.wait(_POLL_S)

    def _admit(self, identity: Identity, held: _Held) -> ProvingKey:
        for older in [name for name in self._held if name[0] == identity[0] and name != identity]:
            if not self._held[older].uses:
                del self._held[older]  # the file changed since: nobody can ask for this one again
        self._held[identity] = held
        self._held.move_to_end(identity)
        held.uses += 1
        self._evict_idle()  # a key turns out larger than its file when its coefficients are unpacked
        return held.key

    def _evict_idle(self, needed: int = 0) -> bool:
        """Whether `needed` more bytes fit, once the idle keys that stood in the way are gone, oldest first."""
        for identity in [identity for identity, held in self._held.items() if not held.uses]:
            if self._total() + needed <= self.budget:
                break
            del self._held[identity]
        return self._total() + needed <= self.budget

    def _total(self) -> int:
        return sum(held.key.n_bytes for held in self._held.values())


def _identity(path: str) -> Identity:
    try:
        stat = os.stat(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadFile(path, "file", f"cannot be read: {why}", "check the path and its permissions") from error
    return str(Path(path).resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns
