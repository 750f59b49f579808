"""Steps of the check: who is here, field multiplications, transforms."""

from __future__ import annotations

import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any

import numpy as np

from gpu.cuda.check.inputs import random_impulses
from gpu.cuda.check.setting import BLOCK, SEED, Figures, Setting, Wrong, ms, same
from gpu.cuda.device import OutOfDeviceMemory
from gpu.curve.params import CURVES
from gpu.field.tower import Fp, Fp2
from gpu.ntt.launch import DeviceDomain


def versions(setting: Setting) -> Figures:
    """Who is here; what starting and launching cost; memory that runs out and comes back."""
    begun = time.perf_counter()
    device = setting.make_device()
    out: Figures = {"start_ms": ms(begun), "gpu": device.name, "sm_count": device.sm_count}
    out |= {name: getattr(device, name) for name in ("capability", "driver_version") if hasattr(device, name)}
    out |= {"python": python_version(), "memory_mib": [each >> 20 for each in device.memory()]}
    for name in ("numpy", "cuda-bindings", "numba"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = None
    with device.alloc(64) as buffer:
        device.zero(buffer)
        run = lambda: device.launch("bn254_multiply", 1, BLOCK, buffer, buffer, buffer, 1)  # noqa: E731
        run()
        device.synchronise()
        begun = time.perf_counter()
        for _ in range(setting.sizes.launches):
            run()
        device.synchronise()
        out["launch_us"] = round(ms(begun) * 1000 / setting.sizes.launches, 2)
    free, total = device.memory()
    try:
        device.alloc(total + (1 << 30)).free()
    except OutOfDeviceMemory as error:
        out["out_of_memory"] = str(error)
    else:
        raise Wrong("more memory than there is was given out")
    device.alloc(free // 2).free()
    return out


def fields(setting: Setting) -> Figures:
    """Chains of multiplications: right on a sample, and how many a second."""
    device, sizes, rng = setting.make_device(), setting.sizes, np.random.default_rng(SEED)
    out: Figures = {}
    for curve in CURVES.values():
        for name, field, degree in (("fr", curve.fr, 1), ("fp", curve.fp, 1), ("fp2", curve.fp, 2)):
            n, width, p = sizes.elements, field.n_bytes, field.modulus
            values = [0, 1, p - 1, p - 2, *(int.from_bytes(rng.bytes(width), "little") % p for _ in range(252))]
            known = np.frombuffer(b"".join(value.to_bytes(width, "little") for value in values), np.uint8)
            data = np.resize(known, n * degree * width)
            kernel, grid = f"{curve.name}_{name}_mul_chain", -(-n // BLOCK)
            with device.alloc(data.nbytes) as a, device.alloc(data.nbytes) as result:
                device.upload(a, data)
                device.launch(kernel, grid, BLOCK, result, a, 2)
                got = device.download(result, min(data.nbytes, known.nbytes))
                same(f"{kernel}, 3rd powers", got.tobytes(), _cubes(values, field, degree, len(got) // width))
                begun = time.perf_counter()
                device.launch(kernel, grid, BLOCK, result, a, sizes.rounds)
                device.synchronise()
                out[f"{curve.name} {name} G mul/s"] = round(n * sizes.rounds / ms(begun) / 1e6, 3)
    return out


def transforms(setting: Setting) -> Figures:
    """From the domain to the odd coset: all values right at small sizes, a sample of them at large ones."""
    device, out = setting.make_device(), {}
    for curve in CURVES.values():
        for log_n in setting.sizes.transforms:
            rng, n = np.random.default_rng(SEED + log_n), 1 << log_n
            impulses = random_impulses(curve, n, rng)
            with device.alloc(32 * n) as x:
                domain = DeviceDomain(device, curve, n)
                vector = impulses.vector()
                device.upload(x, vector)
                domain.to_odd_coset(x)
                places = range(n) if log_n <= 10 else [0, 1, n - 1, *map(int, rng.integers(0, n, 200))]
                for j in places:
                    value = int.from_bytes(device.download(x, 32, 32 * j).tobytes(), "little")
                    right = curve.fr.to_montgomery(impulses.on_odd_coset(j))
                    same(f"{curve.name} transform of 2^{log_n} at {j}", value, right)
                times = []
                for _ in range(5):
                    device.synchronise()
                    begun = time.perf_counter()
                    domain.to_odd_coset(x)
                    device.synchronise()
                    times.append(ms(begun))
                domain.free()
            out[f"{curve.name} pair of transforms 2^{log_n} ms"] = round(statistics.median(times), 3)
    return out


def _cubes(values: list[int], field: Any, degree: int, count: int) -> bytes:
    """The first `count` coordinates of the third powers, everything in Montgomery form."""
    f = Fp(field.modulus) if degree == 1 else Fp2(field.modulus)
    plain = [field.from_montgomery(value) for value in values]
    elements: list[Any] = plain if degree == 1 else list(zip(plain[::2], plain[1::2], strict=True))
    cubes = [f.mul(f.mul(x, x), x) for x in elements]
    flat = cubes if degree == 1 else [part for cube in cubes for part in cube]
    return b"".join(field.to_montgomery(value).to_bytes(field.n_bytes, "little") for value in flat[:count])
