"""Every reader of a file that somebody else may have written, under one name each: what fuzzing calls.

A reader takes a path and returns, or raises a ProverError. Anything else that comes out is a bug, and so is a message
of more than one line or without the file's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu.errors import ProverError

LIMIT_S = 5.0  # of processor time: what a refusal may take
Reader = Callable[[Path], object]


def refusal(reader: Reader, path: Path) -> str | None:
    """The message with which the reader refuses the file, or None when it reads it. AssertionError for a bad one."""
    begun = time.process_time()
    try:
        reader(path)
        return None
    except ProverError as error:
        message = str(error)
    assert time.process_time() - begun < LIMIT_S, "a refusal took too long"
    assert len(message.splitlines()) == 1, message
    assert message.isprintable(), ascii(message)
    assert str(path) in message, message
    return message


def light() -> dict[str, Reader]:
    """The readers that need no compiled code: fast enough for coverage-guided fuzzing."""
    from gpu.groth16.r1cs import open_r1cs
    from gpu.groth16.wtns import read_public
    from gpu.groth16.zkey import ic_points, open_zkey
    from gpu.verifying import read_proof, read_public_values, read_vkey
    from gpu.witness.inputs import read_inputs
    from tests.gpu.conftest import SNARKJS_FIXTURES

    key = read_vkey(str(SNARKJS_FIXTURES["bn254"] / "vkey.json"))
    return {
        "zkey": lambda path: ic_points(*open_zkey(path)),
        "wtns": lambda path: read_public(path, 1),
        "r1cs": open_r1cs,
        "vkey": lambda path: read_vkey(str(path)),
        "proof": lambda path: read_proof(str(path), key),
        "public": lambda path: read_public_values(str(path), key),
        "inputs": read_inputs,
    }


def whole(zkey: Path, wtns: Path, pool: ThreadPoolExecutor) -> dict[str, Reader]:
    """The readers as the prover and the setup use them, every point, value and constraint checked. `zkey` and
    `wtns` are good files of the same circuit.
    """
    from gpu.groth16.key import load_key
    from gpu.groth16.prover import synthesise
    from gpu.groth16.setup import write_development_key
    from gpu.groth16.ticket import Ticket

    key = load_key(zkey, pool, 2)

    def setup(path: Path) -> None:
        out = path.with_name("made.zkey")
        try:
            write_development_key(path, out)
        except ProverError:
            assert not out.exists(), "a refused circuit left a key behind"
            raise
        out.unlink()

    return {
        "zkey": lambda path: load_key(path, pool, 2),
        "wtns": lambda path: synthesise(key, str(path), pool, Ticket()),
        "r1cs": setup,
    }
