"""Are the points of a key on their curve and in their subgroup? Fast enough for every point of every key.

On curve: each point by itself. In the subgroup: in batches. A round throws every point into one of B buckets
at random and asks whether each bucket's sum lies in the subgroup, [r]S = 0. Whatever the points are, a round
misses a bad one with probability at most 1/B (given where the other points fell, at most one bucket for the
last bad point hides it), so ROUNDS rounds miss with at most 2^-64. BN254's G1 has prime order and needs no
such check.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.scalar import add_affine, add_sum, double, first_bad_point
from gpu.field.compiled import kernel
from gpu.field.scalar import is_zero

_FEW = 1 << 14  # up to here the final multiplications dominate, beyond it the additions do


@kernel
def _throw(F, points, n, where, mask, buckets, bits, n_bits, n_buckets, out):
    """buckets[where[i] & mask] += points[i]; then whether [order]buckets[j] is not infinity for some j <
    n_buckets.

    One kernel for both, since each carries its own compiled copy of the group law. `bits` of the order,
    highest first; `out` is one point.
    """
    for i in range(n):
        add_affine(F, buckets, where[i] & mask, points, i, False)
    for j in range(n_buckets):
        out[:] = 0
        for k in range(n_bits):
            double(F, out, 0)
            if bits[k]:
                add_sum(F, out, 0, buckets, j)
        if not is_zero(F, out, 2):
            return True
    return False


def first_off_curve(group: KernelGroup, points: np.ndarray, pool: Executor, threads: int) -> int:
    """The index of a point that is off the curve or not reduced (the first one a thread met), or -1."""
    n = len(points) // group.point_bytes
    step = max(1, -(-n // threads))
    parts = [
        pool.submit(first_bad_point, group.kind.marker, points, i, min(i + step, n), group.b) for i in range(0, n, step)
    ]
    return max((part.result() for part in parts), default=-1)


def all_in_subgroup(group: KernelGroup, sections: Sequence[np.ndarray], pool: Executor) -> bool:
    """Whether every point of every section is in the subgroup of order r. Points must be on the curve."""
    if group.kind.degree == 1 and group.curve.d_twist:
        return True
    counts = [len(section) // group.point_bytes for section in sections]
    n_buckets, rounds = (16, 16) if sum(counts) <= _FEW else (256, 8)
    bits = np.array([int(bit) for bit in bin(group.curve.r)[2:]], np.uint8)

    def round_passes() -> bool:
        buckets, marker = group.sums(n_buckets), group.kind.marker
        outside = False
        for section, count in zip(sections, counts, strict=True):
            where = np.frombuffer(bytearray(secrets.token_bytes(count)), np.uint8)
            last = n_buckets if section is sections[-1] else 0
            outside = _throw(
                marker, section, count, where, n_buckets - 1, buckets, bits, len(bits), last, group.sums(1)
            )
        return not outside

    # Every round is awaited, also after a failed one: a thread must not read the mapped file once its owner
    # has gone.
    parts = [pool.submit(round_passes) for _ in range(rounds)]
    passed = [part.result() for part in parts]
    return all(passed)
