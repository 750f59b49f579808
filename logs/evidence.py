"""The controller's manifest: what was received from one instance, and by name what was not.

Pure: records in, a JSON-able dict out. The agent's own manifest is a stranger's word: it is used
to find a missing tail, and kept beside ours.

    {"version": 1, "run", "instance", "sealed_at_ms", "reason", "vanished_at_ms",
     "status": "complete" | "gaps" | "vanished" | "empty", "summary": one line for the operator,
     "streams": {name: {"message", "chunks", "lines", "raw_bytes", "t_first_ms", "t_last_ms",
                        "ranges": [[first seq, last seq], ...], "chain": hash of the last record,
                        "chain_broken_at": seq | null, "end_confirmed": bool,
                        "gaps": [{"first_seq", "last_seq", "first_line", "next_line",
                                  "after_bytes", "text"}, ...]}},
     "artifacts": [{"name", "bytes", "sha256"}, ...], "exit_codes", "stages", "hardware",
     "telemetry", "agent_manifest", "case"}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from logs.gaps import StreamEnd, broken_link, find_gaps, in_order
from logs.wire import (
    MAX_SEQ,
    MAX_STREAMS_PER_INSTANCE,
    MAX_TIME_MS,
    ChunkRecord,
    WireError,
    chain_hash,
    check_artifact_name,
    check_sha256,
    check_stream_name,
)

VERSION = 1
_SHOWN_FAULTS = 3
_UNCONFIRMED = "the machine did not confirm the end"


@dataclass(frozen=True)
class Artifact:
    """A file that the archive holds under `wire.artifact_key`."""

    name: str
    bytes: int
    sha256: str


def build_manifest(
    *,
    run: str,
    instance: str,
    streams: Mapping[str, Iterable[ChunkRecord]],
    artifacts: Sequence[Artifact],
    exit_codes: Mapping[str, int | None],
    stages: Any,
    hardware: Any,
    telemetry: Any,
    agent_manifest: Mapping[str, Any] | None,
    vanished_at_ms: int | None,
    sealed_at_ms: int,
    reason: str,
    case: Any = None,
) -> dict[str, Any]:
    """The manifest (module docstring). The same arguments give the same manifest.

    `streams` names every declared stream, also those from which nothing came. `stages`, `hardware`, `telemetry` and
    `case` (what a diagnosis needs besides the logs) are kept as given (JSON). `agent_manifest`: as `gpu.protocol.Seal`
    or the one in an emergency zip, unchecked; None if the agent never sealed. `vanished_at_ms`: when the controller
    noticed that the machine was gone, else None.
    """
    ends = _agent_ends(agent_manifest)
    names = sorted({*streams, *ends})
    manifest: dict[str, Any] = {
        "version": VERSION,
        "run": run,
        "instance": instance,
        "sealed_at_ms": sealed_at_ms,
        "reason": reason,
        "vanished_at_ms": vanished_at_ms,
        "streams": {name: _stream(in_order(streams.get(name, ())), ends.get(name)) for name in names},
        "artifacts": [asdict(artifact) for artifact in sorted(artifacts, key=lambda a: a.name)],
        "exit_codes": dict(exit_codes),
        "stages": stages,
        "hardware": hardware,
        "telemetry": telemetry,
        "agent_manifest": dict(agent_manifest) if agent_manifest is not None else None,
        "case": case,
    }
    for artifact in artifacts:
        check_artifact_name(artifact.name)
        check_sha256(artifact.sha256)
    if agent_manifest is not None:
        # It sealed: a stream that it does not name had nothing to say.
        for name in set(names) - set(ends):
            manifest["streams"][name]["end_confirmed"] = not manifest["streams"][name]["chunks"]
    for stream in manifest["streams"].values():
        stream["message"] = _message(stream, vanished_at_ms)
    manifest["status"], manifest["summary"] = evidence_status(manifest)
    return manifest


def evidence_status(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """(`complete`, `gaps`, `vanished` or `empty`; one line that says it to an operator).

    `complete` means: every link of every chain holds and the machine itself confirmed each end.
    `vanished` only when the machine went before that; `empty` when nothing at all came.
    """
    streams: Mapping[str, Any] = manifest["streams"]
    filled = {name: stream for name, stream in streams.items() if stream["chunks"]}
    faulty = {name: stream for name, stream in streams.items() if not _whole(stream)}
    vanished = manifest["vanished_at_ms"]
    lines = sum(stream["lines"] for stream in streams.values())
    # Without any stream there is still the machine's own word to wait for.
    whole = not faulty and manifest["agent_manifest"] is not None
    if not whole and vanished is not None:
        last = max((stream["t_last_ms"] for stream in filled.values()), default=None)
        return "vanished", _vanished_text(vanished, last)
    if not filled and not manifest["artifacts"] and not any(stream["gaps"] for stream in faulty.values()):
        return "empty", "nothing was received from the machine"
    if not whole:
        told = [f"{name}: {stream['message']}" for name, stream in faulty.items()] or [_UNCONFIRMED]
        rest = f"; and {len(told) - _SHOWN_FAULTS} more streams" if len(told) > _SHOWN_FAULTS else ""
        return "gaps", "; ".join(told[:_SHOWN_FAULTS]) + rest
    plural = "" if len(filled) == 1 else "s"
    return "complete", f"complete, {lines:,} lines in {len(filled)} stream{plural}"


def _stream(records: list[ChunkRecord], end: StreamEnd | None) -> dict[str, Any]:
    ranges: list[list[int]] = []
    for record in records:
        if ranges and ranges[-1][1] == record.seq - 1:
            ranges[-1][1] = record.seq
        else:
            ranges.append([record.seq, record.seq])
    gaps = find_gaps(records, end)
    return {
        "message": "",
        "chunks": len(records),
        "lines": sum(record.lines for record in records),
        "raw_bytes": sum(record.raw_bytes for record in records),
        "t_first_ms": records[0].t_first_ms if records else None,
        "t_last_ms": records[-1].t_last_ms if records else None,
        "ranges": ranges,
        "chain": chain_hash(records[-1]) if records else "",
        "chain_broken_at": broken_link(records, end),
        "end_confirmed": end is not None,
        "gaps": [{**asdict(gap), "text": gap.text} for gap in gaps],
    }


def _whole(stream: Mapping[str, Any]) -> bool:
    return not stream["gaps"] and stream["chain_broken_at"] is None and stream["end_confirmed"]


def _message(stream: Mapping[str, Any], vanished_at_ms: int | None) -> str:
    faults = [gap["text"] for gap in stream["gaps"]]
    if stream["chain_broken_at"] is not None:
        faults.append(f"hash chain broken at chunk {stream['chain_broken_at']}")
    if not stream["end_confirmed"]:
        if vanished_at_ms is not None:
            faults.append(_vanished_text(vanished_at_ms, stream["t_last_ms"]))
        else:
            faults.append(f"{_UNCONFIRMED}; {_last_text(stream['t_last_ms'])}")
    if faults:
        return "; ".join(faults)
    return f"complete, {stream['lines']:,} lines" if stream["chunks"] else "complete, nothing was written"


def _vanished_text(vanished_at_ms: int, t_last_ms: int | None) -> str:
    return f"machine vanished at {_clock(vanished_at_ms)}; {_last_text(t_last_ms)}"


def _last_text(t_last_ms: int | None) -> str:
    if t_last_ms is None:
        return "no line was received"
    return f"last line received is of {_clock(t_last_ms)} (the machine's clock)"


def _clock(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a machine's clock may say anything
        return f"{time_ms} ms"


def _agent_ends(agent_manifest: Mapping[str, Any] | None) -> dict[str, StreamEnd]:
    """The parts of the agent's manifest that make sense; the others are as if not sent."""
    streams = (agent_manifest or {}).get("streams")
    ends: dict[str, StreamEnd] = {}
    if not isinstance(streams, Mapping):
        return ends
    for name, value in list(streams.items())[:MAX_STREAMS_PER_INSTANCE]:
        try:
            ends[check_stream_name(name)] = _agent_end(value)
        except WireError:
            continue
    return ends


def _agent_end(value: Any) -> StreamEnd:
    if not isinstance(value, Mapping):
        raise WireError("not an object")
    chunks, lines, chain = value.get("chunks"), value.get("lines"), value.get("chain")
    if type(chunks) is not int or type(lines) is not int or not isinstance(chain, str):
        raise WireError("wrong types")
    if not 0 <= chunks <= MAX_SEQ or not 0 <= lines <= MAX_TIME_MS:
        raise WireError("out of range")
    return StreamEnd(chunks, lines, chain)
