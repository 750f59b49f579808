"""The words between a rented machine and the controller, version 1 (`docs/agent-protocol.md`).

JSON over HTTP under `/agent/v1/`, bearer token, every call idempotent. Standard library only:
both ends import this module, and it parses what a stranger's machine sent, so `from_json`
checks every field and raises `ProtocolError`, never anything else.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Self

VERSION = 1
PREFIX = f"/agent/v{VERSION}"
MAX_JSON_BYTES = 1 << 20
MAX_TEXT = 4000

STAGES = ("loading", "tunnels", "params", "benchmark", "prove", "serve", "sealing")


class ProtocolError(ValueError):
    """A message that is not of this protocol: which field, and what was wrong with it."""


def _check(value: Any, kind: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if value is None and type(None) in options:
            return None
        return _check(value, next(o for o in options if o is not type(None)), where)
    if origin is list:
        if not isinstance(value, list):
            raise ProtocolError(f"{where} must be a list, not {type(value).__name__}")
        inner = typing.get_args(kind)[0]
        return [_check(item, inner, f"{where}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise ProtocolError(f"{where} must be an object, not {type(value).__name__}")
        inner = typing.get_args(kind)[1]
        return {str(k): _check(v, inner, f"{where}.{str(k)[:40]}") for k, v in value.items()}
    if dataclasses.is_dataclass(kind):
        return kind.from_json(value, where)  # type: ignore[union-attr]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if (kind is not bool and isinstance(value, bool)) or not isinstance(value, kind):
        raise ProtocolError(f"{where} must be {kind.__name__}, not {type(value).__name__}")
    if kind is float and not abs(value) < 1e300:
        raise ProtocolError(f"{where} must be a finite number")
    if kind is int and not -(2**63) <= value < 2**63:
        raise ProtocolError(f"{where} does not fit 64 bits")
    return value


class Message:
    """A versioned dataclass that travels as JSON. Unknown keys are ignored, so that either end may be newer."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, data: Any, where: str = "") -> Self:
        """Parse `data`; raises `ProtocolError` naming the first field that is missing or of the wrong type."""
        where = where or cls.__name__
        if not isinstance(data, dict):
            raise ProtocolError(f"{where} must be an object, not {type(data).__name__}")
        hints = typing.get_type_hints(cls)
        values = {}
        for f in dataclasses.fields(cls):  # type: ignore[arg-type]
            if f.name in data:
                values[f.name] = _check(data[f.name], hints[f.name], f"{where}.{f.name}")
            elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
                raise ProtocolError(f"{where}.{f.name} is missing")
        return cls(**values)


@dataclass(frozen=True)
class Fetch(Message):
    """One file to fetch: `url` is presigned and short-lived; `sha256` names the content and the cache entry."""

    name: str
    url: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class StageCommand(Message):
    """How to run one stage. `{work}`, `{params}`, `{witnesses}`, `{proofs}` and `{progress}` in an argument
    are replaced on the machine; `daemon`, when not empty, is started first and stopped after `command`.
    `warm_up` runs once before the tasks are pulled, so that the controller's clock measures proving alone.
    `files` maps a stream name to a log file (relative to `{work}`; * and ? stand for any) that is shipped while it
    grows. `depends_on` names what the stage uses: params, archive, gpu, tunnel:PORT (on loopback) and the like."""

    command: list[str]
    daemon: list[str] = field(default_factory=list)
    daemon_socket: str = ""
    warm_up: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    depends_on: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Spec(Message):
    """What one instance is to do: its stages in order, its parameters, its limits.

    `first_round` is over 1 when another machine had the rounds before it.
    """

    instance: str
    run: str
    payload: str
    kind: str
    stages: list[str]
    params: list[Fetch]
    commands: dict[str, StageCommand]
    proofs: int
    concurrency: int
    partition_workers: int
    env: dict[str, str] = field(default_factory=dict)
    streams: list[str] = field(default_factory=list)
    deadlines_s: dict[str, float] = field(default_factory=dict)
    first_round: int = 1
    version: int = VERSION


@dataclass(frozen=True)
class Register(Message):
    """The first call: the one-time bootstrap token comes as bearer; facts say what the machine is."""

    facts: dict[str, Any]
    agent_version: str
    image_digest: str = ""
    version: int = VERSION


@dataclass(frozen=True)
class Registered(Message):
    """The answer: the instance's own token (shown once, stored hashed), its spec, its lease."""

    token: str
    spec: Spec
    lease_s: float
    version: int = VERSION


@dataclass(frozen=True)
class Progress(Message):
    """k of `total` units of `stage` are `done`, `failed` of them badly; `moved_ms` is when k last moved
    (the machine's clock). `ended` is set once the stage's command has ended."""

    stage: str
    round: int = 1
    done: int = 0
    failed: int = 0
    total: int = 0
    note: str = ""
    moved_ms: int = 0
    ended: bool = False
    exit_code: int | None = None
    signal: str = ""
    error: str = ""


@dataclass(frozen=True)
class Lease(Message):
    """Renewal, sent every `next_s` of the last reply."""

    progress: Progress
    telemetry: dict[str, float] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    version: int = VERSION


@dataclass(frozen=True)
class Upload(Message):
    """A presigned PUT: send exactly these headers."""

    url: str
    headers: dict[str, str]
    expires_s: float


@dataclass(frozen=True)
class Command(Message):
    """An order, repeated in every reply until what it asks is true.

    `seal`: stop the stage, ship everything, call seal. `exit`: end. `round`: benchmark again, as round `round`.
    """

    name: str
    reason: str = ""
    round: int = 0


@dataclass(frozen=True)
class Leased(Message):
    """The lease holds for `lease_s` from now; `emergency` is where to put the evidence when it can't be renewed.
    `now_ms` is the controller's clock, 0 from one that does not tell."""

    lease_s: float
    next_s: float
    commands: list[Command] = field(default_factory=list)
    emergency: Upload | None = None
    now_ms: int = 0
    version: int = VERSION


@dataclass(frozen=True)
class ChunkAck(Message):
    """`stored`: chunk `seq` is in the archive (or was already). `next_seq`: the first one that is not."""

    stored: bool
    next_seq: int


@dataclass(frozen=True)
class Pull(Message):
    """Ask for the tasks of one round. The controller's clock for that round starts at the first pull."""

    stage: str
    round: int = 1


@dataclass(frozen=True)
class Task(Message):
    """Proof `index` of a round is to be made from this witness."""

    index: int
    witness: Fetch


@dataclass(frozen=True)
class Pulled(Message):
    tasks: list[Task]


@dataclass(frozen=True)
class Result(Message):
    """Proof `index` of `round`: snarkjs `proof` and `public`, or `error`. `machine_ms` is the machine's own figure."""

    index: int
    round: int
    ok: bool
    proof: dict[str, Any] | None = None
    public: list[str] | None = None
    error: str = ""
    machine_ms: float = 0.0
    timings_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamEnd(Message):
    """The agent's account of one stream, for finding a missing tail."""

    chunks: int
    lines: int
    raw_bytes: int
    chain: str


@dataclass(frozen=True)
class Process(Message):
    """How a program that the agent started ended. `signal` also where the agent itself `stopped` it. `core_dumped`:
    the kernel wrote a dump, where the facts' `core_pattern` says."""

    name: str
    stage: str
    round: int
    exit_code: int | None = None
    signal: str = ""
    stopped: bool = False
    core_dumped: bool = False
    ran_s: float = 0.0


@dataclass(frozen=True)
class Seal(Message):
    """All is shipped: the agent's own manifest. An input to the controller's, never its truth.

    `exit_codes` and `signals` are by stage and by program (daemon, warm-up, bench), of the last round; a signal by
    which the agent itself stopped a program is none. `image_digest` is what ran, `driver` and `cuda` what the GPUs had.
    """

    streams: dict[str, StreamEnd]
    exit_codes: dict[str, int | None]
    signals: dict[str, str]
    stages_ms: dict[str, float]
    reason: str = ""
    processes: list[Process] = field(default_factory=list)
    image_digest: str = ""
    driver: str = ""
    cuda: str = ""
    version: int = VERSION


@dataclass(frozen=True)
class Sealed(Message):
    """`missing`: streams whose chunks are not here up to the stated end, with the next seq: ship them, seal again."""

    accepted: bool
    missing: dict[str, int] = field(default_factory=dict)
