"""The final exponentiation as LLVM functions, each a straight line of calls: the exponents are in the code.

The chains by the curve parameter x: Fuentes-Castaneda, Knapp, Rodriguez-Henriquez, "Faster hashing to G2"
(SAC 2011) for BN254, which gives the power 2x(6x^2 + 3x + 1) of the pairing; Hayashida, Hayasaka, Teruya,
"Efficient final exponentiation via cyclotomic structure for pairings over families of elliptic curves"
(ePrint 2020/875) for BLS12-381, which gives its cube. Neither factor is divisible by r, so a product of
pairings is one exactly when this value is.
"""

from __future__ import annotations

from typing import Any

from gpu.curve.twist import curve_of
from gpu.field.bodies import OPERATIONS
from gpu.field.kinds import kernel_field
from gpu.field.lowering import Machine, Operation
from gpu.pairing.tower import Steps, block


def non_adjacent(value: int) -> list[int]:
    """The non-adjacent form of a positive integer: digits -1, 0, 1, highest first (Reitwiesner 1960)."""
    out = []
    while value:
        digit = 2 - value % 4 if value & 1 else 0
        out.append(digit)
        value = (value - digit) >> 1
    return out[::-1]


def _fp_inv(m: Machine, d: Any, a: Any) -> None:
    """d = a^(p - 2) = 1/a in the prime field, by windows of four bits (Fermat); d is not a."""
    table = [a, *m.temporaries(14)]
    for k in range(1, 15):
        m.call(OPERATIONS["mul"], table[k], table[k - 1], a)
    first, *digits = (int(digit, 16) for digit in f"{m.kind.field.modulus - 2:x}")
    m.call(OPERATIONS["copy"], d, table[first - 1])
    for digit in digits:
        for _ in range(4):
            m.call(OPERATIONS["sqr"], d, d)
        if digit:
            m.call(OPERATIONS["mul"], d, d, table[digit - 1])


FP_INV = Operation("fp_inv", _fp_inv, (1, 1))


def _fp2_inv(m: Machine, d: Any, a: Any) -> None:
    """d = conj(a) / (a conj(a)), the norm inverted in Fp."""
    f, (s, t) = Steps(m), m.temporaries(2)
    f.conj(s, a)
    f.mul(t, a, s)
    prime = Machine(m.builder, kernel_field(m.kind.field))
    (inverse,) = prime.temporaries(1)
    prime.call(FP_INV, inverse, t)
    f.scale(d, s, inverse)


FP2_INV = Operation("fp2_inv", _fp2_inv, (1, 1))


def _twelve_inv(m: Machine, d: Any, a: Any) -> None:
    """d = conj(a) / (a conj(a)); the norm lies in Fp6, and its norm in Fp2."""
    f, conj, norm, (s,) = Steps(m), block(m, 6), block(m, 6), m.temporaries(1)
    f.twelve_conj(conj, a)
    f.twelve_mul(norm, a, conj)
    f.six_norm(s, norm)
    m.call(FP2_INV, s, s)
    f.six_inv(norm, norm, s)
    f.six_mul(d, conj, norm)
    f.six_mul(m.element(d, 3), m.element(conj, 3), norm)


TWELVE_INV = Operation("twelve_inv", _twelve_inv, (6, 6))


def _easy(m: Machine, f: Any) -> None:
    """f = f^((p^6 - 1)(p^2 + 1)), which lies in the cyclotomic subgroup."""
    s, t = Steps(m), block(m, 6)
    m.call(TWELVE_INV, t, f)
    s.twelve_conj(f, f)
    s.twelve_mul(f, f, t)
    s.frobenius(t, f)
    s.frobenius(t, t)
    s.twelve_mul(f, f, t)


EASY = Operation("easy_part", _easy, (6,))


def _power_x(m: Machine, d: Any, a: Any) -> None:
    """d = a^x in the cyclotomic subgroup, where an inverse is a conjugate; d is not a."""
    s, inverse, x = Steps(m), block(m, 6), curve_of(m).x
    s.twelve_conj(inverse, a)
    positive, negative = (a, inverse) if x > 0 else (inverse, a)
    for i in range(6):
        m.call(OPERATIONS["copy"], m.element(d, i), m.element(positive, i))
    for digit in non_adjacent(abs(x))[1:]:
        s.cyclotomic_sqr(d, d)
        if digit:
            s.twelve_mul(d, d, positive if digit > 0 else negative)


POWER_X = Operation("power_x", _power_x, (6, 6))


def _final(m: Machine, f: Any) -> None:
    """f = the final exponentiation of f."""
    m.call(EASY, f)
    (_hard_bn if curve_of(m).d_twist else _hard_bls)(m, f)


def _hard_bn(m: Machine, f: Any) -> None:
    s = Steps(m)
    x2, x6, x6x2, a, b, t = (block(m, 6) for _ in range(6))
    m.call(POWER_X, x2, f)
    s.cyclotomic_sqr(x2, x2)  # f^2x
    s.cyclotomic_sqr(x6, x2)
    s.twelve_mul(x6, x6, x2)  # f^6x
    m.call(POWER_X, x6x2, x6)  # f^6x^2
    s.cyclotomic_sqr(t, x6x2)
    m.call(POWER_X, a, t)  # f^12x^3
    s.twelve_mul(a, a, x6x2)
    s.twelve_mul(a, a, x6)  # a = 12x^3 + 6x^2 + 6x
    s.twelve_conj(t, x2)
    s.twelve_mul(b, a, t)  # b = a - 2x
    s.twelve_conj(t, f)
    s.twelve_mul(f, f, a)
    s.twelve_mul(f, f, x6x2)  # a + 6x^2 + 1
    s.twelve_mul(t, t, b)  # b - 1, by p^3 = p p p, and b by p, and a by p^2
    s.frobenius(t, t)
    s.twelve_mul(t, t, a)
    s.frobenius(t, t)
    s.twelve_mul(t, t, b)
    s.frobenius(t, t)
    s.twelve_mul(f, f, t)


def _hard_bls(m: Machine, f: Any) -> None:
    """f^((x - 1)^2 (x + p)(x^2 + p^2 - 1) + 3)."""
    s = Steps(m)
    a, b, t = (block(m, 6) for _ in range(3))
    s.twelve_conj(t, f)
    m.call(POWER_X, a, f)
    s.twelve_mul(a, a, t)  # x - 1
    s.twelve_conj(t, a)
    m.call(POWER_X, b, a)
    s.twelve_mul(b, b, t)  # (x - 1)^2
    m.call(POWER_X, a, b)
    s.frobenius(t, b)
    s.twelve_mul(a, a, t)  # times x + p
    m.call(POWER_X, t, a)
    m.call(POWER_X, b, t)  # x^2
    s.twelve_conj(t, a)
    s.twelve_mul(b, b, t)
    s.frobenius(a, a)
    s.frobenius(a, a)
    s.twelve_mul(b, b, a)  # times x^2 + p^2 - 1
    s.cyclotomic_sqr(a, f)
    s.twelve_mul(f, f, a)
    s.twelve_mul(f, f, b)


FINAL = Operation("final_exponentiation", _final, (6,))
