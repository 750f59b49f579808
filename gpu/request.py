"""What a client of the daemon may ask for, read from JSON and checked field by field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gpu.errors import Refused

MAX_PARTITIONS = 1024
MAX_PATH = 4096
MAX_ID = 256
PRIORITIES = range(-1000, 1001)
_FIELDS = {"request_id", "zkey", "wtns", "partitions", "priority", "deadline_s", "wait"}


class BadRequest(Refused):
    """The request itself is wrong; one line says which field, and what it must be."""

    WORD = "bad_request"


@dataclass(frozen=True)
class ProofRequest:
    """Proofs of one key: one of `witnesses` each. `many`: they came as `partitions` and are answered as such."""

    request_id: str
    zkey: str
    witnesses: tuple[str, ...]
    many: bool = False
    priority: int = 0
    deadline_s: float | None = None
    wait: bool = True

    def same_work(self, other: ProofRequest) -> bool:
        """Whether both ask for the same proofs, be it with another priority, deadline or patience."""
        return (self.zkey, self.witnesses, self.many) == (other.zkey, other.witnesses, other.many)


def parse_request(raw: bytes) -> ProofRequest:
    """BadRequest for anything that is not a request in every field."""
    given = read_object(raw)
    unknown = sorted(set(given) - _FIELDS)
    if unknown:
        raise BadRequest(f"the field {unknown[0][:64]!r} is unknown; the daemon knows {', '.join(sorted(_FIELDS))}")
    if ("wtns" in given) == ("partitions" in given):
        raise BadRequest("give either wtns (one witness) or partitions (a list of them)")
    many = "partitions" in given
    witnesses = given["partitions"] if many else [given["wtns"]]
    if not isinstance(witnesses, list) or not 1 <= len(witnesses) <= MAX_PARTITIONS:
        raise BadRequest(f"partitions must be a list of 1 to {MAX_PARTITIONS} witness files")
    name = "each of partitions" if many else "wtns"
    return ProofRequest(
        request_id=_request_id(given),
        zkey=string(given.get("zkey"), "zkey", MAX_PATH),
        witnesses=tuple(string(witness, name, MAX_PATH) for witness in witnesses),
        many=many,
        priority=_priority(given.get("priority", 0)),
        deadline_s=_deadline(given.get("deadline_s")),
        wait=_boolean(given.get("wait", True)),
    )


def parse_key_request(raw: bytes) -> str:
    """The path in `{"zkey": path}`. BadRequest for anything else."""
    given = read_object(raw)
    if set(given) != {"zkey"}:
        raise BadRequest("the body must be JSON with the one field zkey")
    return string(given["zkey"], "zkey", MAX_PATH)


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise BadRequest("the body must be a JSON object, such as {request_id, zkey, wtns}")
    return given


def string(value: object, name: str, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise BadRequest(f"{name} must be a string of 1 to {longest} characters")
    return value


def _request_id(given: dict[str, Any]) -> str:
    value = string(given.get("request_id"), "request_id", MAX_ID)
    if not value.isprintable():
        raise BadRequest("request_id must be printable")
    return value


def _priority(value: object) -> int:
    if type(value) is not int or value not in PRIORITIES:
        raise BadRequest(f"priority must be a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}; higher goes first")
    return value


def _deadline(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
        raise BadRequest("deadline_s must be a positive number of seconds")
    return float(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadRequest("wait must be true or false")
    return value
