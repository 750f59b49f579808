"""The circuits, keys and witnesses that the benchmarks prove with: made once, kept in a folder outside git."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "bench"
PROVEFLEET = ROOT / ".venv" / "bin" / "provefleet"


@dataclass(frozen=True)
class Circuit:
    """Files of one circuit, on one curve, whose evaluation domain has 2^log_domain elements."""

    curve: str
    log_domain: int
    r1cs: Path
    wtns: Path
    zkey: Path
    vkey: Path


def chain(curve: str, log_domain: int) -> Circuit:
    """The chain x -> x^2 + i with a few constraints fewer than the domain holds, and a development key.

    Its witness values fill the field, which is the slow case for every prover.
    """
    folder = FOLDER / f"{curve}_chain_{log_domain}"
    folder.mkdir(parents=True, exist_ok=True)
    made = Circuit(curve, log_domain, *(folder / f"circuit.{kind}" for kind in ("r1cs", "wtns", "zkey", "json")))
    if not made.vkey.exists():
        constraints = (1 << log_domain) - 64
        _run("circuit", "chain", constraints, made.r1cs, made.wtns, "--curve", curve)
        _run("setup", made.r1cs, made.zkey, "--insecure")
        _run("vkey", made.zkey, made.vkey)
    return made


def _run(*arguments: object) -> None:
    subprocess.run([str(PROVEFLEET), *map(str, arguments)], check=True)
