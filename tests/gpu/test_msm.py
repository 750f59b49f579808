"""Multi-scalar multiplications against their definition, against arkworks, and against sums known beforehand."""

from __future__ import annotations

import ctypes
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py_arkworks_bls12381 import G1Point, Scalar

from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.params import BLS12381, BN254, Curve
from gpu.field import isa
from gpu.field.kinds import LANES
from gpu.field.params import BLS12381_P, BLS12381_R, BN254_P, BN254_R, Field
from gpu.msm import plan
from gpu.msm.batch import Room
from gpu.msm.fixed import FixedBase
from gpu.msm.inverse import address, constants
from gpu.msm.plan import Msm, pack, small
from tests.gpu.msm_cases import KINDS, palette, scalars, unaligned

pytestmark = pytest.mark.prover

GROUPS = {f"{c.name}-g{k}": make(c) for c in (BN254, BLS12381) for k, make in ((1, kernel_g1), (2, kernel_g2))}


def examples(count: int) -> settings:
    """Kernels compile in the first one, hence no deadline."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=[1, LANES], ids=["scalar", "ifma"])
def lanes(request: pytest.FixtureRequest) -> int:
    missing = isa.vector_missing()
    if request.param > 1 and missing:
        pytest.skip(missing)
    return int(request.param)


@pytest.fixture(params=GROUPS)
def group(request: pytest.FixtureRequest) -> KernelGroup:
    return GROUPS[str(request.param)]


@examples(40)
@given(
    n=st.one_of(st.integers(0, 4), st.integers(0, 200)),
    kind=st.sampled_from(KINDS),
    threads=st.sampled_from([1, 2, 7, 200]),
    window=st.sampled_from([None, 2, 3, 5, 8, 11]),
    stripe=st.sampled_from([8, 1 << 12]),
    seed=st.integers(0, 1 << 32),
)
def test_msm_equals_the_definition(
    group: KernelGroup,
    lanes: int,
    pool: ThreadPoolExecutor,
    n: int,
    kind: str,
    threads: int,
    window: int | None,
    stripe: int,
    seed: int,
) -> None:
    rng, reference = random.Random(seed), group.reference
    chosen = rng.choices(palette(group, rng), k=n)
    values = scalars(kind, group.curve.r, n, rng)
    section = unaligned(group.encode([point for _, point in chosen]))
    wanted = reference.mul(reference.generator, sum(k * s for (k, _), s in zip(chosen, values, strict=True)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_MIN_STRIPE", stripe)
        if window:
            patch.setattr(plan, "best_window", lambda longest, total_bits, n: window)
        assert Msm(group, section, pack(values), pool, threads, lanes).result() == wanted
        assert small(group, section, values) == wanted


@pytest.mark.parametrize("window", [2, 3, 8, 13, 16])
def test_every_window_keeps_its_top_carry(
    group: KernelGroup, window: int, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "best_window", lambda longest, total_bits, n: window)
    r, reference = group.curve.r, group.reference
    values = [r // 2, (1 << (r.bit_length() - 2)) - 1, r // 2 - (1 << 200), 1 << (window - 1), (1 << window) - 1]
    values += [r - value for value in values]
    points = [reference.mul(reference.generator, 3**k) for k in range(len(values))]
    wanted = reference.mul(reference.generator, sum(3**k * value for k, value in enumerate(values)))
    assert Msm(group, group.encode(points), pack(values), pool, 2).result() == wanted


@examples(20)
@given(
    n=st.integers(0, 120),
    n_targets=st.integers(1, 30),
    room=st.sampled_from([16, 32, 128]),
    seed=st.integers(0, 1 << 32),
)
def test_batches_add_equal_opposite_and_infinite_points(
    group: KernelGroup, lanes: int, n: int, n_targets: int, room: int, seed: int
) -> None:
    rng, reference = random.Random(seed), group.reference
    points = palette(group, rng)
    targets = np.sort(np.array(rng.choices(range(n_targets), k=n), np.int32))
    refs = np.array(rng.choices(range(2 * len(points)), k=n), np.int32)
    held = rng.choices(points, k=n_targets)
    slots = group.encode([point for _, point in held]).view(np.uint64)
    logs = [k for k, _ in held]
    for target, ref in zip(targets, refs, strict=True):
        logs[target] += -points[ref >> 1][0] if ref & 1 else points[ref >> 1][0]
    section = unaligned(group.encode([point for _, point in points]))
    Room(group, lanes, room).accumulate(slots, section, targets, refs, n)
    assert [group.decode(slots, i) for i in range(n_targets)] == [reference.mul(reference.generator, k) for k in logs]


@pytest.mark.parametrize("field", [BN254_P, BN254_R, BLS12381_P, BLS12381_R], ids=lambda field: field.name)
@examples(100)
@given(data=st.data())
def test_inverses(field: Field, data: st.DataObject) -> None:
    p = field.modulus
    edges = st.sampled_from([0, 1, 2, p - 1, p - 2, p // 2, 1 << 31, 1 << 62, (1 << 64) - 1])
    value = data.draw(st.one_of(edges, st.integers(0, p - 1), st.integers(0, 240).map(lambda k: (1 << k) % p)))
    numerator = data.draw(st.integers(1, p - 1))
    words = np.frombuffer(bytearray(value.to_bytes(field.n_bytes, "little")), np.uint64)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address())
    function(words.ctypes.data, constants(field, numerator).ctypes.data)
    wanted = numerator * pow(value, -1, p) % p if value else 0
    assert int.from_bytes(words.tobytes(), "little") == wanted


@pytest.mark.parametrize("count", [1, 1 << 20])
def test_fixed_base_multiples(group: KernelGroup, lanes: int, count: int, pool: ThreadPoolExecutor) -> None:
    r, reference = group.curve.r, group.reference
    values = [0, 1, 2, 255, 256, r - 1, r // 2, r // 3, 0]
    section = FixedBase(group, reference.generator, count, lanes).multiples(pack(values).reshape(-1, 4), pool)
    wanted = [reference.mul(reference.generator, value) for value in values]
    assert [group.decode(section, i) for i in range(len(values))] == wanted


def _multiples(group: KernelGroup, n: int, pool: ThreadPoolExecutor) -> np.ndarray:
    """G, 2 G, 3 G ..."""
    logs = np.zeros((n, 4), np.uint64)
    logs[:, 0] = np.arange(1, n + 1)
    return FixedBase(group, group.reference.generator, n).multiples(logs, pool)


@pytest.mark.parametrize(("curve", "n"), [(BN254, 1 << 17), (BLS12381, 1 << 15)], ids=["bn254", "bls12381"])
def test_large_sums_that_are_known_beforehand(curve: Curve, n: int, lanes: int, pool: ThreadPoolExecutor) -> None:
    """Every addition meets its bounds here: a mistake in one of 10^5 spoils the sum."""
    group, rng = kernel_g1(curve), random.Random(n)
    values = scalars("random", curve.r, n, rng)
    wanted = group.reference.mul(group.reference.generator, sum(i * value for i, value in enumerate(values, 1)))
    assert Msm(group, _multiples(group, n, pool), pack(values), pool, 2, lanes=lanes).result() == wanted


def test_equals_arkworks(pool: ThreadPoolExecutor) -> None:
    n, rng, group = 1 << 12, random.Random(7), kernel_g1(BLS12381)
    values = scalars("random", BLS12381.r, n, rng)
    section = _multiples(group, n, pool)
    raw = [b"".join(x.to_bytes(48, "big") for x in group.decode(section, i)) for i in range(n)]
    theirs = G1Point.multiexp_unchecked(
        [G1Point.from_xy_bytes_unchecked_be(each) for each in raw],
        [Scalar.from_le_bytes(value.to_bytes(32, "little")) for value in values],
    )
    x, y = Msm(group, section, pack(values), pool, 2).result()
    assert theirs.to_xy_bytes_be() == x.to_bytes(48, "big") + y.to_bytes(48, "big")
