"""The bounds that the vector back end's emitters carry: formulas that could overflow are refused when they are emitted,
and of all others the values keep to what was claimed of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from gpu.field import arrays, ifma, isa
from gpu.field.ifma import BoundError, Value
from gpu.field.kinds import FIELDS, LANES, KernelField
from gpu.field.limbs import I64
from gpu.field.lowering import Machine
from tests.gpu.field.values import edges, name

PRIME = [kind for kind in FIELDS.values() if kind.lanes == LANES and kind.degree == 1]
Formula = Callable[[Any, Value, Value], Value]


def emit(kind: KernelField, formula: Formula) -> tuple[ir.Module, Value]:
    """A module with the formula as the function f(out, x, y) on blocks; and what is claimed of its value."""
    module = ir.Module()
    module.triple = llvm.get_process_triple()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()] * 3), "f")
    m = Machine(ir.IRBuilder(function.append_basic_block()), kind)
    out, x, y = function.args
    value = m.arith.normal(formula(m.arith, m.arith.load(x)[0], m.arith.load(y)[0]))
    for i, limb in enumerate(value.limbs):
        ifma.v.store(m.builder, limb, out, i)
    m.builder.ret_void()
    return module, value


def run(module: ir.Module, kind: KernelField, x: list[int], y: list[int]) -> list[int]:
    """The values, as they stand, for eight x and eight y."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = llvm.Target.from_default_triple()
    machine = host.create_target_machine(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), opt=1)
    with llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine) as engine:
        engine.finalize_object()
        address = engine.get_function_address("f")
        blocks = [arrays.elements(kind, LANES), arrays.encode(kind, x), arrays.encode(kind, y)]
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(address)(*(block.ctypes.data for block in blocks))
    return arrays.decode(kind, blocks[0])


STEPS = ("add", "sub", "neg", "mul", "sqr", "reduce", "canonical")


def program(steps: list[tuple[str, int, int]]) -> tuple[Formula, Callable[[KernelField, int, int], int]]:
    """A formula whose step takes two of the values so far, and the same on Python ints mod p."""

    def emitted(a: Any, x: Value, y: Value) -> Value:
        values = [x, y]
        for step, i, j in steps:
            left, right = values[i % len(values)], values[j % len(values)]
            binary = step in ("add", "sub", "mul")
            values.append(getattr(a, step)(left, right) if binary else getattr(a, step)(left))
        return values[-1]

    def expected(kind: KernelField, x: int, y: int) -> int:
        p, inverse, values = kind.field.modulus, pow(kind.r, -1, kind.field.modulus), [x, y]
        for step, i, j in steps:
            left, right = values[i % len(values)], values[j % len(values)]
            results = {
                "add": left + right, "sub": left - right, "neg": -left, "mul": left * right * inverse,
                "sqr": left * left * inverse, "reduce": left, "canonical": left,
            }  # fmt: skip
            values.append(results[step] % p)
        return values[-1]

    return emitted, expected


@pytest.mark.prover
@pytest.mark.parametrize("kind", PRIME, ids=name)
def test_values_keep_to_their_bounds(kind: KernelField) -> None:
    p, corners = kind.field.modulus, edges(kind)
    refused = 0

    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9),
        st.lists(st.sampled_from(corners), min_size=2 * LANES, max_size=2 * LANES),
    )
    def check(steps: list[tuple[str, int, int]], values: list[int]) -> None:
        nonlocal refused
        emitted, expected = program(steps)
        try:
            module, claimed = emit(kind, emitted)
        except BoundError:
            refused += 1
            return
        x, y = values[:LANES], values[LANES:]
        for got, left, right in zip(run(module, kind, x, y), x, y, strict=True):
            assert claimed.low * p <= got < claimed.high * p
            assert got % p == expected(kind, left, right)

    check()
    assert refused < 20, "hardly any formula was tried"


@pytest.mark.parametrize("kind", PRIME, ids=name)
def test_what_could_overflow_is_refused(kind: KernelField) -> None:
    def doubled(times: int) -> Formula:
        def formula(a: Any, x: Value, y: Value) -> Value:
            for _ in range(times):
                x = a.add(x, x)
            return a.reduce(x)

        return formula

    assert emit(kind, doubled(2))[1].high <= ifma.STORED
    with pytest.raises(BoundError, match="can't be reduced in one step"):
        emit(kind, doubled(3))
    with pytest.raises(BoundError):
        emit(kind, lambda a, x, y: a.mul(*[doubled_value(a, x, 60)] * 2))
    with pytest.raises(BoundError, match="not below the modulus"):
        emit(kind, lambda a, x, y: a.constant(kind.field.modulus))


def doubled_value(a: Any, x: Value, times: int) -> Value:
    for _ in range(times):
        x = a.add(x, x)
    return x


@pytest.mark.parametrize("kind", PRIME, ids=name)
def test_a_product_is_reduced_only_as_far_as_the_spare_bits_allow(kind: KernelField) -> None:
    """BN254 has few of them: a product of stored values exceeds p, and a bound that said less would be wrong."""
    _, product = emit(kind, lambda a, x, y: a.mul(x, y))
    spare = (1 << (52 * kind.limbs)) / kind.field.modulus
    assert float(product.high) == pytest.approx(1 + float(ifma.STORED) ** 2 / spare)
    assert product.high > 1


@pytest.mark.skipif(not isa.emulated(), reason="this CPU has the instructions themselves")
def test_emulated_instructions_read_52_bits() -> None:
    """What lies above them in an operand must not count, as in vpmadd52."""
    kind = PRIME[0]

    def formula(a: Any, x: Value, y: Value) -> Value:
        noise = ifma.v.splat(5 << 53)
        noisy = [a.b.or_(limb, noise) for limb in x.limbs]
        limbs = [ifma.v.madd_high(a.b, ifma.v.ZERO, i, j) for i, j in zip(noisy, y.limbs, strict=True)]
        return a.below_p(limbs)

    p = kind.field.modulus
    x, y = list(range(p - LANES, p)), [p - 3 * i for i in range(1, LANES + 1)]
    got = arrays.encode(kind, run(emit(kind, formula)[0], kind, x, y))
    left, right = arrays.encode(kind, x), arrays.encode(kind, y)
    assert np.array_equal(got, [int(i) * int(j) >> 52 for i, j in zip(left, right, strict=True)])
