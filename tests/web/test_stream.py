"""Server-sent events: what is sent, how one resumes, and that many of them leave the pages fast."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from flask import Flask

from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.models import Instance, Run
from jobs.services.programs import SITE_THREADS
from logs import tail
from tests.bench.watchers import Watchers
from tests.fakes.valkey import ValkeyServer
from tests.web.seed import Fleet
from tests.web.site import Browser, Clock, connect, seeded, served, settings_of
from web import create_app
from web.follow import TailLine
from web.hub import Channel, Hub
from web.stream import MAX_STREAMS, Streams, events

Event = tuple[str, str, object]


def parse(pieces: Iterator[str]) -> Iterator[Event]:
    """(name, id, data) of each event; comments come as ('', '', text)."""
    for piece in pieces:
        for one in piece.removesuffix("\n\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in one.split("\n"))
            if "event" in fields:
                yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            else:
                yield "", "", one


def take(channel: Channel, position: str, count: int, **more: object) -> list[Event]:
    stream = events(channel, position, lambda: True, time.monotonic, 0.05)
    found = parse(stream)
    return [next(found) for _ in range(count)]


def line(n: int) -> TailLine:
    return TailLine("bench", n, f"line {n}")


def test_parts_lines_and_resume_without_a_gap() -> None:
    channel = Channel("run", "x")
    channel.take({"head": "<b>1</b>", "proofs": "none"}, [line(1), line(2)], "", False)
    first = take(channel, "", 5)
    assert [e[0] for e in first] == ["", "part", "part", "notice", "lines"]
    here = first[-1][1]
    channel.take({"head": "<b>2</b>", "proofs": "none"}, [line(3)], "", False)
    again = take(channel, here, 4)
    assert [e[0] for e in again] == ["", "part", "notice", "lines"]
    assert again[1][2] == {"id": "head", "html": "<b>2</b>"}
    assert again[3][2] == [["bench", 3, "line 3"]]


def test_wherever_a_watcher_is_cut_off_it_gets_each_line_once() -> None:
    channel = Channel("run", "x")
    channel.take({"head": "1"}, [line(1)], "", False)
    here = take(channel, "", 4)[-1][1]
    channel.take({"head": "2"}, [line(2), line(3)], "Redis is away", False)
    whole = take(channel, here, 4)
    for come in range(len(whole) + 1):  # events that it got whole before
        position = next((at for _, at, _ in reversed(whole[:come]) if at), here)
        channel.take({}, [], "" if channel.notice else "x", False)  # so that there is news in any case
        again = take(channel, position, 2 if position != here else 4)
        lines = [row for name, _, rows in [*whole[:come], *again] if name == "lines" for row in rows]  # type: ignore[attr-defined]
        assert lines == [["bench", 2, "line 2"], ["bench", 3, "line 3"]], come


def test_those_who_stand_at_one_place_share_what_is_sent() -> None:
    channel = Channel("run", "x")
    channel.take({"head": "1"}, [line(1)], "", False)
    first, second = channel.wait("", 0), channel.wait("", 0)
    assert first is not None
    assert second is first
    channel.take({}, [line(2)], "", False)
    assert channel.wait("", 0) is not first


@pytest.mark.parametrize("position", ["0.0.0.0", "nonsense", "deadbeef.1.1.0", "....", "💥.1.2.3", "x" * 80])
def test_an_unknown_position_starts_over(position: str) -> None:
    channel = Channel("run", "x")
    channel.take({"head": "1"}, [line(1)], "", False)
    assert [e[0] for e in take(channel, position, 5)] == ["", "reset", "part", "notice", "lines"]


def test_lines_that_are_gone_from_the_buffer_start_over() -> None:
    channel = Channel("run", "x")
    channel.take({}, [line(1)], "", False)
    here = take(channel, "", 3)[-1][1]
    channel.take({}, [line(n) for n in range(2, 1500)], "", False)
    found = take(channel, here, 4)
    assert found[1][0] == "reset"
    assert found[3][2][-1] == ["bench", 1499, "line 1499"]  # type: ignore[index]


def test_an_unchanged_part_is_not_sent() -> None:
    channel = Channel("run", "x")
    channel.take({"head": "1"}, [], "", False)
    here = take(channel, "", 3)[-1][1]
    channel.take({"head": "1"}, [], "", False)
    assert take(channel, here, 2)[1] == ("", "", ": still here")


def test_the_end_and_the_end_of_the_session() -> None:
    channel = Channel("run", "x")
    channel.take({"head": "1"}, [], "", True)
    assert [e[0] for e in parse(events(channel, "", lambda: True, time.monotonic))] == ["", "part", "notice", "end"]
    quiet = Channel("run", "y")
    clock = iter(range(0, 1000, 31))
    assert list(parse(events(quiet, "", lambda: False, lambda: next(clock), 0.01)))[-1][2] == {"why": "signed out"}


def test_the_hub_draws_what_changed(app: Flask, context: Context, fleet: Fleet) -> None:
    hub = Hub(app, context)
    channel = Channel("run", fleet.runs["active"])
    hub.look(channel)
    assert "5 of 12" in channel.parts["progress"][1]
    assert "Redis is away" in channel.notice
    version = channel.version
    with writing(context.sessions) as session:
        instance = session.get(Instance, fleet.instances["benchmarking"])
        assert instance is not None
        instance.progress = {**instance.progress, "done": 6}
    hub.look(channel)
    assert channel.version == version + 1
    assert "6 of 12" in channel.parts["progress"][1]
    assert not channel.ended


@pytest.mark.parametrize("state", ["passed", "broken", "cancelled"])
def test_the_hub_ends_with_the_run(app: Flask, context: Context, fleet: Fleet, state: str) -> None:
    channel = Channel("run", fleet.runs[state])
    Hub(app, context).look(channel)
    assert channel.ended
    assert "head" in channel.parts


def test_the_database_away_is_told_and_survived(app: Flask, context: Context, fleet: Fleet) -> None:
    hub, channel = Hub(app, context), Channel("run", fleet.runs["active"])
    path = context.settings.state_dir / "provefleet.db"
    path.rename(path.with_suffix(".gone"))
    hub.look(channel)
    assert "The database does not answer" in channel.notice
    path.unlink()
    path.with_suffix(".gone").rename(path)
    hub.look(channel)
    assert "database" not in channel.notice


def test_live_lines_come_from_the_tail(app: Flask, tmp_path: Path, valkey_server: ValkeyServer) -> None:
    (tmp_path / "x").mkdir()
    context, fleet = seeded(settings_of(tmp_path / "x", redis_url=valkey_server.url))
    instance = fleet.instances["loading"]
    client = tail.connect(valkey_server.url)
    client.flushall()
    tail.publish(client, instance, "setup", 1, b"one\ntwo\nthr")
    tail.publish(client, instance, "setup", 3, b"ee\n\x1b[31m<script>\xff\n")
    hub, channel = Hub(app, context), Channel("instance", instance)
    hub.look(channel)
    assert [(x.number, x.text) for x in channel.lines] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
        (4, "␛[31m<script>\ufffd"),
    ]
    tail.publish(client, instance, "setup", 5, b"five\n")
    hub.look(channel)
    hub.look(channel)
    assert channel.lines[-1].number == 5
    assert channel.told == 5


def test_lines_keep_coming_while_the_database_is_away(tmp_path: Path, valkey_server: ValkeyServer) -> None:
    context, fleet = seeded(settings_of(tmp_path, redis_url=valkey_server.url), Clock())
    instance = fleet.instances["loading"]
    client = tail.connect(valkey_server.url)
    client.flushall()
    tail.publish(client, instance, "setup", 1, b"one\n")
    hub, channel = Hub(create_app(context), context), Channel("instance", instance)
    hub.look(channel)
    path = context.settings.state_dir / "provefleet.db"
    path.rename(path.with_suffix(".gone"))
    tail.publish(client, instance, "setup", 2, b"two\n")
    hub.look(channel)
    assert channel.glance is not None
    hub.listen(channel, channel.glance)
    assert [line.text for line in channel.lines] == ["one", "two"]
    assert "The database does not answer" in channel.notice


def test_threads_are_left_for_pages() -> None:
    assert SITE_THREADS - MAX_STREAMS >= 32


def test_no_more_streams_than_threads_to_spare(
    app: Flask, context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]
) -> None:
    app.extensions["provefleet_streams"] = Streams(Hub(app, context, tick_s=0.05), most=1)
    browser = signed_in("viewer")
    path = f"/runs/{fleet.runs['active']}/stream"
    first = browser.get(path)
    assert first.mimetype == "text/event-stream"
    busy = browser.get(path)
    assert busy.status_code == 503
    assert int(busy.headers["Retry-After"]) > 0
    first.close()
    assert browser.get(path).status_code == 200
    assert browser.get("/runs/none/stream").status_code == 404


def seconds(host: str, cookie: str, path: str) -> float:
    """How long one page takes, its last byte included."""
    connection = http.client.HTTPConnection(host, timeout=20)
    began = time.monotonic()
    connection.request("GET", path, headers={"Cookie": cookie})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200
    return time.monotonic() - began


def test_forty_open_pages_hold_up_no_other(tmp_path: Path, valkey_server: ValkeyServer) -> None:
    settings = settings_of(tmp_path, redis_url=valkey_server.url)
    context, _ = seeded(settings)
    with context.sessions() as session:
        running = [run.id for run in session.query(Run).filter(Run.state == "active")]
    with served(settings) as address:
        _, cookie = connect(address)
        host = urlsplit(address).netloc
        streams = []
        for i in range(40):
            one = http.client.HTTPConnection(host, timeout=20)
            one.request("GET", f"/runs/{running[i % len(running)]}/stream", headers={"Cookie": cookie})
            answer = one.getresponse()
            assert answer.status == 200
            streams.append(answer)

        def first_part(answer: http.client.HTTPResponse) -> bool:
            return any(b"event: part" in answer.readline() for _ in range(20))

        with ThreadPoolExecutor(40) as pool:
            assert all(pool.map(first_part, streams))
        paths = ["/", "/runs", "/offers", "/machines", "/archive", "/queues", "/audit", f"/runs/{running[0]}"]
        # None waits for a stream to end: each is there within its time limit, however busy the machine is.
        slowest = min(max(seconds(host, cookie, path) for path in paths * 2) for _ in range(3))
        print(f"slowest page beside 40 streams: {slowest * 1000:.0f} ms")


@pytest.mark.crash
def test_two_hundred_who_watch_get_each_line_once_and_one_too_many_is_told(
    tmp_path: Path, valkey_server: ValkeyServer
) -> None:
    settings = settings_of(tmp_path, redis_url=valkey_server.url)
    _, fleet = seeded(settings)
    instance = fleet.instances["proving"]
    client = tail.connect(valkey_server.url)
    client.flushall()
    with served(settings) as address:
        _, cookie = connect(address)
        path = f"/instances/{instance}/stream"
        with Watchers(address, path, cookie, MAX_STREAMS) as watching:
            assert watching.wait_for("open", 90)
            for n in range(1, 51):
                tail.publish(client, instance, "talk", n, b"line %d written at %d\n" % (n, time.time_ns()))
                time.sleep(0.05)  # a pace, not a wait: nothing below depends on it
            assert watching.wait_for("50", 60)
            one_more = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
            one_more.request("GET", path, headers={"Cookie": cookie})
            refused = one_more.getresponse()
            assert refused.status == 503
            assert b"/archive" in refused.read()
            assert seconds(urlsplit(address).netloc, cookie, "/runs") < 60
        assert all(watcher.lines == list(range(1, 51)) for watcher in watching.all)
