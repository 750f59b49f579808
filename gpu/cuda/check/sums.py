"""Steps of the check: multi-scalar sums, large ones and awkward ones."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gpu.cuda.check.inputs import make_tile, multiple, random_scalars, scalars_of
from gpu.cuda.check.setting import SEED, Figures, Setting, Sizes, ms, same
from gpu.cuda.device import Argument, Device
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.params import CURVES, Curve
from gpu.msm.launch import DeviceMsm


def sums(setting: Setting) -> Figures:
    """Multi-scalar sums with known answers, their speed, and where the time goes."""
    device, out = setting.make_device(), {}
    for curve, group, wanted in _groups(setting.sizes):
        rng = np.random.default_rng(SEED)
        tile = make_tile(group, min(setting.sizes.distinct, 1 << max(wanted)), rng)
        name = f"{curve.name} G{group.kind.degree}"
        for log_n in wanted:
            n = 1 << log_n
            scalars = random_scalars(n, rng)
            with device.alloc(n * group.point_bytes) as points, device.alloc(scalars.nbytes) as s:
                tile.fill(device, points, n)
                device.upload(s, scalars)
                msm = DeviceMsm(device, group, n)
                right = tile.sum(scalars)
                times = []
                for _ in range(3 if log_n <= 20 else 2):
                    device.synchronise()
                    begun = time.perf_counter()
                    same(f"{name} sum of 2^{log_n}", msm.run(points, s, n), right)
                    times.append(ms(begun))
                msm.free()
                out[f"{name} sum 2^{log_n} ms"] = round(min(times), 3)
                if log_n == sorted(wanted)[-2 if len(wanted) > 1 else -1]:
                    out |= _phases(device, group, points, s, n, f"{name} sum 2^{log_n}")
    return out


def bad_cases(setting: Setting) -> Figures:
    """What breaks careless sums: equal, opposite and infinite points; equal, small and largest scalars; odd numbers."""
    device, count = setting.make_device(), 0
    for curve in CURVES.values():
        for group in (kernel_g1(curve), kernel_g2(curve)):
            rng, r = np.random.default_rng(SEED), curve.r
            for n in setting.sizes.bad:
                factors = [int.from_bytes(rng.bytes(31), "little") for _ in range(min(n, 40))]
                factors = [factors[i % len(factors)] for i in range(n)]
                kinds = {
                    "random": (factors, [int.from_bytes(rng.bytes(31), "little") for _ in range(n)]),
                    "all equal": ([5] * n, [factors[0]] * n if n else []),
                    "opposite": ([7 if i % 2 else r - 7 for i in range(n)], [factors[0] if n else 0] * n),
                    "infinite": ([0 if i % 3 else f for i, f in enumerate(factors)], [r - 1] * n),
                    "zero scalars": (factors, [0] * n),
                    "bits": (factors, [i % 2 for i in range(n)]),
                }
                for kind, (multiples, scalars) in kinds.items():
                    name = f"{curve.name} G{group.kind.degree}, {n} points, {kind}"
                    same(name, _sum(device, group, multiples, scalars), _dot(group, multiples, scalars))
                    count += 1
    return {"cases": count}


class _Timed:
    """A device that waits after each launch and keeps the times by kernel."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.times: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def launch(self, kernel: str, grid: int, block: int, *args: Argument) -> None:
        self._device.synchronise()
        begun = time.perf_counter()
        self._device.launch(kernel, grid, block, *args)
        self._device.synchronise()
        self.times[kernel] = self.times.get(kernel, 0.0) + ms(begun)


def _phases(device: Device, group: KernelGroup, points: Any, scalars: Any, n: int, name: str) -> Figures:
    timed = _Timed(device)
    msm = DeviceMsm(timed, group, n)
    msm.run(points, scalars, n)
    msm.free()
    longest = sorted(timed.times.items(), key=lambda item: -item[1])[:8]
    return {f"{name} by kernel ms": {kernel.split("_", 1)[1]: round(ms, 3) for kernel, ms in longest}}


def _groups(sizes: Sizes) -> list[tuple[Curve, KernelGroup, tuple[int, ...]]]:
    return [
        (curve, group, wanted)
        for curve in CURVES.values()
        for group, wanted in ((kernel_g1(curve), sizes.sums_g1), (kernel_g2(curve), sizes.sums_g2))
    ]


def _sum(device: Device, group: KernelGroup, factors: list[int], scalars: list[int]) -> Any:
    n, made = len(factors), {factor: multiple(group, factor) for factor in set(factors)}
    with device.alloc(max(1, n) * group.point_bytes) as points, device.alloc(max(1, n) * 32) as s:
        device.upload(points, group.encode([made[factor] for factor in factors]))
        device.upload(s, scalars_of(scalars))
        msm = DeviceMsm(device, group, n)
        out = msm.run(points, s, n)
        msm.free()
    return out


def _dot(group: KernelGroup, factors: list[int], scalars: list[int]) -> Any:
    return multiple(group, sum(factor * scalar for factor, scalar in zip(factors, scalars, strict=True)))
