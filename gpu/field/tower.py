"""Fp, Fp2 and Fp12 on Python ints: the oracle of the tests, and the arithmetic of our own pairing.

An Fp element is an int, an Fp2 element (c0, c1) stands for c0 + c1*u with u^2 = -1, an Fp12 element is a
tuple of six Fp2 elements over the basis w^0..w^5 with w^6 = xi. Values are reduced.
"""

from __future__ import annotations

from typing import Any

Pair = tuple[int, int]
Dozen = tuple[Pair, ...]


class Fp:
    """Operations of the prime field, in the shape that `Fp2` shares, so that curve formulas are written
    once.
    """

    zero: Any = 0
    one: Any = 1

    def __init__(self, p: int) -> None:
        self.p = p

    def add(self, a: Any, b: Any) -> Any:
        return (a + b) % self.p

    def sub(self, a: Any, b: Any) -> Any:
        return (a - b) % self.p

    def neg(self, a: Any) -> Any:
        return -a % self.p

    def mul(self, a: Any, b: Any) -> Any:
        return a * b % self.p

    def scale(self, a: Any, k: int) -> Any:
        return a * k % self.p

    def inv(self, a: Any) -> Any:
        return pow(a, -1, self.p)

    def conj(self, a: Any) -> Any:
        """The p-power Frobenius: the identity here."""
        return a


class Fp2(Fp):
    """Operations of Fp[u]/(u^2 + 1)."""

    zero: Any = (0, 0)
    one: Any = (1, 0)

    def add(self, a: Pair, b: Pair) -> Pair:
        return (a[0] + b[0]) % self.p, (a[1] + b[1]) % self.p

    def sub(self, a: Pair, b: Pair) -> Pair:
        return (a[0] - b[0]) % self.p, (a[1] - b[1]) % self.p

    def neg(self, a: Pair) -> Pair:
        return -a[0] % self.p, -a[1] % self.p

    def mul(self, a: Pair, b: Pair) -> Pair:
        return (a[0] * b[0] - a[1] * b[1]) % self.p, (a[0] * b[1] + a[1] * b[0]) % self.p

    def scale(self, a: Pair, k: int) -> Pair:
        return a[0] * k % self.p, a[1] * k % self.p

    def inv(self, a: Pair) -> Pair:
        norm = pow(a[0] * a[0] + a[1] * a[1], -1, self.p)
        return a[0] * norm % self.p, -a[1] * norm % self.p

    def conj(self, a: Pair) -> Pair:
        return a[0], -a[1] % self.p

    def power(self, a: Pair, exponent: int) -> Pair:
        out: Pair = self.one
        for bit in bin(exponent)[2:]:
            out = self.mul(out, out)
            if bit == "1":
                out = self.mul(out, a)
        return out


class Fp12:
    """Operations of Fp2[w]/(w^6 - xi), by schoolbook products with one reduction a coefficient."""

    def __init__(self, p: int, xi: Pair) -> None:
        self.p = p
        self.xi = xi
        self.fp2 = Fp2(p)
        self.one: Dozen = ((1, 0),) + ((0, 0),) * 5
        # The p^2 Frobenius fixes Fp2 and sends w to w * xi^((p^2-1)/6), which lies in Fp.
        self._gamma = [self.fp2.power(xi, i * (p * p - 1) // 6) for i in range(6)]

    def mul(self, a: Dozen, b: Dozen) -> Dozen:
        """The product; `b` may be sparse, zero coefficients cost nothing."""
        real, imag = [0] * 11, [0] * 11
        for j, (c, d) in enumerate(b):
            if c == 0 and d == 0:
                continue
            for i, (e, f) in enumerate(a, j):
                real[i] += e * c - f * d
                imag[i] += e * d + f * c
        return self._reduce(real, imag)

    def square(self, a: Dozen) -> Dozen:
        real, imag = [0] * 11, [0] * 11
        for i, (c, d) in enumerate(a):
            real[2 * i] += (c + d) * (c - d)
            imag[2 * i] += 2 * c * d
            c, d = 2 * c, 2 * d
            for j in range(i + 1, 6):
                e, f = a[j]
                real[i + j] += e * c - f * d
                imag[i + j] += e * d + f * c
        return self._reduce(real, imag)

    def _reduce(self, real: list[int], imag: list[int]) -> Dozen:
        p, (x, y) = self.p, self.xi
        for i in range(5):
            high_r, high_i = real[6 + i], imag[6 + i]
            real[i] += high_r * x - high_i * y
            imag[i] += high_r * y + high_i * x
        return tuple((real[i] % p, imag[i] % p) for i in range(6))

    def conj(self, a: Dozen) -> Dozen:
        """a^(p^6): w goes to -w. The inverse, for elements of the cyclotomic subgroup."""
        return tuple(c if i % 2 == 0 else self.fp2.neg(c) for i, c in enumerate(a))

    def frobenius2(self, a: Dozen) -> Dozen:
        return tuple(self.fp2.mul(c, g) for c, g in zip(a, self._gamma, strict=True))

    def inv(self, a: Dozen) -> Dozen:
        """a^-1 = conj(a) / (a * conj(a)), where the norm lies in Fp6 and is inverted by its adjugate."""
        f, conj = self.fp2, self.conj(a)
        c0, _, c1, _, c2, _ = self.mul(a, conj)
        t0 = f.sub(f.mul(c0, c0), f.mul(self.xi, f.mul(c1, c2)))
        t1 = f.sub(f.mul(self.xi, f.mul(c2, c2)), f.mul(c0, c1))
        t2 = f.sub(f.mul(c1, c1), f.mul(c0, c2))
        det = f.add(f.mul(c0, t0), f.mul(self.xi, f.add(f.mul(c2, t1), f.mul(c1, t2))))
        det = f.inv(det)
        zero = f.zero
        return self.mul(conj, (f.mul(t0, det), zero, f.mul(t1, det), zero, f.mul(t2, det), zero))

    def power(self, a: Dozen, exponent: int) -> Dozen:
        """a^exponent by a window of four bits."""
        table = [self.one, a]
        for _ in range(14):
            table.append(self.mul(table[-1], a))
        out = self.one
        for digit in f"{exponent:x}":
            for _ in range(4):
                out = self.square(out)
            if digit != "0":
                out = self.mul(out, table[int(digit, 16)])
        return out
