"""Development keys: the Groth16 setup done by one machine that knows the secret. For tests and benchmarks
only.

Groth, EUROCRYPT 2016, section 3.2, in the shape that snarkjs gives keys: gamma = 1, one extra row for each
public wire (which makes their polynomials independent), H over the odd coset with the vanishing polynomial
divided out.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.errors import Refused
from gpu.files import write_atomically
from gpu.groth16.binfile import container
from gpu.groth16.r1cs import R1csFacts, constraints_of, open_r1cs
from gpu.groth16.zkey import GROTH16, ZKEY
from gpu.memory import usable_cpus
from gpu.msm.fixed import FixedBase


class Polynomials:
    """The values at tau of every wire's polynomials, and the coefficients section, from one pass over the
    constraints.
    """

    def __init__(self, facts: R1csFacts, size: int, lagrange: Sequence[int]) -> None:
        self.a = [0] * facts.n_wires
        self.b = [0] * facts.n_wires
        self.c = [0] * facts.n_wires
        self.entries = bytearray()
        self.n_entries = 0
        self._lagrange = lagrange
        self._r = facts.curve.r
        self._r2 = facts.curve.fr.r2

    def add_row(
        self, row: int, a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]], c: Sequence[tuple[int, int]]
    ) -> None:
        at_tau = self._lagrange[row]
        for matrix, values, terms in ((0, self.a, a), (1, self.b, b), (2, self.c, c)):
            for wire, coefficient in terms:
                values[wire] = (values[wire] + coefficient * at_tau) % self._r
                if matrix < 2:  # a prover gets C's values as products of A's and B's
                    doubled = coefficient * self._r2 % self._r
                    self.entries += struct.pack("<III", matrix, row, wire) + doubled.to_bytes(32, "little")
                    self.n_entries += 1


def write_development_key(r1cs: str | os.PathLike[str], zkey: str | os.PathLike[str]) -> None:
    """Makes a key for the circuit and writes it. BadFile for a bad circuit, Refused for one too large."""
    file, facts = open_r1cs(r1cs)
    curve = facts.curve
    log_n = (facts.n_constraints + facts.n_public).bit_length()
    if log_n >= curve.two_adicity:
        raise Refused(f"{r1cs}: {facts.n_constraints} constraints are more than {curve.name} has roots of unity for")
    size = 1 << log_n
    tau, alpha, beta, delta = (1 + secrets.randbelow(curve.r - 1) for _ in range(4))
    rows = Polynomials(facts, size, lagrange_at(curve, size, tau))
    for row, (a, b, c) in enumerate(constraints_of(file, facts)):
        rows.add_row(row, a, b, c)
    for wire in range(facts.n_public + 1):
        rows.add_row(facts.n_constraints + wire, [(wire, 1)], [], [])
    write_atomically(zkey, _assemble(facts, size, rows, tau, alpha, beta, delta))


def _assemble(facts: R1csFacts, size: int, rows: Polynomials, tau: int, alpha: int, beta: int, delta: int) -> bytes:
    curve, r = facts.curve, facts.curve.r
    n_public = facts.n_public
    mixed = [(beta * a + alpha * b + c) % r for a, b, c in zip(rows.a, rows.b, rows.c, strict=True)]
    inverse = pow(delta, -1, r)
    private = [value * inverse % r for value in mixed[n_public + 1 :]]
    with ThreadPoolExecutor(usable_cpus()) as pool:
        one = FixedBase(kernel_g1(curve), curve.g1)
        two = FixedBase(kernel_g2(curve), curve.g2)
        fixed1 = one.multiples([alpha, beta, delta], pool)
        width = len(fixed1) // 3
        fixed2 = two.multiples([beta, 1, delta], pool)
        header = _header(facts, size) + fixed1[: 2 * width] + fixed2[: 4 * width]
        header += fixed1[2 * width :] + fixed2[4 * width :]
        sections = [
            (1, struct.pack("<I", GROTH16)),
            (2, header),
            (3, one.multiples(mixed[: n_public + 1], pool)),
            (4, struct.pack("<I", rows.n_entries) + bytes(rows.entries)),
            (5, one.multiples(rows.a, pool)),
            (6, one.multiples(rows.b, pool)),
            (7, two.multiples(rows.b, pool)),
            (8, one.multiples(private, pool)),
            (9, one.multiples(_quotient_basis(curve, size, tau, inverse), pool)),
            (
                10,
                bytes(64) + struct.pack("<I", 0),
            ),  # no circuit hash, no contributions: nobody may take it for a ceremony
        ]
    return container(ZKEY, sections)


def _header(facts: R1csFacts, size: int) -> bytes:
    fp, fr = facts.curve.fp, facts.curve.fr
    out = struct.pack("<I", fp.n_bytes) + fp.modulus.to_bytes(fp.n_bytes, "little")
    out += struct.pack("<I", fr.n_bytes) + fr.modulus.to_bytes(fr.n_bytes, "little")
    return out + struct.pack("<III", facts.n_wires, facts.n_public, size)


def lagrange_at(curve: Curve, size: int, tau: int, first: int = 1) -> list[int]:
    """L_j(tau) for the coset first * <root>: x_j (tau^n - first^n) / (n first^n (tau - x_j)), x_j = first
    * root^j.
    """
    r, root = curve.r, curve.roots[size.bit_length() - 1]
    points = [first]
    for _ in range(size - 1):
        points.append(points[-1] * root % r)
    power = pow(first, size, r)
    factor = (pow(tau, size, r) - power) * pow(size * power, -1, r) % r
    inverses = _invert_all([(tau - x) % r for x in points], r)
    return [x * factor % r * inverse % r for x, inverse in zip(points, inverses, strict=True)]


def _quotient_basis(curve: Curve, size: int, tau: int, inverse_delta: int) -> list[int]:
    """For values p_j of a b - c on the odd coset, h(tau) Z(tau) / delta = sum p_j * out[j]: Z is -2 on
    all of that coset.
    """
    r = curve.r
    factor = (pow(tau, size, r) - 1) * pow(-2, -1, r) * inverse_delta % r
    coset = curve.roots[size.bit_length()]
    return [value * factor % r for value in lagrange_at(curve, size, tau, coset)]


def _invert_all(values: Sequence[int], r: int) -> list[int]:
    """Montgomery's trick; no value may be zero (tau would have to be a root of unity: probability 2^-200)."""
    prefix = [1]
    for value in values:
        prefix.append(prefix[-1] * value % r)
    inverse = pow(prefix[-1], -1, r)
    out = [0] * len(values)
    for i in range(len(values) - 1, -1, -1):
        out[i] = prefix[i] * inverse % r
        inverse = inverse * values[i] % r
    return out
