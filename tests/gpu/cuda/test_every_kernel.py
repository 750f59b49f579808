"""No kernel without a test: the tests of the launch plans and the chains of products here run every one."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from gpu.cuda.device import Buffer
from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.field.params import Field
from gpu.field.tower import Fp, Fp2
from tests.gpu.cuda import test_msm, test_ntt, test_sorting
from tests.gpu.ptx.device import EmulatedDevice
from tests.gpu.ptx.kernels import symbols

pytestmark = pytest.mark.prover

Put = Callable[[np.ndarray], Buffer]
CHAINS = {"fr_mul_chain": ("fr", 1), "fp_mul_chain": ("fp", 1), "fp2_mul_chain": ("fp", 2)}


def bytes_of(field: Field, values: list[int]) -> np.ndarray:
    return np.frombuffer(b"".join(value.to_bytes(field.n_bytes, "little") for value in values), np.uint8)


def run_chain(device: EmulatedDevice, put: Put, curve: Curve, name: str, rounds: int) -> None:
    """x^(rounds + 1), each product with its factor 1 / R, for a block of elements."""
    field_name, degree = CHAINS[name]
    field: Field = getattr(curve, field_name)
    rng, block = random.Random(rounds), 32
    values = [rng.randrange(field.modulus) for _ in range(block * degree)]
    a, out = put(bytes_of(field, values)), put(np.zeros(len(values) * field.n_bytes, np.uint8))
    device.launch(f"{curve.name}_{name}", 1, block, out, a, rounds)
    ops = Fp(field.modulus) if degree == 1 else Fp2(field.modulus)
    wanted: list[int] = []
    for i in range(block):
        x = values[i] if degree == 1 else (values[2 * i], values[2 * i + 1])
        total = x
        for _ in range(rounds):
            total = ops.scale(ops.mul(total, x), field.r_inverse)
        wanted += [total] if degree == 1 else total
    assert np.array_equal(device.download(out), bytes_of(field, wanted))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_chains_of_products(device: EmulatedDevice, put: Put, curve: Curve, name: str, rounds: int) -> None:
    run_chain(device, put, curve, name, rounds)


def test_every_registered_kernel_is_run_by_these_tests(device: EmulatedDevice, put: Put, curve: Curve) -> None:
    for name in CHAINS:
        run_chain(device, put, curve, name, 2)
    for group in (kernel_g1(curve), kernel_g2(curve)):
        test_msm.check(device, put, group, [1, 2, -1, 0] * 20, [5] * 80)
    test_ntt.test_to_odd_coset_equals_the_cpu(device, put, curve, 11)
    test_ntt.test_products_and_quotients(device, put, curve, 1)
    test_sorting.test_prefix_sums(device, put, curve, test_sorting.SCAN + 1, 0)
    assert sorted(device.launches) == [symbol for symbol in symbols() if symbol.startswith(f"{curve.name}_")]
