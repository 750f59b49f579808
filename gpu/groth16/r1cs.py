"""circom's `.r1cs`: the constraints <A,w> * <B,w> = <C,w>
(github.com/iden3/r1csfile/blob/master/doc/r1cs_bin_format.md).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpu.curve.params import Curve, curve_by_order
from gpu.files import staged
from gpu.groth16.binfile import BinFile, BinWriter, Kind

R1CS = Kind(
    b"r1cs",
    1,
    {1: "header", 2: "constraints", 3: "labels"},
    "compile the circuit again (circom --r1cs, or provefleet circuit)",
)
N8 = 32
CUSTOM_GATES = {4: "custom gates", 5: "uses of custom gates"}

Combination = Sequence[tuple[int, int]]
"""A sparse linear combination: (wire, coefficient) pairs."""

Constraint = tuple[Combination, Combination, Combination]


@dataclass(frozen=True)
class R1csFacts:
    """The header. Wires are: one, outputs, public inputs, private inputs, the rest."""

    curve: Curve
    n_wires: int
    n_pub_out: int
    n_pub_in: int
    n_prv_in: int
    n_labels: int
    n_constraints: int

    @property
    def n_public(self) -> int:
        return self.n_pub_out + self.n_pub_in


def open_r1cs(path: str | os.PathLike[str]) -> tuple[BinFile, R1csFacts]:
    """The mapped file and its header. BadFile for a foreign, truncated or forged one."""
    file = BinFile(path, R1CS)
    n8 = file.u32(1, 0)
    if n8 != N8:
        raise file.bad(1, f"coefficients of {n8} bytes, {N8} expected")
    curve = curve_by_order(file.integer(1, 4, n8))
    if curve is None:
        raise file.bad(1, "the field is neither BN254's nor BLS12-381's")
    file.expect_length(1, n8 + 32, "its fields")
    wires, pub_out, pub_in, prv_in, labels, constraints = struct.unpack_from("<IIIIQI", file.section(1), 4 + n8)
    if wires < 1 + pub_out + pub_in:  # private inputs that no constraint uses have no wire
        raise file.bad(1, f"{wires} wires cannot hold {pub_out} outputs and {pub_in} public inputs")
    if file.length(2) < 12 * constraints:
        raise file.bad(2, f"{file.length(2)} bytes cannot hold {constraints} constraints")
    for number, name in CUSTOM_GATES.items():
        if file.has(number) and file.length(number) and file.u32(number, 0):
            raise file.bad(
                f"section {number} ({name})",
                "the circuit uses custom gates, which Groth16 has not",
                "compile it without custom templates (they are for PLONK)",
            )
    file.expect_length(3, 8 * wires, f"{wires} wires")
    return file, R1csFacts(curve, wires, pub_out, pub_in, prv_in, labels, constraints)


def write_r1cs(
    path: str | os.PathLike[str], facts: R1csFacts, constraints: Iterable[Constraint], labels: Iterable[int]
) -> None:
    """Writes an `.r1cs` file as the constraints come, sections in circom's order (constraints, header, labels)."""
    with staged(path) as (file,):
        out = BinWriter(file, R1CS)
        out.section(2)
        for triple in constraints:
            out.write(b"".join(map(_encoded, triple)))
        out.section(1)
        out.write(struct.pack("<I", N8) + facts.curve.r.to_bytes(N8, "little"))
        out.write(
            struct.pack(
                "<IIIIQI",
                facts.n_wires,
                facts.n_pub_out,
                facts.n_pub_in,
                facts.n_prv_in,
                facts.n_labels,
                facts.n_constraints,
            )
        )
        out.section(3)
        for label in labels:
            out.write(struct.pack("<Q", label))
        out.end()


def _encoded(terms: Combination) -> bytes:
    parts = [struct.pack("<I", len(terms))]
    for wire, value in terms:
        parts.append(wire.to_bytes(4, "little"))
        parts.append(value.to_bytes(N8, "little"))
    return b"".join(parts)
