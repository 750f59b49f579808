"""A key for timing only: the sizes, coefficients and witness of a real circuit, and points that are valid but
mean nothing, so that a key of 2^20 constraints takes seconds to make. No proof made with it verifies.

    python -m tests.bench.timing_key bn254 20 OUT.zkey OUT.wtns
"""

from __future__ import annotations

import os
import secrets
import struct
import sys
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np

from gpu.circuits import chain
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.params import Curve, curve_by_name
from gpu.files import staged
from gpu.groth16.binfile import BinWriter
from gpu.groth16.zkey import COEFFICIENT, GROTH16, ZKEY
from gpu.msm.fixed import FixedBase

_DISTINCT = 1 << 13  # points that the sections repeat
_PUBLIC = 1
_BLOCK = 1 << 16


def write_timing_key(curve_name: str, log_domain: int, zkey: str | os.PathLike[str], wtns: str | os.PathLike[str]):
    """The chain circuit with two constraints fewer than the domain holds (its public rows take the rest)."""
    curve = curve_by_name(curve_name)
    size = 1 << log_domain
    n = size - 1 - _PUBLIC
    chain.write_wtns(n, curve.name, 3, wtns)
    n_vars = n + 2
    with staged(zkey) as (file,), ThreadPoolExecutor() as pool:
        one, two = (_points(group, pool) for group in (kernel_g1(curve), kernel_g2(curve)))
        out = BinWriter(file, ZKEY)
        out.section(1)
        out.write(struct.pack("<I", GROTH16))
        out.section(2)
        out.write(_header(curve, n_vars, size, one, two))
        out.section(4)
        _write_coefficients(out, curve, n)
        for number, points, count in (
            (3, one, _PUBLIC + 1),
            (5, one, n_vars),
            (6, one, n_vars),
            (7, two, n_vars),
            (8, one, n_vars - _PUBLIC - 1),
            (9, one, size),
        ):
            out.section(number)
            for i in range(0, count, _DISTINCT):
                out.write(points[: min(_DISTINCT, count - i)].tobytes())
        out.section(10)
        out.write(bytes(64) + struct.pack("<I", 0))
        out.end()


def _points(group: KernelGroup, pool: Executor) -> np.ndarray:
    """Rows of one affine point each."""
    scalars = np.frombuffer(secrets.token_bytes(32 * _DISTINCT), np.uint64).reshape(-1, 4) >> np.uint64(2)
    points = FixedBase(group, group.reference.generator, _DISTINCT).multiples(scalars, pool)
    return points.reshape(_DISTINCT, -1)


def _header(curve: Curve, n_vars: int, size: int, one: np.ndarray, two: np.ndarray) -> bytes:
    fp, fr = curve.fp, curve.fr
    sizes = struct.pack("<I", fp.n_bytes) + fp.modulus.to_bytes(fp.n_bytes, "little")
    sizes += struct.pack("<I", fr.n_bytes) + fr.modulus.to_bytes(fr.n_bytes, "little")
    sizes += struct.pack("<III", n_vars, _PUBLIC, size)
    return sizes + b"".join(point.tobytes() for point in (one[0], one[1], two[0], two[1], one[2], two[2]))


def _write_coefficients(out: BinWriter, curve: Curve, n: int) -> None:
    """Rows -x_i * x_i, then the row of each public wire, as `chain` and `setup` have them."""
    r2 = curve.fr.r2
    minus, plus = (np.frombuffer(value.to_bytes(32, "little"), np.uint64) for value in (curve.r - r2, r2))
    out.write(struct.pack("<I", 2 * n + _PUBLIC + 1))
    for begin in range(0, n, _BLOCK):
        rows = np.arange(begin, min(begin + _BLOCK, n), dtype=np.uint32)
        entries = np.zeros((len(rows), 2), COEFFICIENT)
        entries["matrix"][:, 1] = 1
        entries["row"] = rows[:, None]
        entries["column"] = rows[:, None] + 2
        entries["value"][:, 0] = minus
        entries["value"][:, 1] = plus
        out.write(entries.tobytes())
    public = np.zeros(_PUBLIC + 1, COEFFICIENT)
    public["row"] = n + np.arange(_PUBLIC + 1)
    public["column"] = np.arange(_PUBLIC + 1)
    public["value"] = plus
    out.write(public.tobytes())


if __name__ == "__main__":
    write_timing_key(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
