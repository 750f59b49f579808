"""What a bench leaves while it runs: its progress lines and a folder a proof, each posted as soon as it is whole.

Order in the progress file proves nothing; a proof is there when its `timings.json` or `error.txt` is.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu.agent.client import Client, Refused, Unreachable, delays
from gpu.agent.orders import Status
from gpu.protocol import MAX_TEXT, ProtocolError, Result

MAX_FILE_BYTES = 256 * 1024


class ProgressFile:
    """Reads the JSON lines a bench appends, and turns them into counts."""

    def __init__(self, path: Path, status: Status):
        self._path, self._status, self._offset = path, status, 0

    def poll(self) -> None:
        """Take in what is new. Lines that are not of this format are passed over."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(MAX_FILE_BYTES)
        except OSError:
            return
        whole = data.rfind(b"\n") + 1
        self._offset += whole or (len(data) if len(data) == MAX_FILE_BYTES else 0)
        for line in data[:whole].splitlines():
            try:
                self._take(json.loads(line))
            except (ValueError, RecursionError):
                continue

    def _take(self, line: Any) -> None:
        if not isinstance(line, dict):
            return
        total = line.get("total")
        self._status.update(
            total=total if type(total) is int and 0 <= total < 1 << 40 else None,
            note={"start": "starting", "warm_up": "warmed up", "proof": "proving"}.get(str(line.get("event")), ""),
        )


class ProofFolders:
    """Finds finished proofs under `folder`, where folder `p` holds the proof of the `p`-th task, index `indices[p]`."""

    def __init__(self, folder: Path, indices: list[int], round_number: int):
        self._folder, self._indices, self._round = folder, indices, round_number
        self._seen: set[int] = set()

    def new(self) -> list[Result]:
        """Results that were not there at the last call."""
        found = []
        for position, index in enumerate(self._indices):
            if position not in self._seen and (result := self._read(self._folder / str(position), index)) is not None:
                self._seen.add(position)
                found.append(result)
        return found

    def _read(self, folder: Path, index: int) -> Result | None:
        if (error := _small_file(folder / "error.txt")) is not None:
            text = error.decode(errors="replace").strip()[:MAX_TEXT] or "error.txt is empty"
            return Result(index, self._round, ok=False, error=text)
        timings = _small_file(folder / "timings.json")
        if timings is None:
            return None
        try:
            figures = json.loads(timings)
            proof = json.loads(_small_file(folder / "proof.json") or b"")
            public = json.loads(_small_file(folder / "public.json") or b"")
            head = {"index": index, "round": self._round, "ok": True}
            return Result.from_json({**head, "proof": proof, "public": public, **_figures(figures)})
        except (ValueError, RecursionError, ProtocolError) as problem:
            return Result(index, self._round, ok=False, error=f"the prover's files can't be used: {problem}"[:MAX_TEXT])


def _figures(figures: Any) -> dict[str, Any]:
    """`timings.json`: the whole in "ms", and each step under its name."""
    steps = figures if isinstance(figures, dict) else {}
    numbers = {str(k)[:64]: v for k, v in steps.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {"machine_ms": numbers.pop("ms", 0.0), "timings_ms": numbers}


def _small_file(path: Path) -> bytes | None:
    """At most `MAX_FILE_BYTES` of a regular file; None when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read(MAX_FILE_BYTES)
        except OSError:
            return None


class ResultPoster(threading.Thread):
    """Posts results in a thread of its own, so that a controller that is away stops neither prover nor lease."""

    def __init__(self, client: Client, status: Status, log: Callable[[str], None]):
        super().__init__(name="results", daemon=True)
        self._client, self._status, self._log = client, status, log
        self._queue: queue.Queue[Result] = queue.Queue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def post(self, result: Result) -> None:
        """Queue it, and count it."""
        with self._lock:
            self._waiting += 1
        self._queue.put(result)
        progress = self._status.get()
        failed = progress.failed + (not result.ok)
        self._status.update(done=progress.done + 1, failed=failed)

    def drained(self) -> bool:
        """True when the controller has them all."""
        with self._lock:
            return self._waiting == 0

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                result = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            self._deliver(result)
            with self._lock:
                self._waiting -= 1

    def _deliver(self, result: Result) -> None:
        waits = delays()
        while not self._stopping.is_set():
            try:
                self._client.result(result)
                return
            except Refused as error:
                self._log(f"proof {result.index} of round {result.round} was refused: {error}")
                return
            except Unreachable as error:
                self._log(f"proof {result.index} of round {result.round} has to wait: {error}")
                self._stopping.wait(next(waits))
