"""The live tail: the last seconds of a running instance's streams, in Redis.

Best effort by design. Redis may be flushed or gone at any moment; the archive loses nothing, and
the page falls back to it. One Redis stream an instance, at most 128 frames of 16 KiB, gone 60 s
after the last frame. Nothing here blocks for more than a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from logs.wire import TAIL_FRAME_BYTES, WireError, check_id, check_stream_name

MAX_FRAMES = 128
TTL_S = 60
TIMEOUT_S = 1.0
MAX_WAIT_MS = 500
START = "0-0"

_CURSOR = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class TailUnavailable(Exception):
    """Redis is away or slow: show the archive instead, try again in a while."""


@dataclass(frozen=True)
class TailFrame:
    """Bytes as they came, masked; the first belongs to line `first_line` of `stream` (1-based)."""

    stream: str
    first_line: int
    data: bytes


def connect(url: str) -> Any:
    """A client with the timeouts that this module promises: 1 s, no second try. Thread-safe."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
    )


def publish(client: Any, instance: str, stream: str, first_line: int, data: bytes) -> None:
    """Adds a frame of at most 16 KiB. Raises `TailUnavailable`, `WireError`."""
    if not 0 < len(data) <= TAIL_FRAME_BYTES or first_line < 1:
        raise WireError(f"a tail frame has 1 to {TAIL_FRAME_BYTES} bytes, and lines count from 1")
    fields = {"s": check_stream_name(stream), "l": first_line, "d": data}
    import redis

    try:
        with client.pipeline(transaction=False) as pipe:
            pipe.xadd(_key(instance), fields, maxlen=MAX_FRAMES, approximate=False)
            pipe.expire(_key(instance), TTL_S)
            pipe.execute()
    except (redis.RedisError, OSError) as error:
        raise TailUnavailable(f"the live tail is away: {error}") from error


def read_since(client: Any, instance: str, cursor: str = START, wait_ms: int = 0) -> tuple[list[TailFrame], str]:
    """Frames after `cursor` and the cursor to ask with next. With `wait_ms` (at most 500) it waits
    that long for the first one. Raises `TailUnavailable`; `WireError` for a bad cursor.
    """
    if not _CURSOR.fullmatch(cursor):
        raise WireError("bad cursor")
    import redis

    block = min(wait_ms, MAX_WAIT_MS) or None
    try:
        reply = client.xread({_key(instance): cursor}, count=MAX_FRAMES, block=block)
    except (redis.RedisError, OSError) as error:
        raise TailUnavailable(f"the live tail is away: {error}") from error
    entries = _entries(reply)
    frames = [TailFrame(fields[b"s"].decode(), int(fields[b"l"]), fields[b"d"]) for _, fields in entries]
    return frames, entries[-1][0].decode() if entries else cursor


def _entries(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The one key's entries: redis-py gives pairs over RESP 2 and a mapping over RESP 3."""
    if not reply:
        return []
    if isinstance(reply, dict):
        (batches,) = reply.values()
        return [entry for batch in batches for entry in batch]
    return list(reply[0][1])


def _key(instance: str) -> str:
    return f"provefleet:tail:{check_id(instance, 'instance id')}"
