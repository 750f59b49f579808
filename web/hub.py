"""One thread a process looks at every run and instance that somebody watches, renders what changed once,
and hands it to all who watch. A watcher's own thread only waits and writes."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from flask import Flask
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from jobs.context import Context
from logs import tail
from web import live, scope
from web.follow import Follower, TailLine

log = logging.getLogger("provefleet.site")

# How often the tails are read, and how often the database.
TICK_S = 0.2
LOOK_S = 0.5
# Costs and ages move without any event; how often they are drawn again at least, and the share of one
# core that drawing may take at most.
REFRESH_S = 3.0
BUSY_SHARE = 0.15
KEPT_LINES = 1000
FIRST_LINES = 200
LINGER_S = 30.0


@dataclass(frozen=True)
class Batch:
    """What a watcher has not seen: changed parts, new lines, and where it then stands."""

    parts: dict[str, str]
    lines: list[TailLine]
    position: str
    notice: str
    ended: bool
    fresh: bool

    @cached_property
    def events(self) -> str:
        """As server-sent events, written once for all who get them.

        Parts and the notice may come twice. Only what comes last has the id, with the lines: a watcher that is cut off
        before it comes back for all of it, and gets no line twice.
        """
        told = [event("part", {"id": name, "html": html}) for name, html in self.parts.items()]
        told.append(event("notice", {"text": self.notice}, "" if self.lines else self.position))
        if self.lines:
            rows = [[line.stream, line.number, line.text] for line in self.lines]
            told.append(event("lines", rows, self.position))
        return "".join(told)


def event(name: str, data: object, position: str = "") -> str:
    """One server-sent event. `position`: where its reader stands once it has it."""
    mark = f"id: {position}\n" if position else ""
    return f"{mark}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


@dataclass
class Channel:
    """What is watched, as the hub last drew it. `position` of a watcher: `<epoch>.<version>.<line>.<notice>`."""

    kind: str
    key: str
    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    version: int = 0
    parts: dict[str, tuple[int, str]] = field(default_factory=dict)
    lines: deque[TailLine] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    told: int = 0
    notice: str = ""
    notices: int = 0
    ended: bool = False
    watchers: int = 0
    left_s: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)
    # What was made for those who stand at one place since the last change: most watchers stand where the others do.
    made: dict[tuple[int, int, bool], Batch] = field(default_factory=dict)
    # Of the hub's thread only:
    glance: live.Glance | None = None
    looked_s: float = -1e9
    drawn_s: float = -1e9
    cost_s: float = 0.0
    followers: dict[str, Follower] = field(default_factory=dict)

    def _stands(self, position: str) -> tuple[int, int, int, bool]:
        epoch, *numbers = position.split(".")
        if epoch == self.epoch and len(numbers) == 3 and all(n.isascii() and n.isdigit() for n in numbers):
            version, line, notice = (int(n) for n in numbers)
            if line >= self.told - len(self.lines):
                return version, line, notice, False
        return 0, max(0, self.told - FIRST_LINES), 0, True

    def wait(self, position: str, timeout_s: float) -> Batch | None:
        """What is new since `position`, waiting for it; None after `timeout_s` without news."""
        with self.changed:
            version, line, notice, fresh = self._stands(position)

            def news() -> bool:
                return self.version > version or self.told > line or self.notices > notice or self.ended

            if not self.changed.wait_for(news, timeout_s):
                return None
            version, line, _, fresh = self._stands(position)  # the wait may have been long
            stands = version, line, fresh
            if stands not in self.made:
                self.made[stands] = self._batch(*stands)
            return self.made[stands]

    def _batch(self, version: int, line: int, fresh: bool) -> Batch:
        parts = {name: html for name, (since, html) in self.parts.items() if since > version}
        first = len(self.lines) - (self.told - line)
        lines = list(islice(self.lines, max(0, first), None))
        here = f"{self.epoch}.{self.version}.{self.told}.{self.notices}"
        return Batch(parts, lines, here, self.notice, self.ended, fresh)

    def take(self, parts: dict[str, str], lines: list[TailLine], notice: str, ended: bool) -> None:
        """Publish what was drawn; only parts whose text differs count as changed."""
        with self.changed:
            new = {name: html for name, html in parts.items() if self.parts.get(name, (0, ""))[1] != html}
            if new:
                self.version += 1
                self.parts.update({name: (self.version, html) for name, html in new.items()})
            self.lines.extend(lines)
            self.told += len(lines)
            told = notice != self.notice
            if told:
                self.notice, self.notices = notice, self.notices + 1
            self.ended = ended
            if new or lines or ended or told:
                self.made.clear()
                self.changed.notify_all()


class Hub:
    """The channels of one process. Its thread runs while anyone watches."""

    def __init__(
        self, app: Flask, context: Context, tick_s: float = TICK_S, clock: Callable[[], float] = time.monotonic
    ):
        self._app, self._context = app, context
        self._tick_s, self._clock = tick_s, clock
        self._lock = threading.Lock()
        self._channels: dict[tuple[str, str], Channel] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._tail_client: object | None = None

    def join(self, kind: str, key: str) -> Channel:
        with self._lock:
            now = self._clock()
            for name, old in list(self._channels.items()):
                # Kept for a while: a browser that comes back resumes without a gap.
                if old.watchers == 0 and now - old.left_s > LINGER_S:
                    del self._channels[name]
            channel = self._channels.setdefault((kind, key), Channel(kind, key))
            channel.watchers += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hub", daemon=True)
                self._thread.start()
            self._wake.set()
            return channel

    def leave(self, channel: Channel) -> None:
        with self._lock:
            channel.watchers -= 1
            channel.left_s = self._clock()
            self._wake.set()

    def _run(self) -> None:
        while True:
            with self._lock:
                channels = [c for c in self._channels.values() if c.watchers]
                if not channels:
                    self._thread = None
                    return
                self._wake.clear()
            for channel in channels:
                if channel.ended:
                    continue
                if channel.glance is None or self._clock() - channel.looked_s >= LOOK_S:
                    self.look(channel)
                else:
                    self.listen(channel, channel.glance)
            self._wake.wait(self._tick_s)

    def look(self, channel: Channel) -> None:
        """One look at one channel. A database that is away is told to the watchers, and tried again."""
        channel.looked_s = self._clock()
        self._try(channel, lambda: self._look(channel))

    def listen(self, channel: Channel, glance: live.Glance) -> None:
        """Only what its machines say. Cheap: where the tails have it all, the database is not asked."""
        if all(follower.live for follower in channel.followers.values()):
            self._try(channel, lambda: self._follow(channel, glance, channel.notice))

    def _try(self, channel: Channel, act: Callable[[], None]) -> None:
        try:
            with self._app.test_request_context("/"):
                act()
        except SQLAlchemyError as error:
            log.warning("the live view can't read the database: %s", error)
            channel.take({}, [], "The database does not answer; what you see may be old.", False)

    def _look(self, channel: Channel) -> None:
        session = scope.db()
        glance = live.glance(session, channel.kind, channel.key)
        if glance is None:
            channel.take({}, [], "", True)
            return
        self._follow(channel, glance, "")
        began = self._clock()
        wait_s = max(REFRESH_S, channel.cost_s * len(self._channels) / BUSY_SHARE)
        if glance == channel.glance and began - channel.drawn_s <= wait_s:
            return
        drawn = live.parts_of(self._context, session, channel.kind, channel.key)
        channel.glance, channel.drawn_s, channel.cost_s = glance, began, self._clock() - began
        channel.take({name: str(html) for name, html in drawn.items()}, [], channel.notice, glance.ended)

    def _follow(self, channel: Channel, glance: live.Glance, notice: str) -> None:
        """Hand on the lines that are new, whatever fails behind them: they are told once."""
        lines: list[TailLine] = []
        try:
            for run, instance in glance.instance_ids:
                follower = channel.followers.get(instance)
                if follower is None:
                    follower = channel.followers[instance] = Follower(
                        self._client, lambda: self._context.store, run, instance, self._clock
                    )
                follower.poll(scope.db(), lines)
                if not follower.live:
                    notice = "Redis is away: lines come from the archive, a few seconds late."
        except SQLAlchemyError:
            channel.take({}, lines, channel.notice, False)
            raise
        channel.take({}, lines, notice, False)

    def _client(self) -> object:
        if self._tail_client is None:
            try:
                self._tail_client = tail.connect(self._context.settings.redis_url.get_secret_value())
            except (RedisError, ValueError) as error:
                raise tail.TailUnavailable(str(error)) from error
        return self._tail_client
