"""Whole proofs on an emulated GPU, every access of every kernel checked; what stays there, and memory that is short."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import pytest

from gpu.cuda.backend import DeviceProver, open_points
from gpu.cuda.device import GpuError, OutOfDeviceMemory
from gpu.cuda.plan import make_plan
from gpu.errors import Cancelled
from gpu.groth16 import prover
from gpu.groth16.backend import Sums, Synthesis
from gpu.groth16.formats import proof_json, public_json, vkey_from_zkey
from gpu.groth16.key import ProvingKey
from gpu.groth16.verify import verify_independent
from tests.gpu.conftest import Files
from tests.gpu.cuda.works import Work, make_work
from tests.gpu.ptx.device import EmulatedDevice
from tests.gpu.ptx.machine import ascending, shuffled

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]  # the first to come compiles the kernels
TOTAL = 1 << 30


class InProcess:
    """The back end `cuda` without the process around it."""

    name = "cuda"

    def __init__(self, device: EmulatedDevice, smallest_range: int = 1 << 16) -> None:
        self.prover = DeviceProver(device, smallest_range)
        self.steps: list[str] = []

    def sums(self, key: ProvingKey, ready: Synthesis) -> Sums:
        points = open_points(key.path)
        return Sums(**self.prover.sums(points, ready.witness, ready.a, ready.b, progress=self.steps.append))

    def workers(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        self.prover.close()


@pytest.fixture(scope="module")
def works(all_small: dict[str, Files], pool: Executor) -> dict[str, Work]:
    return {name: make_work(files, pool) for name, files in all_small.items()}


@pytest.fixture
def work(curve: Any, works: dict[str, Work]) -> Work:
    return works[curve.name]


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    return EmulatedDevice(TOTAL)


@pytest.mark.parametrize("order", [ascending, shuffled(7)], ids=["ascending", "shuffled"])
def test_a_proof_that_others_verify(order: Any, work: Work, pool: Executor) -> None:
    """The whole prover, with no other change than the back end."""
    device = EmulatedDevice(TOTAL, order)
    backend = InProcess(device)
    ready = work.copy()
    proof = prover.compute(work.key, ready, backend, prover.draw_blinding(work.key.curve.r))
    prover.check(work.key, ready, proof, pool, 2)
    verify_independent(vkey_from_zkey(work.files.zkey), public_json(ready.public), proof_json(work.key.curve, proof))
    backend.close()
    assert device.used == 0


def test_a_key_is_sent_once(works: dict[str, Work], device: EmulatedDevice) -> None:
    work = works["bn254"]
    backend = InProcess(device)
    for _ in range(2):
        assert backend.sums(work.key, work.copy()) == work.expected
    assert backend.steps.count("load h") == 1
    assert backend.prover.resident == {
        work.key.content: sum(p.nbytes for p in open_points(work.key.path).points.values())
    }
    backend.close()
    assert device.used == 0


def test_the_least_recently_used_key_leaves_first(works: dict[str, Work]) -> None:
    """With room for one of them only, the first leaves; with room for both, both stay."""
    one, two = works.values()
    plan = make_plan("", two.key.facts, TOTAL, TOTAL)
    device = EmulatedDevice((plan.work_bytes + plan.key_bytes) * 32 // 31 + 32)
    backend = InProcess(device)
    for work in (one, two):
        assert backend.sums(work.key, work.copy()) == work.expected
        assert list(backend.prover.resident) == [work.key.content]
    assert backend.sums(one.key, one.copy()) == one.expected  # its smaller workspace leaves room for both keys
    assert list(backend.prover.resident) == [two.key.content, one.key.content]
    backend.close()
    assert device.used == 0


@pytest.mark.parametrize("spare", [0, 600])
def test_a_key_larger_than_the_memory_is_sent_in_ranges(spare: int, works: dict[str, Work]) -> None:
    """With `spare` bytes more, some of its points stay."""
    work = works["bn254"]
    facts = work.key.facts
    least = next(n for n in range(1 << 12, TOTAL, 64) if _fits(facts, n, 3))
    total = (least + spare) * 32 // 31 + 32
    device = EmulatedDevice(total)
    backend = InProcess(device, 3)
    for _ in range(2):
        assert backend.sums(work.key, work.copy()) == work.expected
    assert backend.steps.count("sum a") > 2
    assert bool(backend.prover.resident[work.key.content]) == bool(spare)
    backend.close()
    assert device.used == 0


def _fits(facts: Any, available: int, smallest_range: int) -> bool:
    try:
        return bool(make_plan("k", facts, available, available, smallest_range))
    except OutOfDeviceMemory:
        return False


def test_the_plan_is_what_is_taken(work: Work, device: EmulatedDevice) -> None:
    backend = InProcess(device)
    backend.sums(work.key, work.copy())
    plan = make_plan(work.key.path, work.key.facts, TOTAL, TOTAL)
    assert device.used == plan.work_bytes + plan.key_bytes == device.peak
    backend.close()


def test_too_little_memory_is_refused_with_the_figures(works: dict[str, Work]) -> None:
    work = works["bn254"]
    device = EmulatedDevice(50 << 10)
    with pytest.raises(OutOfDeviceMemory, match=r"needs at least 1 MiB of GPU memory.*use a GPU with more memory"):
        InProcess(device, 2).sums(work.key, work.copy())
    assert not device.launches
    assert device.used == 0


def test_memory_that_others_took_meanwhile(works: dict[str, Work]) -> None:
    """The plan for the second key counted on memory that is gone a moment later: everything of ours leaves, and a new
    plan is made.
    """
    one, two = works.values()
    failures: dict[int, GpuError] = {}
    device = EmulatedDevice(TOTAL, failures=failures)
    backend = InProcess(device)
    backend.sums(one.key, one.copy())
    failures[device.calls + 6] = OutOfDeviceMemory("somebody was faster")
    assert backend.sums(two.key, two.copy()) == two.expected
    assert device.calls > max(failures)
    assert list(backend.prover.resident) == [two.key.content]
    backend.close()
    assert device.used == 0


def test_every_failure_leaves_nothing_behind(works: dict[str, Work]) -> None:
    """Whichever call of the device fails before the first sum, and some later ones."""
    work = works["bn254"]
    probe = EmulatedDevice(TOTAL)
    InProcess(probe).sums(work.key, work.copy())
    for call in [*range(1, 60), probe.calls - 1]:
        device = EmulatedDevice(TOTAL, failures={call: GpuError("ordered")})
        backend = InProcess(device)
        with pytest.raises(GpuError, match="ordered"):
            backend.sums(work.key, work.copy())
        backend.close()
        assert device.used == 0, call
    assert backend.sums(work.key, work.copy()) == work.expected


def test_a_proof_can_be_given_up_between_steps(works: dict[str, Work], device: EmulatedDevice) -> None:
    work = works["bn254"]
    backend = InProcess(device)

    def stop(step: str) -> None:
        if step == "sum b1":
            raise Cancelled("enough")

    points = open_points(work.key.path)
    with pytest.raises(Cancelled):
        backend.prover.sums(points, **work.vectors(), progress=stop)
    assert backend.sums(work.key, work.copy()) == work.expected
    backend.close()
    assert device.used == 0
