"""Broken copies of files: one fault each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.groth16.binfile import BinFile, Kind, container
from gpu.groth16.r1cs import R1CS
from gpu.groth16.wtns import WTNS
from gpu.groth16.zkey import ZKEY
from tests.gpu.points import outside_subgroup

Edit = Callable[[dict[int, bytearray]], None]


def read_sections(path: Path, kind: Kind) -> dict[int, bytearray]:
    file = BinFile(path, kind)
    return {number: bytearray(file.section(number)) for number in kind.sections}


def edited(path: Path, kind: Kind, edit: Edit) -> bytes:
    """The file with its sections changed by `edit`, lengths made to match."""
    sections = read_sections(path, kind)
    edit(sections)
    return container(kind, [(number, bytes(content)) for number, content in sections.items()])


def _put(section: int, at: int, value: bytes) -> Edit:
    def edit(sections: dict[int, bytearray]) -> None:
        sections[section][at : at + len(value)] = value

    return edit


def _cut(section: int, count: int) -> Edit:
    def edit(sections: dict[int, bytearray]) -> None:
        del sections[section][-count:]

    return edit


def frames(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Faults of the container itself, for any of the three file types."""
    yield "zero bytes", b""
    yield "four bytes", raw[:4]
    for share in (0.01, 0.3, 0.7, 0.999):
        yield f"truncated to {share:.1%}", raw[: int(len(raw) * share)]
    yield "wrong magic", b"xxxx" + raw[4:]
    yield "wrong version", raw[:4] + struct.pack("<I", 9) + raw[8:]
    yield "a million sections", raw[:8] + struct.pack("<I", 1_000_000) + raw[12:]
    yield "one section too few", raw[:8] + struct.pack("<I", 1) + raw[12:]
    yield "forged section length", raw[:16] + struct.pack("<Q", 1 << 62) + raw[24:]
    yield "trailing bytes", raw + bytes(40)
    yield "noise", bytes(range(256)) * 40


def zkeys(path: Path, curve: Curve) -> Iterator[tuple[str, bytes]]:
    """Faults inside a proving key. Offsets follow the format in `gpu.groth16.zkey`."""
    n8, p, r = curve.fp.n_bytes, curve.p, curve.r
    sizes = 8 + n8 + 32
    edits: dict[str, Edit] = {
        "another protocol": _put(1, 0, struct.pack("<I", 2)),
        "foreign base field": _put(2, 4, (p + 2).to_bytes(n8, "little")),
        "foreign scalar field": _put(2, 8 + n8, (r + 2).to_bytes(32, "little")),
        "absurd field width": _put(2, 0, struct.pack("<I", 1 << 30)),
        "no variables": _put(2, sizes, struct.pack("<I", 0)),
        "four billion variables": _put(2, sizes, struct.pack("<I", 0xFFFFFFFF)),
        "more public than variables": _put(2, sizes + 4, struct.pack("<I", 1000)),
        "domain no power of two": _put(2, sizes + 8, struct.pack("<I", 7)),
        "domain beyond the roots": _put(2, sizes + 8, struct.pack("<I", 1 << 31)),
        "short header": _cut(2, 8),
        "alpha at infinity": _put(2, sizes + 12, bytes(2 * n8)),
        "alpha off curve": _put(2, sizes + 12, bytes([1])),
        "forged coefficient count": _put(4, 0, struct.pack("<I", 0xFFFFFFF0)),
        "third matrix": _put(4, 4, struct.pack("<I", 2)),
        "row out of range": _put(4, 8, struct.pack("<I", 1 << 20)),
        "variable out of range": _put(4, 12, struct.pack("<I", 1 << 20)),
        "coefficient = r": _put(4, 16, r.to_bytes(32, "little")),
        "IC off curve": _put(3, 0, bytes([1, 2, 3])),
        "A coordinate >= p": _put(5, 0, p.to_bytes(n8, "little")),
        "section one point short": _cut(9, 2 * n8),
    }
    for number, name in ((5, "A"), (6, "B1"), (7, "B2"), (8, "C"), (9, "H")):
        edits[f"{name} off curve"] = _put(number, 0, bytes([1, 2, 3]))
    two = kernel_g2(curve)
    edits["B2 outside the subgroup"] = _put(7, 0, two.encode([outside_subgroup(two)]).tobytes())
    if not curve.d_twist:
        one = kernel_g1(curve)
        edits["H outside the subgroup"] = _put(9, 0, one.encode([outside_subgroup(one)]).tobytes())
    for name, edit in edits.items():
        yield name, edited(path, ZKEY, edit)


def witnesses(path: Path, curve: Curve) -> Iterator[tuple[str, bytes]]:
    """Faults inside a witness."""
    other = 21888242871839275222246405745257275088548364400416034343698204186575808495619
    edits: dict[str, Edit] = {
        "foreign field": _put(1, 4, other.to_bytes(32, "little")),
        "absurd value width": _put(1, 0, struct.pack("<I", 1 << 31)),
        "no values": _put(1, 36, struct.pack("<I", 0)),
        "forged count": _put(1, 36, struct.pack("<I", 0xFFFFFFFF)),
        "value = r": _put(2, 64, curve.r.to_bytes(32, "little")),
        "all ones": _put(2, 64, bytes([255]) * 32),
        "first value not one": _put(2, 0, bytes([2])),
        "short values": _cut(2, 32),
        "unsatisfying": _put(2, 64, bytes([99])),
        "wrong output": _put(2, 32, bytes([1, 2, 3])),
    }
    for name, edit in edits.items():
        yield name, edited(path, WTNS, edit)


def circuits(path: Path, curve: Curve) -> Iterator[tuple[str, bytes]]:
    """Faults inside a constraint file."""
    edits: dict[str, Edit] = {
        "foreign field": _put(1, 4, (curve.r + 2).to_bytes(32, "little")),
        "no wires": _put(1, 36, struct.pack("<I", 0)),
        "wire count does not match labels": _put(1, 36, struct.pack("<I", 1 << 31)),
        "forged constraint count": _put(1, 60, struct.pack("<I", 0xFFFFFFFF)),
        "no constraints": _put(1, 60, struct.pack("<I", 0)),
        "one constraint fewer": _put(1, 60, struct.pack("<I", 5)),
        "forged term count": _put(2, 0, struct.pack("<I", 0xFFFFFFFF)),
        "wire out of range": _put(2, 4, struct.pack("<I", 1 << 20)),
        "coefficient = r": _put(2, 8, curve.r.to_bytes(32, "little")),
        "short constraints": _cut(2, 5),
    }
    for name, edit in edits.items():
        yield name, edited(path, R1CS, edit)
