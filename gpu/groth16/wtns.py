"""snarkjs' `.wtns`: the value of every signal. Section 1: n8, r, number of values (u32); section 2: the
values, n8 bytes each.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from gpu.curve.params import Curve, curve_by_order
from gpu.groth16.binfile import BinFile, Kind, container

WTNS = Kind(
    b"wtns",
    2,
    {1: "header", 2: "values"},
    "make the witness again (snarkjs wtns calculate, or provefleet circuit)",
)
N8 = 32  # both scalar fields fit 32 bytes, and snarkjs writes no other width for them


@dataclass(frozen=True)
class WtnsFacts:
    """What the header says, checked against the length of the values."""

    curve: Curve
    n_witness: int


def open_wtns(path: str | os.PathLike[str]) -> tuple[BinFile, WtnsFacts]:
    """The mapped file and its facts. BadFile for a foreign, truncated or forged one; values are not looked at
    yet.
    """
    file = BinFile(path, WTNS)
    n8 = file.u32(1, 0)
    if n8 != N8:
        raise file.bad(1, f"values of {n8} bytes, {N8} expected")
    curve = curve_by_order(file.integer(1, 4, n8))
    if curve is None:
        raise file.bad(1, "the field is neither BN254's nor BLS12-381's")
    file.expect_length(1, 8 + n8, "its fields")
    count = file.u32(1, 4 + n8)
    if count == 0:
        raise file.bad(1, "has no values")
    file.expect_length(2, count * n8, f"{count} values of {n8} bytes")
    return file, WtnsFacts(curve, count)


def inspect_wtns(path: str | os.PathLike[str]) -> WtnsFacts:
    """Curve and number of values of a witness file; BadFile when it is not one."""
    return open_wtns(path)[1]


def read_public(path: str | os.PathLike[str], n_public: int) -> list[int]:
    """The first `n_public` values after the constant one: outputs, then public inputs. BadFile when they are
    not there.
    """
    file, facts = open_wtns(path)
    if n_public >= facts.n_witness:
        raise file.bad(2, f"has {facts.n_witness} values, too few for {n_public} public ones")
    values = [file.integer(2, N8 * i, N8) for i in range(n_public + 1)]
    if values[0] != 1:
        raise file.bad(2, "the first value is not 1")
    for i, value in enumerate(values):
        if value >= facts.curve.r:
            raise file.bad(2, f"value {i} is not below the field's modulus")
    return values[1:]


def wtns_bytes(curve: Curve, values: Sequence[int]) -> bytes:
    """The content of a `.wtns` file with these values (already reduced)."""
    header = struct.pack("<I", N8) + curve.r.to_bytes(N8, "little") + struct.pack("<I", len(values))
    return container(WTNS, [(1, header), (2, b"".join(value.to_bytes(N8, "little") for value in values))])
