"""Every intrinsic for every field, hot and cold: the PTX that NVVM makes, on the CPU, against Python ints."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from gpu.field.kinds import FIELDS, KernelField
from gpu.field.tower import Fp, Fp2
from tests.gpu.ptx import Module, ascending, shuffled
from tests.gpu.ptx.machine import Range

pytestmark = [pytest.mark.prover, pytest.mark.usefixtures("kernel_compiler")]

THREADS = 32


class Buffer:
    """16-byte aligned bytes."""

    def __init__(self, data: bytes) -> None:
        self._held = np.zeros(len(data) + 16, np.uint8)
        begin = -self._held.ctypes.data % 16
        self.view = self._held[begin : begin + len(data)]
        self.view[:] = np.frombuffer(data, np.uint8)

    @property
    def range(self) -> Range:
        return self.view.ctypes.data, self.view.nbytes


def encode(kind: KernelField, values: list[Any]) -> bytes:
    parts = [part for value in values for part in (value if kind.degree == 2 else (value,))]
    return b"".join(part.to_bytes(kind.field.n_bytes, "little") for part in parts)


def decode(kind: KernelField, raw: bytes) -> list[Any]:
    n = kind.field.n_bytes
    plain = [int.from_bytes(raw[i : i + n], "little") for i in range(0, len(raw), n)]
    return plain if kind.degree == 1 else list(zip(plain[::2], plain[1::2], strict=True))


def pairs_of(kind: KernelField) -> list[tuple[Any, Any]]:
    """All pairs of values at which carries and reductions turn, and random ones."""
    rng, p = random.Random(3), kind.field.modulus
    edges = [0, 1, p - 1, p - 2, (p - 1) // 2, (p + 1) // 2, kind.field.r, (1 << 224) - 1]
    values: list[Any] = edges + [rng.randrange(p) for _ in range(4)]
    if kind.degree == 2:
        values = list(itertools.product(edges[:3], edges[1:4])) + [tuple(rng.choices(values, k=2)) for _ in range(6)]
    return list(itertools.product(values, values))


def expected(kind: KernelField, x: Any, y: Any) -> list[Any]:
    """The results of `every_operation` on Montgomery forms."""
    ops = Fp(kind.field.modulus) if kind.degree == 1 else Fp2(kind.field.modulus)

    def product(left: Any, right: Any) -> Any:
        return ops.scale(ops.mul(left, right), kind.field.r_inverse)

    one = kind.field.r if kind.degree == 1 else (kind.field.r, 0)
    return [
        product(x, y),
        product(x, x),
        ops.add(x, y),
        ops.sub(x, y),
        ops.neg(x),
        ops.add(x, x),
        product(ops.add(x, y), y),
        ops.scale(x, kind.field.r_inverse),
        ops.zero,
        one,
        y if x == ops.zero else x,
        y,
        ops.sub(product(x, x), product(y, y)),
    ]


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
@pytest.mark.parametrize("kind", FIELDS.values(), ids=lambda kind: f"{kind.field.name}-{kind.degree}")
def test_intrinsics_equal_the_oracle(kind: KernelField, cold: bool) -> None:
    from gpu.cuda.compile import ptx_of
    from gpu.cuda.registry import Kernel
    from gpu.field.cuda import field_type
    from tests.gpu.field.kernels_cuda import N_RESULTS, every_operation

    fields = (field_type(kind.field, kind.degree, cold),)
    text = ptx_of(Kernel("every_operation", every_operation, fields, "pppppu", THREADS, 1))
    assert ("call.uni" in text) == cold
    module, pairs = Module(text), pairs_of(kind)
    a, b = (Buffer(encode(kind, list(side))) for side in zip(*pairs, strict=True))
    wanted = [result for pair in pairs for result in expected(kind, *pair)]
    size, outcomes = len(encode(kind, wanted)), []
    for order in (ascending, shuffled(5)):
        out, flags, counter = Buffer(bytes(size)), Buffer(bytes(8 * len(pairs))), Buffer(bytes(4))
        buffers = (out, flags, counter, a, b)
        arguments = [*(buffer.range[0] for buffer in buffers), len(pairs)]
        grid = -(-len(pairs) // THREADS)
        module.launch("every_operation", grid, THREADS, arguments, order, [buffer.range for buffer in buffers])
        outcomes.append((out.view.tobytes(), flags.view.tobytes(), counter.view.tobytes()))
    assert outcomes[0] == outcomes[1]
    got = decode(kind, outcomes[0][0])
    for i, pair in enumerate(pairs):
        place = slice(N_RESULTS * i, N_RESULTS * (i + 1))
        assert got[place] == wanted[place], pair
    seen = np.frombuffer(outcomes[0][1], np.uint32).reshape(-1, 2).tolist()
    zero = 0 if kind.degree == 1 else (0, 0)
    assert seen == [[int(x == zero), int(x == y)] for x, y in pairs]
    assert int.from_bytes(outcomes[0][2], "little") == len(pairs) * (len(pairs) + 1) // 2
