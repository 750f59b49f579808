"""The constraints of an `.r1cs`, read by compiled code: checked, multiplied into the polynomials' values, and
turned into the coefficients of a `.zkey`, a bounded piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpu.field.compiled import kernel
from gpu.field.kinds import kernel_field
from gpu.field.operations import add, mul, reduced
from gpu.groth16.binfile import BinFile
from gpu.groth16.r1cs import N8, R1csFacts
from gpu.groth16.zkey import COEFFICIENT

_PIECE = 1 << 16  # coefficients written at a time: 2.8 MB
_TERM = 4 + N8
_ENTRY = np.dtype(COEFFICIENT)

# What the reading stopped at.
_FULL, _DONE, _CUT, _COUNT, _WIRE, _VALUE = range(6)


class Polynomials:
    """The values at tau of every wire's polynomials, plain: `a`, `b`, `c` are n_wires times four words.

    `lagrange` holds the values at tau of the domain's Lagrange basis, `size` times four words, Montgomery
    form.
    """

    def __init__(self, facts: R1csFacts, lagrange: np.ndarray) -> None:
        self.a, self.b, self.c = (np.zeros(4 * facts.n_wires, np.uint64) for _ in range(3))
        self.n_coefficients = 0
        self._facts = facts
        self._lagrange = lagrange
        fr = facts.curve.fr
        self._marker = kernel_field(fr).marker
        # A plain value times R^3, by Montgomery's multiplication, is the value * R^2 that a `.zkey` holds.
        self._r3 = fr.r2 * fr.r % fr.modulus

    def add_constraints(self, file: BinFile) -> Iterator[bytes]:
        """Takes in every constraint of the file, and yields the bytes of the coefficients of A and B.

        BadFile at the first index or coefficient out of range, or where the section ends too early or too
        late.
        """
        facts = self._facts
        data = np.frombuffer(file.section(2), np.uint8)
        entries = np.empty(_PIECE, _ENTRY)
        place = np.array([0, 0, 0, -1, 0], np.int64)
        scale = _words(self._r3)
        stop = _FULL
        while stop == _FULL:
            place[4] = 0
            stop = _take_in(
                self._marker,
                data,
                place,
                facts.n_constraints,
                facts.n_wires,
                self._lagrange,
                (self.a, self.b, self.c),
                scale,
                (entries["matrix"], entries["row"], entries["column"]),
                entries.view(np.uint8).reshape(_PIECE, _ENTRY.itemsize)[:, _ENTRY.itemsize - N8 :],
                np.zeros(4, np.uint64),
            )
            self.n_coefficients += int(place[4])
            if stop in (_FULL, _DONE):
                yield entries[: place[4]].tobytes()
        self._complain(file, stop, int(place[0]), int(place[1]), int(place[3]))

    def add_public_rows(self) -> bytes:
        """Takes in the row "wire = 0 times anything" of each public wire, and returns its coefficients."""
        facts, fr = self._facts, self._facts.curve.fr
        entries = np.zeros(facts.n_public + 1, _ENTRY)
        one = np.array([1, 0, 0, 0], np.uint64)
        for wire in range(len(entries)):
            row = facts.n_constraints + wire
            entries[wire] = (0, row, wire, _words(fr.r2))
            _add_product(self._marker, self.a, wire, self._lagrange, row, one, np.zeros(4, np.uint64))
        self.n_coefficients += len(entries)
        return entries.tobytes()

    def _complain(self, file: BinFile, stop: int, at: int, row: int, left: int) -> None:
        if stop == _CUT:
            raise file.bad(2, f"ends inside constraint {row}")
        if stop == _COUNT:
            raise file.bad(2, f"ends inside constraint {row}, which claims {left} terms")
        if stop == _WIRE:
            wire = int.from_bytes(file.section(2)[at : at + 4], "little")
            raise file.bad(2, f"constraint {row} names wire {wire} of {self._facts.n_wires}")
        if stop == _VALUE:
            raise file.bad(2, f"constraint {row} has a coefficient not below the field's modulus")
        if at != file.length(2):
            raise file.bad(2, f"{file.length(2) - at} bytes follow the last constraint")


def _words(value: int) -> np.ndarray:
    return np.frombuffer(value.to_bytes(N8, "little"), np.uint64).copy()


@kernel
def _u32(data, at):
    return (
        np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24
    )


@kernel
def _take_in(F, data, place, n_constraints, n_wires, lagrange, values, scale, indexes, scaled, t):
    """Reads constraints from place[0] on until the output is full, and returns why it stopped.

    `place`: byte, constraint, matrix, terms left of this combination (-1: its count comes next), coefficients
    written. `values`: the polynomials' values, to which each term adds coefficient * lagrange[row].
    `indexes`, `scaled`: the fields of the coefficients to write. `t` is scratch.
    """
    at, row, matrix, left, filled = place[0], place[1], place[2], place[3], place[4]
    stop = _DONE
    while row < n_constraints:
        if left < 0:
            if at + 4 > len(data):
                stop = _CUT
                break
            left = _u32(data, at)
            at += 4
            if left * _TERM > len(data) - at:
                stop = _COUNT
                break
        if left == 0:
            left = -1
            matrix += 1
            if matrix == 3:
                matrix = 0
                row += 1
            continue
        if matrix < 2 and filled == len(scaled):
            stop = _FULL
            break
        wire = _u32(data, at)
        if wire >= n_wires:
            stop = _WIRE
            break
        coefficient = data[at + 4 : at + _TERM]
        if not reduced(F, coefficient, 0):
            stop = _VALUE
            break
        mul(F, t, 0, lagrange, row, coefficient, 0)
        add(F, values[matrix], wire, values[matrix], wire, t, 0)
        if matrix < 2:  # a prover gets C's values as products of A's and B's
            indexes[0][filled] = matrix
            indexes[1][filled] = row
            indexes[2][filled] = wire
            mul(F, scaled[filled], 0, scale, 0, coefficient, 0)
            filled += 1
        at += _TERM
        left -= 1
    place[0], place[1], place[2], place[3], place[4] = at, row, matrix, left, filled
    return stop


@kernel
def _add_product(F, out, i, x, j, y, t):
    """out[i] += x[j] * y[0]."""
    mul(F, t, 0, x, j, y, 0)
    add(F, out, i, out, i, t, 0)


@kernel
def combine(F, out, begin, n, a, b, c, beta, alpha, scale, t):
    """out[i] = (beta a[begin + i] + alpha b[begin + i] + c[begin + i]) scale, plain; the factors in Montgomery
    form.
    """
    for i in range(n):
        mul(F, out, i, beta, 0, a, begin + i)
        mul(F, t, 0, alpha, 0, b, begin + i)
        add(F, out, i, out, i, t, 0)
        add(F, out, i, out, i, c, begin + i)
        mul(F, out, i, out, i, scale, 0)
