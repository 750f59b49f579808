"""Development keys: the Groth16 setup done by one machine that knows the secret. For tests and benchmarks
only.

Groth, EUROCRYPT 2016, section 3.2, in the shape that snarkjs gives keys: gamma = 1, one extra row for each
public wire (which makes their polynomials independent), H over the odd coset with the vanishing polynomial
divided out. The file is written as it is computed: memory holds the polynomials' values (96 bytes a wire) and
the Lagrange basis (32 bytes a row), never the key.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from gpu import memory
from gpu.curve.group import kernel_g1, kernel_g2
from gpu.errors import OutOfMemory, Refused
from gpu.field import choice
from gpu.field.kinds import kernel_field
from gpu.files import staged
from gpu.groth16.binfile import BinFile, BinWriter
from gpu.groth16.constraints import Polynomials, combine
from gpu.groth16.lagrange import LagrangeBasis, element
from gpu.groth16.r1cs import R1csFacts, open_r1cs
from gpu.groth16.zkey import GROTH16, ZKEY
from gpu.msm.fixed import FixedBase

_CHUNK = 1 << 14  # Lagrange values that one task makes
_BLOCK = 1 << 16  # points made before they are written
_TABLES = 128 << 20  # bytes that the tables of multiples and the pieces under way take

Scalars = Callable[[int, int], np.ndarray]
"""The scalars [i, j) of a section, plain, four words each."""


@dataclass(frozen=True)
class _Secret:
    """The toxic waste: whoever knows it can forge proofs. Drawn anew for each key, never stored."""

    tau: int
    alpha: int
    beta: int
    delta: int

    @classmethod
    def draw(cls, order: int) -> _Secret:
        return cls(*(1 + secrets.randbelow(order - 1) for _ in range(4)))


def write_development_key(r1cs: str | os.PathLike[str], zkey: str | os.PathLike[str]) -> None:
    """Makes a key for the circuit and writes it. BadFile for a bad circuit, Refused for one too large,
    OutOfMemory before any work for one that this machine can't hold.
    """
    file, facts = open_r1cs(r1cs)
    curve = facts.curve
    log_n = max(1, (facts.n_constraints + facts.n_public).bit_length())
    if log_n >= curve.two_adicity:
        raise Refused(f"{r1cs}: {facts.n_constraints} constraints are more than {curve.name} has roots of unity for")
    needed = 96 * facts.n_wires + (32 << log_n) + _TABLES
    if needed > memory.limit_bytes():
        raise OutOfMemory(
            f"{r1cs}: a key for {facts.n_wires} wires and {facts.n_constraints} constraints takes {needed >> 20} MiB "
            f"to make, this machine has {memory.limit_bytes() >> 20}; take one with more memory"
        )
    with staged(zkey) as (out,), ThreadPoolExecutor(memory.usable_cpus()) as pool:
        _Assembly(file, facts, 1 << log_n, _Secret.draw(curve.r), pool).write(BinWriter(out, ZKEY))


class _Assembly:
    """One key in the making."""

    def __init__(self, file: BinFile, facts: R1csFacts, size: int, secret: _Secret, pool: Executor) -> None:
        self._file = file
        self._facts = facts
        self._size = size
        self._secret = secret
        self._pool = pool
        curve, wanted = facts.curve, os.environ.get("PROVEFLEET_PROVER_BACKEND", "")
        lanes = choice.lanes(wanted if wanted in ("scalar", "ifma") else "auto", ((curve.fp, 1), (curve.fp, 2)))
        self._one = FixedBase(kernel_g1(curve), curve.g1, 3 * facts.n_wires + size, lanes)
        self._two = FixedBase(kernel_g2(curve), curve.g2, facts.n_wires, lanes)

    def write(self, out: BinWriter) -> None:
        """Writes every section, in the order in which it can be made."""
        facts = self._facts
        private, inverse = facts.n_public + 1, pow(self._secret.delta, -1, facts.curve.r)
        out.section(1)
        out.write(struct.pack("<I", GROTH16))
        out.section(2)
        out.write(self._header())
        out.section(4)
        rows = self._coefficients(out)
        mixed = self._mixed(rows, 1)
        self._points(out, 3, self._one, private, mixed)
        self._points(out, 5, self._one, facts.n_wires, lambda i, j: rows.a[4 * i : 4 * j])
        self._points(out, 6, self._one, facts.n_wires, lambda i, j: rows.b[4 * i : 4 * j])
        self._points(out, 7, self._two, facts.n_wires, lambda i, j: rows.b[4 * i : 4 * j])
        mixed = self._mixed(rows, inverse)
        self._points(out, 8, self._one, facts.n_wires - private, lambda i, j: mixed(private + i, private + j))
        self._points(out, 9, self._one, self._size, self._quotient_basis(inverse))
        out.section(10)
        # No circuit hash, no contributions: nobody may take it for a ceremony's.
        out.write(bytes(64) + struct.pack("<I", 0))
        out.end()

    def _header(self) -> bytes:
        facts, secret = self._facts, self._secret
        fp, fr = facts.curve.fp, facts.curve.fr
        first = self._one.multiples(_scalars(secret.alpha, secret.beta, secret.delta), self._pool)
        second = self._two.multiples(_scalars(secret.beta, 1, secret.delta), self._pool)
        one, two = len(first) // 3, len(second) // 3
        return b"".join(
            (
                struct.pack("<I", fp.n_bytes) + fp.modulus.to_bytes(fp.n_bytes, "little"),
                struct.pack("<I", fr.n_bytes) + fr.modulus.to_bytes(fr.n_bytes, "little"),
                struct.pack("<III", facts.n_wires, facts.n_public, self._size),
                *(
                    part.tobytes()
                    for part in (first[: 2 * one], second[: 2 * two], first[2 * one :], second[2 * two :])
                ),
            )
        )

    def _coefficients(self, out: BinWriter) -> Polynomials:
        """Writes section 4, and returns the polynomials' values at tau that came of it."""
        basis = LagrangeBasis(self._facts.curve, self._size, self._secret.tau)
        rows = Polynomials(self._facts, self._lagrange(basis, 0, self._size, montgomery=True))
        out.write(struct.pack("<I", 0))
        for piece in rows.add_constraints(self._file):
            out.write(piece)
        out.write(rows.add_public_rows())
        if rows.n_coefficients >> 32:
            raise self._file.bad(2, f"{rows.n_coefficients} terms are more than a .zkey can count")
        out.patch(0, struct.pack("<I", rows.n_coefficients))
        return rows

    def _lagrange(self, basis: LagrangeBasis, begin: int, end: int, montgomery: bool) -> np.ndarray:
        starts = range(begin, end, _CHUNK)
        return np.concatenate(list(self._pool.map(lambda i: basis.values(i, min(i + _CHUNK, end), montgomery), starts)))

    def _points(self, out: BinWriter, number: int, base: FixedBase, n: int, scalars: Scalars) -> None:
        """Section `number`: n multiples of a generator."""
        out.section(number)
        for i in range(0, n, _BLOCK):
            out.write(base.multiples(scalars(i, min(i + _BLOCK, n)).reshape(-1, 4), self._pool).tobytes())

    def _mixed(self, rows: Polynomials, factor: int) -> Scalars:
        """(beta a + alpha b + c) * factor for wires [i, j)."""
        fr = self._facts.curve.fr
        marker = kernel_field(fr).marker
        beta, alpha, scale = (element(fr, value) for value in (self._secret.beta, self._secret.alpha, factor))

        def scalars(i: int, j: int) -> np.ndarray:
            out = np.empty(4 * (j - i), np.uint64)
            combine(marker, out, i, j - i, rows.a, rows.b, rows.c, beta, alpha, scale, np.empty(4, np.uint64))
            return out

        return scalars

    def _quotient_basis(self, inverse: int) -> Scalars:
        """For values p_j of a b - c on the odd coset, h(tau) Z(tau) / delta = sum p_j * out[j]: Z is -2 on
        all of that coset.
        """
        curve, tau = self._facts.curve, self._secret.tau
        factor = (pow(tau, self._size, curve.r) - 1) * pow(-2, -1, curve.r) * inverse
        basis = LagrangeBasis(curve, self._size, tau, first=curve.roots[self._size.bit_length()], factor=factor)
        return lambda i, j: self._lagrange(basis, i, j, montgomery=False)


def _scalars(*values: int) -> np.ndarray:
    """Plain scalars in rows of four words."""
    return np.frombuffer(b"".join(value.to_bytes(32, "little") for value in values), np.uint64).reshape(-1, 4)
