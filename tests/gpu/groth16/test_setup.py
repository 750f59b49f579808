"""Development keys: what they are made of, odd circuits, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu import memory
from gpu.curve.params import Curve
from gpu.errors import BadFile, OutOfMemory
from gpu.groth16 import constraints as reading
from gpu.groth16.binfile import BinFile, container
from gpu.groth16.engine import Engine
from gpu.groth16.r1cs import R1CS, Constraint, R1csFacts, write_r1cs
from gpu.groth16.setup import write_development_key
from gpu.groth16.wtns import wtns_bytes
from gpu.groth16.zkey import ZKEY, inspect_zkey
from tests.gpu.conftest import Files

pytestmark = pytest.mark.prover

# Wires: one, an output, a public input, a private input, one in no constraint.
SQUARE: Constraint = ([(3, 1)], [(3, 1)], [(1, 1)])


def circuit(path: Path, curve: Curve, constraints: Sequence[Constraint], n_out: int, n_in: int, n_wires: int) -> Path:
    facts = R1csFacts(curve, n_wires, n_out, n_in, n_wires - 1 - n_out - n_in, n_wires, len(constraints))
    write_r1cs(path, facts, constraints, range(n_wires))
    return path


def prove(folder: Path, curve: Curve, r1cs: Path, values: Sequence[int], engine: Engine) -> list[str]:
    """The engine checks each proof against the key, so that what it returns verifies."""
    (folder / "w.wtns").write_bytes(wtns_bytes(curve, values))
    write_development_key(r1cs, folder / "k.zkey")
    return engine.prove(str(folder / "k.zkey"), str(folder / "w.wtns")).public


def test_a_wire_in_no_constraint_and_terms_of_every_kind(curve: Curve, tmp_path: Path, engine: Engine) -> None:
    r = curve.r
    rows: list[Constraint] = [
        SQUARE,
        ([(3, 1), (2, 0), (3, 1)], [(0, 1)], [(3, 2)]),  # a coefficient of zero, and a wire twice
        ([], [(3, 5)], []),
        ([(3, r - 1)], [], []),
        ([(0, 7)], [(0, 1)], [(0, 7)]),
        SQUARE,
    ]
    r1cs = circuit(tmp_path / "c.r1cs", curve, rows, 1, 1, 5)
    assert prove(tmp_path, curve, r1cs, [1, 81, 4, 9, 1234], engine) == ["81", "4"]
    assert inspect_zkey(tmp_path / "k.zkey").n_coefficients == 15 - 3 + 3


@pytest.mark.parametrize(
    ("rows", "n_out", "n_in", "values"),
    [
        ([SQUARE], 0, 0, [1, 81, 4, 9]),  # nothing is public
        ([SQUARE], 1, 2, [1, 81, 4, 9]),  # everything is
        ([SQUARE], 2, 0, [1, 81, 4, 9]),  # outputs only
        ([([(0, 1)], [(0, 1)], [(0, 1)])], 0, 0, [1, 2]),  # a domain of two, and no wire in use
        ([], 1, 0, [1, 2]),  # circom writes such a circuit when simplification leaves nothing
    ],
)
def test_odd_shapes(
    rows: list[Constraint], n_out: int, n_in: int, values: list[int], curve: Curve, tmp_path: Path, engine: Engine
) -> None:
    r1cs = circuit(tmp_path / "c.r1cs", curve, rows, n_out, n_in, len(values))
    assert prove(tmp_path, curve, r1cs, values, engine) == [str(value) for value in values[1 : 1 + n_out + n_in]]


def test_no_two_keys_are_alike(small: Files, tmp_path: Path) -> None:
    made = [tmp_path / "1.zkey", tmp_path / "2.zkey"]
    for path in made:
        write_development_key(small.r1cs, path)
    one, two = (BinFile(path, ZKEY) for path in made)
    assert bytes(one.section(4)) == bytes(two.section(4))
    for number in (2, 3, 5, 6, 7, 8, 9):
        assert bytes(one.section(number)) != bytes(two.section(number))


def test_coefficients_come_in_pieces(curve: Curve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Constraint] = [([(i % 3, i + 1), (3, 2)], [(3, i)] * (i % 4), [(1, 1)]) for i in range(1, 9)]
    r1cs = circuit(tmp_path / "c.r1cs", curve, rows, 1, 1, 4)
    sections = []
    for piece in (1, 5, 1 << 10):
        monkeypatch.setattr(reading, "_PIECE", piece)
        write_development_key(r1cs, tmp_path / "k.zkey")
        sections.append(bytes(BinFile(tmp_path / "k.zkey", ZKEY).section(4)))
    assert sections[0] == sections[1] == sections[2]
    expected = [
        (matrix, row, wire, factor * pow(2, 512, curve.r) % curve.r)
        for row, triple in enumerate(rows)
        for matrix in (0, 1)
        for wire, factor in triple[matrix]
    ]
    expected += [(0, len(rows) + wire, wire, pow(2, 512, curve.r)) for wire in range(3)]
    got = [
        (*struct.unpack_from("<III", sections[0], at), int.from_bytes(sections[0][at + 12 : at + 44], "little"))
        for at in range(4, len(sections[0]), 44)
    ]
    assert got == expected


def test_custom_gates_are_refused_by_name(small: Files, tmp_path: Path) -> None:
    file = BinFile(small.r1cs, R1CS)
    sections = [(number, bytes(file.section(number))) for number in (2, 1, 3)]
    for extra, refused in (([(4, bytes(4)), (5, bytes(4))], False), ([(4, struct.pack("<I", 1) + b"X")], True)):
        (tmp_path / "c.r1cs").write_bytes(container(R1CS, [*sections, *extra]))
        if refused:
            with pytest.raises(BadFile, match="custom gates"):
                write_development_key(tmp_path / "c.r1cs", tmp_path / "r.zkey")
        else:
            write_development_key(tmp_path / "c.r1cs", tmp_path / "k.zkey")
    assert not (tmp_path / "r.zkey").exists()


def test_too_little_memory_is_said_before_any_work(
    small: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "limit_bytes", lambda: 100 << 20)
    with pytest.raises(OutOfMemory, match="take one with more memory"):
        write_development_key(small.r1cs, tmp_path / "k.zkey")
    assert list(tmp_path.iterdir()) == []
