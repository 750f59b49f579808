"""Logs on request: the host uploads them later to an object store that knows no login. `execute` works alike."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.vast.clock import Clock
from tests.fakes.vast.errors import Refused
from tests.fakes.vast.instances import Instance

DEFAULT_TAIL = 1000
BUCKETS = ("vast.ai", "public.vast.ai")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """An object. `repeat` times `data`, so that a huge one needs no memory."""

    data: bytes
    modified_ms: int
    repeat: int = 1

    @property
    def size(self) -> int:
        return len(self.data) * self.repeat

    @property
    def etag(self) -> str:
        return hashlib.md5(self.data + str(self.repeat).encode(), usedforsecurity=False).hexdigest()

    def chunks(self, begin: int, end: int) -> Iterator[bytes]:
        """The bytes of [begin, end)."""
        while begin < end:
            offset = begin % len(self.data)
            piece = self.data[offset : offset + min(MIB, end - begin)]
            yield piece
            begin += len(piece)


@dataclass(slots=True)
class Upload:
    """How the next request for logs goes. `delay_s` None: never. `stale` puts an older text up at once.

    `change` makes of the text what arrives; `repeat` makes it long.
    """

    delay_s: float | None = 3.0
    stale: bytes | None = None
    change: Callable[[bytes], bytes] = bytes
    repeat: int = 1


@dataclass(slots=True)
class LogHost:
    """`missing` is what a URL answers until its object is there: 403 or 404. `base` is where the store is reached."""

    clock: Clock
    base: str = "https://s3.amazonaws.com"
    missing: int = 403
    upload_s: float = 3.0
    one_object: bool = False
    """Whether the daemon's log lands in the same object as the container's, as it may on Vast."""
    planned: list[Upload] = field(default_factory=list)
    objects: dict[str, Stored] = field(default_factory=dict)
    reads: int = 0
    outages: int = 0
    """How many of the next reads are answered 503."""
    shows_env: int = 0
    """How many of the next logs have the container's environment in them, secrets and all."""

    def request(self, i: Instance, key: str, body: dict[str, Any]) -> str:
        """Ask for an instance's log. The URL under which it will be; the same one each time.

        Raises `Refused` (400) for a `tail` that is no number.
        """
        try:
            tail = int(body.get("tail") or DEFAULT_TAIL)
        except (TypeError, ValueError):
            raise Refused(400, "invalid_args", "tail: Input should be a valid integer") from None
        daemon = str(body.get("daemon_logs", "")).lower() == "true"
        wanted = str(body.get("filter") or "").encode()
        upload = self.planned.pop(0) if self.planned else Upload(self.upload_s)
        env = b""
        if self.shows_env:
            self.shows_env -= 1
            env = "".join(f"{name}={value}\n" for name, value in i.env.items()).encode()

        def text() -> bytes:
            return _window(env + (daemon_text(i) if daemon else container_text(i, self.clock.now_ms)), wanted, tail)

        suffix = "D" if daemon and not self.one_object else ""
        return self._promise(i, key, suffix, upload, text)

    def execute(self, i: Instance, key: str, output: bytes) -> str:
        return self._promise(i, key, "C", Upload(self.upload_s), lambda: output)

    def _promise(self, i: Instance, key: str, suffix: str, upload: Upload, text: Callable[[], bytes]) -> str:
        name = hashlib.md5(f"{key}{i.id}".encode(), usedforsecurity=False).hexdigest()
        path = f"{BUCKETS[i.id % 2]}/instance_logs/{name}{suffix}.log"
        if upload.stale is not None and path not in self.objects:
            self.objects[path] = Stored(upload.stale, self.clock.now_ms - 3_600_000)

        def arrive() -> None:
            if i.live and i.actual not in ("offline", "unknown"):
                self.objects[path] = Stored(upload.change(text()), self.clock.now_ms, upload.repeat)

        if upload.delay_s is not None:
            self.clock.after(upload.delay_s, arrive)
        return f"{self.base}/{path}"


def container_text(i: Instance, now_ms: int) -> bytes:
    """All that the container has printed."""
    if i.log_source is not None:
        return i.log_source()
    i.beat(now_ms)
    return b"".join(line for _, line in i.log)


def daemon_text(i: Instance) -> bytes:
    return b"".join(line for _, line in i.daemon_log)


def _window(text: bytes, wanted: bytes, tail: int) -> bytes:
    lines = text.splitlines(keepends=True)
    if wanted:
        lines = [line for line in lines if wanted in line]
    return b"".join(lines[-tail:] if tail > 0 else [])


def listing(i: Instance, command: str) -> bytes:
    """What `ls`, `du` and `rm` print on an instance. Raises `Refused` (400) for any other command."""
    if len(command) > 512 or command.split(" ")[0] not in ("ls", "rm", "du"):
        raise Refused(400, "invalid_args", "Only ls, rm and du are allowed, in at most 512 characters.")
    match command.split(" ")[0]:
        case "ls":
            return b"total 8\ndrwxr-xr-x 2 root root 4096 onstart.sh\ndrwxr-xr-x 5 root root 4096 workspace\n"
        case "du":
            return f"{int(2.4 * 2**20)}\t/\n".encode()
        case _:
            return b""
