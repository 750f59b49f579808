"""snarkjs' Groth16 `.zkey`: structure and header, without numpy. `groth16.key` loads the rest for proving.

Sections: 1 protocol; 2 header (q, r, sizes, alpha1 beta1 beta2 gamma2 delta1 delta2); 3 IC; 4 coefficients
(value * R^2); 5 A; 6 B1; 7 B2; 8 C (snarkjs' L); 9 H (Lagrange over the odd coset); 10 contributions. Points
are affine, Montgomery form, little-endian, infinity all zero. Source: snarkjs' src/zkey_utils.js (format, not
code).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpu.curve.params import Curve, curve_by_moduli
from gpu.curve.reference import Group, Point, g1, g2
from gpu.errors import BadFile
from gpu.groth16.binfile import BinFile, Kind

ZKEY = Kind(
    b"zkey",
    1,
    {
        1: "protocol",
        2: "header",
        3: "IC",
        4: "coefficients",
        5: "A points",
        6: "B1 points",
        7: "B2 points",
        8: "C points",
        9: "H points",
        10: "contributions",
    },
    "export the key again (snarkjs groth16 setup, or provefleet setup)",
)
GROTH16 = 1

COEFFICIENT = [("matrix", "<u4"), ("row", "<u4"), ("column", "<u4"), ("value", "<u8", 4)]
"""An entry of section 4, as numpy names it: matrix 0 is A, 1 is B; the value times R^2."""


@dataclass(frozen=True)
class ZkeyFacts:
    """Sizes that the header states and that every section's length confirms, and the points of the header."""

    curve: Curve
    n_vars: int
    n_public: int
    domain_size: int
    n_coefficients: int
    alpha1: Point
    beta1: Point
    beta2: Point
    gamma2: Point
    delta1: Point
    delta2: Point


def open_zkey(path: str | os.PathLike[str]) -> tuple[BinFile, ZkeyFacts]:
    """The mapped key and its facts. BadFile for a foreign, truncated or forged one, or a bad point in its
    header.
    """
    file = BinFile(path, ZKEY)
    if file.u32(1, 0) != GROTH16 or file.length(1) != 4:
        raise file.bad(1, "the protocol is not Groth16", "only Groth16 keys can be used")
    curve = _curve(file)
    n8q, n8r = curve.fp.n_bytes, curve.fr.n_bytes
    at = 8 + n8q + n8r
    n_vars, n_public, domain = file.u32(2, at), file.u32(2, at + 4), file.u32(2, at + 8)
    file.expect_length(2, at + 12 + 3 * 2 * n8q + 3 * 4 * n8q, "its fields")
    if n_vars == 0 or n_public >= n_vars:
        raise file.bad(2, f"{n_public} public values among {n_vars} variables cannot be")
    if domain < 2 or domain & (domain - 1) or domain >= 1 << curve.two_adicity:
        raise file.bad(2, f"domain size {domain} is not a power of two that {curve.name} has")
    points = _header_points(file, curve, at + 12)
    facts = ZkeyFacts(curve, n_vars, n_public, domain, file.u32(4, 0), *points)
    _check_lengths(file, facts)
    return file, facts


def inspect_zkey(path: str | os.PathLike[str]) -> ZkeyFacts:
    """Curve and sizes of a proving key; BadFile when it is not one. Cheap: only the header is read."""
    return open_zkey(path)[1]


def ic_points(file: BinFile, facts: ZkeyFacts) -> list[Point]:
    """The n_public + 1 points of section 3, checked on curve."""
    width = 2 * facts.curve.fp.n_bytes
    return [_point(file, facts.curve, g1(facts.curve), 3, i * width) for i in range(facts.n_public + 1)]


def _curve(file: BinFile) -> Curve:
    n8q = file.u32(2, 0)
    if n8q not in (32, 48):
        raise file.bad(2, f"base field of {n8q} bytes; BN254 has 32, BLS12-381 has 48")
    q = file.integer(2, 4, n8q)
    if file.u32(2, 4 + n8q) != 32:
        raise file.bad(2, "scalar field is not 32 bytes wide")
    curve = curve_by_moduli(q, file.integer(2, 8 + n8q, 32))
    if curve is None:
        raise file.bad(2, "the fields are neither BN254's nor BLS12-381's")
    return curve


def _check_lengths(file: BinFile, facts: ZkeyFacts) -> None:
    point = 2 * facts.curve.fp.n_bytes
    entry = 12 + facts.curve.fr.n_bytes
    n_vars, n_public = facts.n_vars, facts.n_public
    file.expect_length(3, (n_public + 1) * point, f"{n_public} public values")
    file.expect_length(4, 4 + facts.n_coefficients * entry, f"{facts.n_coefficients} coefficients")
    file.expect_length(5, n_vars * point, f"{n_vars} variables")
    file.expect_length(6, n_vars * point, f"{n_vars} variables")
    file.expect_length(7, n_vars * 2 * point, f"{n_vars} variables")
    file.expect_length(8, (n_vars - n_public - 1) * point, f"{n_vars} variables, {n_public} of them public,")
    file.expect_length(9, facts.domain_size * point, f"domain size {facts.domain_size}")


def _header_points(file: BinFile, curve: Curve, at: int) -> list[Point]:
    """alpha1, beta1, beta2, gamma2, delta1, delta2: in their subgroups, and none of them infinity."""
    out: list[Point] = []
    for name, group in (
        ("alpha1", g1(curve)),
        ("beta1", g1(curve)),
        ("beta2", g2(curve)),
        ("gamma2", g2(curve)),
        ("delta1", g1(curve)),
        ("delta2", g2(curve)),
    ):
        point = _point(file, curve, group, 2, at)
        if point is None:
            raise file.bad(2, f"{name} is the point at infinity")
        if not group.in_subgroup(point):
            raise file.bad(2, f"{name} is outside the subgroup of order r")
        out.append(point)
        at += (2 if group is g1(curve) else 4) * curve.fp.n_bytes
    return out


def _point(file: BinFile, curve: Curve, group: Group, section: int, at: int) -> Point:
    """The affine point at byte `at` of a section; zeros are infinity. BadFile when it is off the curve."""
    n8 = curve.fp.n_bytes
    words = [file.integer(section, at + i * n8, n8) for i in range(2 if group is g1(curve) else 4)]
    if max(words) >= curve.p:
        raise _bad_point(file, section, at, "has a coordinate not below the field's modulus")
    if not any(words):
        return None
    plain = [curve.fp.from_montgomery(word) for word in words]
    point = (plain[0], plain[1]) if len(plain) == 2 else ((plain[0], plain[1]), (plain[2], plain[3]))
    if not group.on_curve(point):
        raise _bad_point(file, section, at, "is not on the curve")
    return point


def _bad_point(file: BinFile, section: int, at: int, why: str) -> BadFile:
    return file.bad(section, f"the point at byte {at} {why}")
