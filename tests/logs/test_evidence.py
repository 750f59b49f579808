from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.chunks import ChunkCutter
from logs.evidence import Artifact, build_manifest, evidence_status
from logs.gaps import missing_text
from logs.wire import ChunkRecord, WireError, chain_hash
from tests.logs.conftest import T0

VANISHED = 1_764_502_268_000  # 2025-11-30 11:31:08 UTC


def lines_of(chunks: int, lines: int = 10) -> list[ChunkRecord]:
    """`chunks` records of `lines` lines each, closed a second apart."""
    cutter = ChunkCutter("bench")
    records = []
    for n in range(chunks):
        cutter.feed(b"x\n" * lines, T0 + 1000 * n)
        cut = cutter.cut(T0 + 1000 * n)
        assert cut is not None
        records.append(cut[0])
    return records


def end_of(records: list[ChunkRecord]) -> dict[str, Any]:
    lines = records[-1].next_line - 1
    return {"chunks": len(records), "lines": lines, "raw_bytes": 2 * lines, "chain": chain_hash(records[-1])}


def manifest(streams: dict[str, list[ChunkRecord]], agent: Any = None, **changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "run": "r1",
        "instance": "i1",
        "streams": streams,
        "artifacts": [],
        "exit_codes": {"benchmark": 0},
        "stages": [],
        "hardware": {},
        "telemetry": {},
        "agent_manifest": agent,
        "vanished_at_ms": None,
        "sealed_at_ms": T0,
        "reason": "done",
        **changes,
    }
    return build_manifest(**arguments)


ALL = lines_of(5)
NOTHING = {"chunks": 0, "lines": 0, "raw_bytes": 0, "chain": ""}
AGENT = {"streams": {"bench": end_of(ALL)}}


@pytest.mark.parametrize(
    ("records", "agent", "vanished", "status", "message"),
    [
        (ALL, AGENT, None, "complete", "complete, 50 lines"),
        (ALL, AGENT, VANISHED, "complete", "complete, 50 lines"),
        (ALL[::-1] + ALL, AGENT, None, "complete", "complete, 50 lines"),
        (ALL[1:], AGENT, None, "gaps", "lines 1-10 missing"),
        (ALL[:2] + ALL[3:], AGENT, None, "gaps", "lines 21-30 missing"),
        (ALL[:1] + ALL[3:], AGENT, None, "gaps", "lines 11-30 missing"),
        (ALL[::2], AGENT, None, "gaps", "lines 11-20 missing; lines 31-40 missing"),
        (ALL[:3], AGENT, None, "gaps", "lines 31-50 missing"),
        ([], AGENT, None, "gaps", "lines 1-50 missing"),
        (ALL[:3], AGENT, VANISHED, "vanished", "lines 31-50 missing"),
        (ALL, None, None, "gaps", "the machine did not confirm the end; last line received is of"),
        (ALL, None, VANISHED, "vanished", "machine vanished at 11:31:08 UTC; last line received is of"),
        ([], None, VANISHED, "vanished", "machine vanished at 11:31:08 UTC; no line was received"),
        ([], None, None, "empty", "the machine did not confirm the end; no line was received"),
        ([], {"streams": {"bench": NOTHING}}, None, "empty", "complete, nothing was written"),
        ([], {"streams": {}}, None, "empty", "complete, nothing was written"),
        (ALL[:2] + ALL[3:], None, None, "gaps", "lines 21-30 missing; the machine did not confirm the end"),
    ],
)
def test_gap_matrix(records: list[ChunkRecord], agent: Any, vanished: int | None, status: str, message: str) -> None:
    built = manifest({"bench": records}, agent, vanished_at_ms=vanished)
    assert built["status"] == status
    assert built["streams"]["bench"]["message"].startswith(message)
    assert evidence_status(built) == (built["status"], built["summary"])
    assert json.loads(json.dumps(built)) == built


def test_summaries() -> None:
    assert manifest({"bench": ALL, "gpu": []}, AGENT)["summary"] == "complete, 50 lines in 1 stream"
    assert manifest({"bench": ALL[1:]}, AGENT)["summary"] == "bench: lines 1-10 missing"
    assert manifest({})["summary"] == "nothing was received from the machine"
    gone = manifest({"bench": ALL}, vanished_at_ms=VANISHED)["summary"]
    assert gone.startswith("machine vanished at 11:31:08 UTC; last line received is of ")
    many = manifest(dict.fromkeys("abcde", ALL[1:]))["summary"]
    assert many.endswith("; and 2 more streams")


def test_silent_streams_are_complete_once_the_machine_sealed() -> None:
    built = manifest({"bench": ALL, "gpu": [], "kernel": []}, AGENT)
    assert built["status"] == "complete"
    assert built["streams"]["gpu"]["message"] == "complete, nothing was written"


def test_stream_that_the_agent_does_not_name_is_not_complete() -> None:
    built = manifest({"bench": ALL, "gpu": ALL}, AGENT)
    assert built["status"] == "gaps"
    assert "did not confirm" in built["streams"]["gpu"]["message"]


def test_stream_that_only_the_agent_names() -> None:
    built = manifest({"bench": ALL}, {"streams": {**AGENT["streams"], "extra": end_of(ALL)}})
    assert built["streams"]["extra"]["message"] == "lines 1-50 missing"
    assert built["status"] == "gaps"


def test_broken_chains_are_named() -> None:
    swapped = [*ALL[:2], dataclasses.replace(ALL[2], raw_sha256="1" * 64), *ALL[3:]]
    assert manifest({"bench": swapped}, AGENT)["streams"]["bench"]["chain_broken_at"] == 3
    forged = [*ALL[:2], dataclasses.replace(ALL[2], prev_sha256="1" * 64), *ALL[3:]]
    assert manifest({"bench": forged}, AGENT)["streams"]["bench"]["chain_broken_at"] == 2
    first = [dataclasses.replace(ALL[0], prev_sha256="1" * 64), *ALL[1:]]
    assert manifest({"bench": first}, AGENT)["streams"]["bench"]["chain_broken_at"] == 0
    last = [*ALL[:4], dataclasses.replace(ALL[4], raw_sha256="1" * 64)]
    built = manifest({"bench": last}, AGENT)
    assert built["streams"]["bench"]["message"] == "hash chain broken at chunk 4"
    assert built["status"] == "gaps"


def test_more_chunks_than_the_agent_counts() -> None:
    built = manifest({"bench": ALL}, {"streams": {"bench": end_of(ALL[:3])}})
    assert built["streams"]["bench"]["chain_broken_at"] == 4


def test_part_of_a_line() -> None:
    cutter = ChunkCutter("bench")
    cutter.feed(b"x" * 200_000 + b"\n", T0)
    records = [cut[0] for _ in range(4) if (cut := cutter.cut(T0)) is not None]
    built = manifest({"bench": [records[0], *records[2:]]}, {"streams": {"bench": end_of(records)}})
    stream = built["streams"]["bench"]
    assert stream["message"] == "part of line 1 missing"
    assert stream["gaps"][0]["after_bytes"] == 65_536
    assert stream["ranges"] == [[0, 0], [2, 3]]


@pytest.mark.parametrize(
    ("first", "after", "text"),
    [
        (5, 5, "part of line 5 missing"),
        (5, 6, "line 5 missing"),
        (1204, 1389, "lines 1204-1388 missing"),
        (5, 1, "part of line 5 missing"),
    ],
)
def test_texts(first: int, after: int, text: str) -> None:
    assert missing_text(first, after) == text


HOSTILE = [
    {},
    {"streams": None},
    {"streams": []},
    {"streams": "x"},
    {"streams": {"bench": None}},
    {"streams": {"bench": {}}},
    {"streams": {"bench": {"chunks": "5", "lines": 50, "chain": "x"}}},
    {"streams": {"bench": {"chunks": True, "lines": 50, "chain": "x"}}},
    {"streams": {"bench": {"chunks": -1, "lines": 50, "chain": "x"}}},
    {"streams": {"bench": {"chunks": 5, "lines": 10**30, "chain": "x"}}},
    {"streams": {"bench": {"chunks": 5, "lines": 1e9, "chain": "x"}}},
    {"streams": {"bench": {"chunks": 5, "lines": 50, "chain": 7}}},
    {"streams": {"bench": {"chunks": 5, "lines": 50, "chain": "0" * 64}}},
    {"streams": {"../x": {"chunks": 5, "lines": 50, "chain": "x"}}},
    {"streams": {f"s{n}": {"chunks": 0, "lines": 0, "chain": ""} for n in range(5000)}},
]


@pytest.mark.parametrize("agent", HOSTILE)
def test_a_lying_agent_never_makes_evidence_complete(agent: Any) -> None:
    built = manifest({"bench": ALL}, agent)
    assert built["status"] == "gaps"
    assert built["streams"]["bench"]["chunks"] == 5
    assert len(built["streams"]) <= 17


@settings(max_examples=200)
@given(st.sets(st.integers(0, 4)))
def test_complete_means_all(kept: set[int]) -> None:
    records = [ALL[n] for n in kept]
    assert (manifest({"bench": records}, AGENT)["status"] == "complete") == (len(kept) == 5)


def test_artifacts_alone() -> None:
    artifacts = [Artifact("a", 1, "0" * 64)]
    assert manifest({}, artifacts=artifacts)["status"] == "gaps"
    assert manifest({}, artifacts=artifacts, vanished_at_ms=VANISHED)["status"] == "vanished"
    assert manifest({"bench": []}, {"streams": {}}, artifacts=artifacts)["status"] == "complete"


def test_absurd_clocks() -> None:
    record = dataclasses.replace(ALL[0], t_last_ms=2**53 - 1)
    assert "last line received is of" in manifest({"bench": [record]})["summary"]


def test_artifacts_are_kept_sorted_and_checked() -> None:
    artifacts = [Artifact("b", 1, "0" * 64), Artifact("a", 2, "1" * 64)]
    built = manifest({}, artifacts=artifacts)
    assert [artifact["name"] for artifact in built["artifacts"]] == ["a", "b"]
    with pytest.raises(WireError):
        manifest({}, artifacts=[Artifact("../x", 1, "0" * 64)])
    with pytest.raises(WireError):
        manifest({}, artifacts=[Artifact("x", 1, "zz")])
