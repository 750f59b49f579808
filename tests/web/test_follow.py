"""From the tail to the archive and back: each line once, in order, and none left out that the archive has."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from jobs.domain import evidence
from jobs.domain.models import Instance
from logs import tail
from logs.chunks import ChunkCutter
from logs.store import S3Config
from tests.fakes.valkey import ValkeyServer
from tests.web.site import NOW, Clock, seeded, settings_of
from web.follow import PATIENCE_S, Follower, TailLine


class Machine:
    """One whose lines are put where they go by hand, and who follows it."""

    def __init__(self, folder: Path, s3: S3Config, redis: ValkeyServer):
        self.context, fleet = seeded(settings_of(folder, s3, redis.url), Clock(NOW))
        self.instance_id = fleet.instances["proving"]
        self.redis: Any = tail.connect(redis.url)
        self.redis.flushall()
        self.now_s = 0.0
        self.stream = f"talk-{secrets.token_hex(8)}"  # the seeded ids are those of other tests, and so is the bucket
        self.cutter = ChunkCutter(self.stream)
        with self.context.sessions() as session:
            row = session.get(Instance, self.instance_id)
            assert row is not None
            self.row = row
        self.follower = Follower(
            lambda: self.redis, lambda: self.context.store, row.run_id or "none", row.id, lambda: self.now_s
        )

    def archived(self, text: bytes) -> None:
        self.cutter.feed(text, NOW)
        chunk = self.cutter.cut(NOW)
        assert chunk is not None
        evidence.add_chunks(self.context, self.row, self.stream, [chunk])

    def live(self, first_line: int, data: bytes) -> None:
        tail.publish(self.redis, self.instance_id, self.stream, first_line, data)

    def told(self) -> list[tuple[int, str]]:
        lines: list[TailLine] = []
        with self.context.sessions() as session:
            self.follower.poll(session, lines)
        return [(line.number, line.text) for line in lines if line.stream == self.stream]


@pytest.fixture
def machine(tmp_path: Path, s3_config: S3Config, valkey_server: ValkeyServer) -> Machine:
    return Machine(tmp_path, s3_config, valkey_server)


def test_lines_that_the_tail_lost_come_from_the_archive_before_those_behind_them(machine: Machine) -> None:
    machine.live(1, b"one\ntwo\nth")
    assert machine.told() == [(1, "one"), (2, "two")]
    machine.live(5, b"ve\nsix\nsev")  # lost: the rest of 3, all of 4, the beginning of 5
    assert machine.told() == []
    machine.archived(b"one\ntwo\nthree\n")
    assert machine.told() == [(3, "three")]
    machine.live(7, b"en\n")
    assert machine.told() == []
    machine.archived(b"four\nfive\n")
    assert machine.told() == [(4, "four"), (5, "five"), (6, "six"), (7, "seven")]
    machine.live(8, b"eight\n")
    assert machine.told() == [(8, "eight")]


def test_what_comes_after_a_silence_is_told_at_once(machine: Machine) -> None:
    machine.archived(b"one\ntwo\n")
    assert machine.told() == [(1, "one"), (2, "two")]
    machine.live(3, b"three\nfo")
    assert machine.told() == [(3, "three")]
    machine.live(4, b"ur\n")
    assert machine.told() == [(4, "four")]


def test_a_line_of_which_the_archive_has_the_beginning_is_told_whole(machine: Machine) -> None:
    machine.archived(b"one\ntw")
    assert machine.told() == [(1, "one")]
    machine.live(2, b"o\nthree\n")
    assert machine.told() == []
    machine.archived(b"o\nthree\n")
    assert machine.told() == [(2, "two"), (3, "three")]


def test_a_new_stream_whose_first_frame_was_lost(machine: Machine) -> None:
    assert machine.told() == []
    machine.live(2, b"wo\nthree\n")
    assert machine.told() == []
    machine.archived(b"one\ntwo\nthree\n")
    assert machine.told() == [(1, "one"), (2, "two"), (3, "three")]


def test_who_comes_late_begins_where_the_tail_does(machine: Machine) -> None:
    machine.live(70, b"seventy\n")
    assert machine.told() == [(70, "seventy")]


def test_what_never_reaches_the_archive_is_not_waited_for_for_ever(machine: Machine) -> None:
    machine.live(1, b"one\n")
    machine.live(4, b"four\n")
    assert machine.told() == [(1, "one")]
    machine.now_s += PATIENCE_S + 1
    assert machine.told() == [(4, "four")]


def test_a_burst_that_nobody_could_read_is_not_waited_for(machine: Machine) -> None:
    machine.live(1, b"one\n")
    assert machine.told() == [(1, "one")]
    machine.live(200_000, b"much later\n")
    assert machine.told() == [(200_000, "much later")]


def test_redis_goes_away_and_comes_back_within_a_line(machine: Machine) -> None:
    machine.live(1, b"one\ntw")
    assert machine.told() == [(1, "one")]
    there, machine.redis = machine.redis, tail.connect("redis://127.0.0.1:9/0")
    machine.archived(b"one\ntwo\nthr")
    assert machine.told() == [(2, "two")]
    assert not machine.follower.live
    machine.redis = there
    machine.live(3, b"ree\nfour\n")
    assert machine.told() == []
    machine.archived(b"ee\nfour\n")
    assert machine.told() == [(3, "three"), (4, "four")]
    assert machine.follower.live
