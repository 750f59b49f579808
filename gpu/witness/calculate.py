"""From a circom program and its inputs to a `.wtns` file: the same bytes that `snarkjs wtns calculate` writes."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Iterator

from gpu.curve.params import curve_by_order
from gpu.errors import BadFile, Refused
from gpu.files import staged
from gpu.groth16.binfile import BinWriter
from gpu.groth16.wtns import N8, WTNS
from gpu.witness.circom1 import Circom1
from gpu.witness.circom2 import Circom2
from gpu.witness.inputs import read_inputs
from gpu.witness.sandbox import Program

_START_S = 4.0  # of processor time, whatever the program
_VALUE_S = 1e-4  # more for each value of its witness: some hundred field multiplications
_MAX_S = 600.0
_MAX_LOGGED = 10_000

_TODO = "see the circuit's input signals"


def write_witness(
    wasm: str | os.PathLike[str],
    inputs: str | os.PathLike[str],
    wtns: str | os.PathLike[str],
    timeout_s: float | None,
    log: Callable[[str], None],
) -> None:
    """Runs the program and writes its witness. Inputs are reduced modulo the field's order.

    `timeout_s`: processor seconds that the program may take; None: 4, and 100 microseconds for each value of
    the witness, 600 at most. `log` gets what the circuit logs, a line at a time. BadFile for a program or
    inputs that can't be right, WitnessRefused for inputs that break an assertion, DeadlineExceeded,
    OutOfMemory.
    """
    given = read_inputs(inputs)
    with Program(wasm) as program:
        program.allow(timeout_s or _START_S)
        limited = _limited(log)
        running = Circom1(program, limited) if program.imports_memory() else Circom2(program, limited)
        curve = curve_by_order(running.prime)
        if curve is None:
            raise Refused(
                f"{wasm}: its field is neither BN254's nor BLS12-381's; compile it with -p bn128 or -p bls12381"
            )
        if timeout_s is None:
            program.allow(min(_MAX_S, _START_S + _VALUE_S * running.n_witness))
        running.begin()
        _set_inputs(running, given, curve.r, inputs)
        with staged(wtns) as (file,):
            out = BinWriter(file, WTNS)
            out.section(1)
            out.write(struct.pack("<I", N8) + curve.r.to_bytes(N8, "little") + struct.pack("<I", running.n_witness))
            out.section(2)
            for piece in _checked(program, running, curve.r):
                out.write(piece)
            out.end()


def _limited(log: Callable[[str], None]) -> Callable[[str], None]:
    """A program that logs without end must not fill a disk, nor send commands to a terminal."""
    lines = itertools.count(1)

    def limited(line: str) -> None:
        if next(lines) <= _MAX_LOGGED:
            log(line if line.isprintable() else ascii(line))

    return limited


def _checked(program: Program, running: Circom1 | Circom2, order: int) -> Iterator[bytes]:
    for number, piece in enumerate(running.witness()):
        values = [int.from_bytes(piece[i : i + N8], "little") for i in range(0, len(piece), N8)]
        if max(values) >= order:
            raise program.bad("made a value that is not below the field's modulus")
        if number == 0 and values[0] != 1:
            raise program.bad("made a witness that does not begin with 1")
        yield piece


def _set_inputs(
    running: Circom1 | Circom2, given: dict[str, list[int]], order: int, path: str | os.PathLike[str]
) -> None:
    sizes = {}
    for name, values in given.items():
        size = sizes[name] = running.size_of(*signal_hash(name))
        if size == -1 or (size == 0 and values):  # newer programs answer 0 for a name they do not know
            raise BadFile(path, f"signal {name}", "the circuit has no such input", _TODO)
        if size is not None and size != len(values):
            raise BadFile(path, f"signal {name}", f"has {len(values)} values, the circuit takes {size}", _TODO)
    wanted, have = running.n_inputs(), sum(len(values) for values in given.values())
    if wanted is not None and have < wanted:
        raise BadFile(path, "signals", f"give {have} values, the circuit takes {wanted}", _TODO)
    for name, values in given.items():
        running.set_input(*signal_hash(name), [value % order for value in values])


def signal_hash(name: str) -> tuple[int, int]:
    """FNV-1a of a signal's name over its UTF-16 units, as (high, low) words: circom's key for inputs."""
    digest = 0xCBF29CE484222325
    units = name.encode("utf-16-le", "surrogatepass")
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        digest = (digest ^ unit) * 0x100000001B3 % (1 << 64)
    return digest >> 32, digest & 0xFFFFFFFF
