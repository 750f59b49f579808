"""What can run on a rented machine, as data: one TOML file a payload, read by `load`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gpu.protocol import StageCommand


class UnknownPayload(ValueError):
    """No such payload; the message lists those there are."""


@dataclass(frozen=True)
class Payload:
    """A prover as the agent runs it. `commands` maps a stage to what it runs; deadlines are seconds."""

    name: str
    title: str
    description: str
    streams: list[str]
    commands: dict[str, StageCommand]
    deadlines_s: dict[str, float]
    silent_s: dict[str, float]
    env: dict[str, str] = field(default_factory=dict)


def names() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))


@cache
def load(name: str) -> Payload:
    """The payload called `name`. Raises `UnknownPayload`."""
    if name not in names():
        raise UnknownPayload(f"there is no payload {name!r}; there are: {', '.join(names())}")
    data = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text())
    return Payload(
        name=name,
        title=data["title"],
        description=data["description"],
        streams=data["streams"],
        commands={
            stage: StageCommand.from_json(table["run"]) for stage, table in data["stage"].items() if "run" in table
        },
        deadlines_s={stage: float(table["deadline_s"]) for stage, table in data["stage"].items()},
        silent_s={stage: float(table["silent_s"]) for stage, table in data["stage"].items()},
        env=data.get("env", {}),
    )
