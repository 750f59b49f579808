"""The generated PTX blocks against Python ints, by an interpreter of the text: no numba, no GPU."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from functools import cache

import pytest

from gpu.field import ptx
from gpu.field.params import BLS12381_P, BLS12381_R, BN254_P, BN254_R, Field

pytestmark = pytest.mark.prover

FIELDS = [BN254_P, BN254_R, BLS12381_P, BLS12381_R]
MASK = 0xFFFFFFFF


@cache
def parsed(text: str) -> list[tuple[list[str], str, list[str]]]:
    """Name parts, target and sources of each instruction."""
    out = []
    for line in text.strip("{ }").split("; "):
        name, *operands = re.split(r"[ ,]+", line.strip(" ;"))
        if name != ".reg":
            out.append((name.split("."), operands[0], operands[1:]))
    return out


def run(block: ptx.Block, field: Field, *values: int) -> int:
    """Executes a block on field elements: one carry flag, 32-bit registers."""
    n = block.limbs
    limbs = [value >> (32 * i) & MASK for value in values for i in range(n)]
    registers = {f"${n + i}": limb for i, limb in enumerate(limbs)}
    if block.factor:
        registers[f"${n + len(limbs)}"] = ptx.factor_of(field)
    carry = 0
    for parts, target, sources in parsed(block.text):
        x = [registers[s] if s[0] in "$tq" else int(s, 0) for s in sources]
        taken = carry if parts[0] in ("addc", "madc", "subc") else 0
        match parts[0]:
            case "add" | "addc":
                total = x[0] + x[1] + taken
            case "sub" | "subc":
                total = x[0] - x[1] - taken
            case "mad" | "madc":
                product = x[0] * x[1]
                total = (product >> 32 if parts[1] == "hi" else product & MASK) + x[2] + taken
            case "mul":
                assert parts[1] == "lo"
                total = x[0] * x[1] & MASK
            case "shf":
                assert parts[1:3] == ["l", "wrap"]
                total = ((x[1] << 32 | x[0]) << x[2] >> 32) & MASK
            case "shl":
                total = x[0] << x[1] & MASK
            case "mov":
                total = x[0]
            case "setp":
                total = int(x[0] == x[1]) if parts[1] == "eq" else int(x[0] != x[1])
            case "selp":
                total = x[0] if x[2] else x[1]
            case _:
                raise AssertionError(f"unknown instruction {parts}")
        overflow = int(not 0 <= total <= MASK)
        if "cc" in parts:
            carry = overflow
        elif parts[0] in ("mad", "madc") or (parts[0] == "addc" and sources[1] == "0"):
            assert not overflow, f"{parts} {target} loses a carry"
        registers[target] = total & MASK
    return sum(registers[f"${i}"] << (32 * i) for i in range(n))


def cases(field: Field, arity: int, count: int = 30) -> list[tuple[int, ...]]:
    """All tuples of edge values (for four and more operands some of them), and random ones."""
    rng, p = random.Random(arity), field.modulus
    edges = [0, 1, 2, p - 1, p - 2, (p - 1) // 2, field.r, p - (1 << 64), (1 << 224) - 1, MASK << 32]
    found = list(itertools.product(edges, repeat=arity)) if arity < 3 else []
    if arity >= 3:
        found = [(p - 1,) * arity] + [tuple(rng.choices(edges, k=arity)) for _ in range(40)]
    return found + [tuple(rng.randrange(p) for _ in range(arity)) for _ in range(count)]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
@pytest.mark.parametrize(
    ("make", "arity", "expected"),
    [
        (ptx.add, 2, lambda f, a, b: a + b),
        (ptx.sub, 2, lambda f, a, b: a - b),
        (ptx.neg, 1, lambda f, a: -a),
        (ptx.from_montgomery, 1, lambda f, a: a * f.r_inverse),
        (lambda f: ptx.sum_of_products(f, 1), 2, lambda f, a, b: a * b * f.r_inverse),
    ],
    ids=["add", "sub", "neg", "from_montgomery", "mul"],
)
def test_blocks_equal_the_oracle(field: Field, make: Callable, arity: int, expected: Callable) -> None:
    block = make(field)
    assert block.n_operands == arity
    for values in cases(field, arity):
        assert run(block, field, *values) == expected(field, *values) % field.modulus, values


@pytest.mark.parametrize("field", [BN254_P, BN254_R, BLS12381_P], ids=lambda field: field.name)
@pytest.mark.parametrize("terms", [2, 4])
def test_sums_of_products_take_operands_up_to_p(field: Field, terms: int) -> None:
    """The first operand of every other product may be p itself, which is how differences are made."""
    block, p = ptx.sum_of_products(field, terms), field.modulus
    for values in [*cases(field, 2 * terms), (p, p - 1) * terms, (p, 0) * terms]:
        products = sum(a * b for a, b in zip(values[::2], values[1::2], strict=True))
        assert run(block, field, *values) == products * field.r_inverse % p, values


@pytest.mark.parametrize("field", [BN254_P, BN254_R, BLS12381_P], ids=lambda field: field.name)
def test_squares(field: Field) -> None:
    block = ptx.square(field)
    for (a,) in cases(field, 1, 100):
        assert run(block, field, a) == a * a * field.r_inverse % field.modulus, a


def test_a_field_without_room_is_refused() -> None:
    for make in (ptx.square, lambda field: ptx.sum_of_products(field, 2)):
        with pytest.raises(ValueError, match="bls12381_r has no room"):
            make(BLS12381_R)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_neg_lazily_stays_up_to_p(field: Field) -> None:
    for (a,) in cases(field, 1):
        assert run(ptx.neg_lazily(field), field, a) == field.modulus - a
