"""Requests to the daemon: every field checked, one line for each refusal; and the tickets that stop work."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpu.errors import Cancelled, DeadlineExceeded
from gpu.groth16.ticket import Ticket
from gpu.request import MAX_PARTITIONS, BadRequest, parse_key_request, parse_request

GOOD = {"request_id": "r", "zkey": "/k", "wtns": "/w"}


def parse(**changes: object):
    fields = {name: value for name, value in {**GOOD, **changes}.items() if value != "absent"}
    return parse_request(json.dumps(fields).encode())


def test_what_a_request_means() -> None:
    assert parse().witnesses == ("/w",)
    assert parse().same_work(parse(priority=3, deadline_s=1, wait=False, request_id="s"))
    many = parse(wtns="absent", partitions=["/w"], priority=-2, deadline_s=1.5, wait=False)
    assert (many.many, many.priority, many.deadline_s, many.wait) == (True, -2, 1.5, False)
    assert not many.same_work(parse())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"request_id": ""}, "request_id"),
        ({"request_id": "a\nb"}, "request_id"),
        ({"request_id": "x" * 257}, "request_id"),
        ({"request_id": 3}, "request_id"),
        ({"zkey": None}, "zkey"),
        ({"zkey": "x" * 4097}, "zkey"),
        ({"wtns": ["/w"]}, "wtns"),
        ({"partitions": ["/w"]}, "either wtns"),
        ({"wtns": "absent"}, "either wtns"),
        ({"wtns": "absent", "partitions": []}, "partitions"),
        ({"wtns": "absent", "partitions": "/w"}, "partitions"),
        ({"wtns": "absent", "partitions": ["/w", 3]}, "partitions"),
        ({"wtns": "absent", "partitions": ["/w"] * (MAX_PARTITIONS + 1)}, "partitions"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 1001}, "priority"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"deadline_s": float("nan")}, "deadline_s"),
        ({"deadline_s": float("inf")}, "deadline_s"),
        ({"deadline_s": "5"}, "deadline_s"),
        ({"deadline_s": True}, "deadline_s"),
        ({"wait": 1}, "wait"),
        ({"priorty": 1}, "priorty"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], named: str) -> None:
    with pytest.raises(BadRequest, match=named) as refused:
        parse(**changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("raw", [b"", b"[]", b"3", b"\xff", b"[" * 100_000, b'{"request_id": '])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="JSON"):
        parse_request(raw)
    with pytest.raises(BadRequest, match="JSON"):
        parse_key_request(raw)


def test_a_ticket_stops_tasks_that_have_not_begun() -> None:
    ticket, ran = Ticket("job"), []
    with ThreadPoolExecutor(1) as pool:
        mine = ticket.over(pool)
        first = mine.submit(ticket.cancel, "enough")
        second = mine.submit(ran.append, 1)
        assert first.result() is None
        with pytest.raises(Cancelled, match="enough"):
            second.result()
        assert pool.submit(ran.append, 2).result() is None  # the pool itself goes on
    assert ran == [2]
    with pytest.raises(Cancelled, match="enough"):
        ticket.check()


def test_a_ticket_knows_its_deadline() -> None:
    Ticket(deadline=time.monotonic() + 60).check()
    with pytest.raises(DeadlineExceeded):
        Ticket(deadline=time.monotonic()).check()
