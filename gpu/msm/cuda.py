"""Pippenger's bucket method on a GPU: the kernels that work on points. `gpu.msm.sorting` has those that sort.

A bucket's entries are cut into slices; a thread adds up one slice, in XYZZ coordinates. The fast kernel has no room
in its registers for the doubling that equal points need: it stops at such a pair and names the slice in a list, and a
slow kernel finishes what is in the list. `gpu.msm.launch` says what the arrays hold.
"""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from gpu.cuda.registry import kernel
from gpu.curve.cuda import (
    add_point,
    add_sums,
    finish,
    infinity,
    load_point,
    load_sum,
    store_sum,
)
from gpu.curve.params import Curve
from gpu.field.cuda import FieldType, atomic_add, field_type, is_zero, mul, one, sub
from gpu.msm.sorting import bucket_of

uint32, uint64 = types.uint32, types.uint64


def _hot_g1(curve: Curve) -> list[FieldType]:
    return [field_type(curve.fp)]


def _hot_g2(curve: Curve) -> list[FieldType]:
    return [field_type(curve.fp, 2)]


def _cold_g1(curve: Curve) -> list[FieldType]:
    return [field_type(curve.fp, cold=True)]


def _cold_g2(curve: Curve) -> list[FieldType]:
    return [field_type(curve.fp, 2, cold=True)]


@kernel("g1_accumulate", "pppppppu", fields=_hot_g1, max_threads=128, min_blocks=3)
@kernel("g2_accumulate", "pppppppu", fields=_hot_g2, max_threads=128, min_blocks=2)
def accumulate(F, points, entries, tasks, n_tasks, sums, exceptions, n_exceptions, which):
    """sums[slice] = the sum of its entries' points, for each task (slice, begin, end); n_tasks[which] says how many.

    A pair of equal x stops a slice: (task, place of the entry that was not added) goes to the exceptions.
    """
    task = uint32(cuda.grid(1))
    if task >= n_tasks[which]:
        return
    at, end = tasks[uint32(3) * task + uint32(1)], tasks[uint32(3) * task + uint32(2)]
    s = infinity(F)
    while at < end:
        x, y = load_point(F, points, entries[at])
        at = uint32(at + uint32(1))
        if not (is_zero(F, x) and is_zero(F, y)):
            s = (x, y, one(F), one(F))
            break
    while at < end:
        x, y = load_point(F, points, entries[at])
        if not (is_zero(F, x) and is_zero(F, y)):
            p = sub(F, mul(F, x, s[2]), s[0])
            r = sub(F, mul(F, y, s[3]), s[1])
            if is_zero(F, p):
                slot = atomic_add(n_exceptions, uint32(0), uint32(1))
                exceptions[uint32(2) * slot] = task
                exceptions[uint32(2) * slot + uint32(1)] = at
                break
            s = finish(F, s[0], s[1], s[2], s[3], p, r)
        at = uint32(at + uint32(1))
    store_sum(F, sums, tasks[uint32(3) * task], s)


@kernel("g1_repair", "pppppp", fields=_cold_g1, max_threads=64)
@kernel("g2_repair", "pppppp", fields=_cold_g2, max_threads=64)
def repair(F, points, entries, tasks, sums, exceptions, n_exceptions):
    """Finishes the slices that `accumulate` stopped in, with an addition that is right in every case."""
    k = uint32(cuda.grid(1))
    while k < n_exceptions[uint32(0)]:
        task, at = exceptions[uint32(2) * k], exceptions[uint32(2) * k + uint32(1)]
        where, end = tasks[uint32(3) * task], tasks[uint32(3) * task + uint32(2)]
        s = load_sum(F, sums, where)
        while at < end:
            x, y = load_point(F, points, entries[at])
            s = add_point(F, s, x, y)
            at = uint32(at + uint32(1))
        store_sum(F, sums, where, s)
        k = uint32(k + uint32(cuda.gridsize(1)))


@kernel("g1_join", "ppuu", fields=_cold_g1, max_threads=128)
@kernel("g2_join", "ppuu", fields=_cold_g2, max_threads=128)
def join(F, sums, extra_starts, n_buckets, stride):
    """One step of adding its further slices to each bucket, with a thread for each such slice.

    In the row of a bucket and its further slices, every place whose number 4 * stride divides takes in the three that
    follow it at distances of `stride`. All threads work on a bucket that has most of the entries, as many do in a
    witness of bits.
    """
    t = uint32(cuda.grid(1))
    if t >= extra_starts[n_buckets]:
        return
    bucket = bucket_of(extra_starts, n_buckets, t)
    first = extra_starts[bucket]
    left = uint32(extra_starts[bucket + uint32(1)] - t)  # slices from this one on
    number = uint32(t - first + uint32(1))
    if number & (uint32(4) * stride - uint32(1)) != stride:
        return
    source = uint32(n_buckets + t)
    target = bucket
    if number != stride:
        target = uint32(source - stride)
    s = load_sum(F, sums, target)
    for k in range(3):
        if uint32(k) * stride < left:
            s = add_sums(F, s, load_sum(F, sums, uint32(source + uint32(k) * stride)))
    store_sum(F, sums, target, s)


@kernel("g1_merge", "puu", fields=_cold_g1, max_threads=128)
@kernel("g2_merge", "puu", fields=_cold_g2, max_threads=128)
def merge(F, sums, level, n):
    """Puts neighbouring groups of 2^level buckets together, in place, with level + 1 additions for each pair of groups.

    Of a group, place 0 holds the sum of all its buckets and place 2^i, i < level, the sum of those whose number has
    bit i. In the group of twice the size place 2^level must hold the sum of the upper group: there it is already.
    """
    t = uint32(cuda.grid(1))
    if t >= n:
        return
    n_places = uint32(level + uint32(1))
    place = uint32((uint32(1) << uint32(t % n_places)) >> uint32(1))
    low = uint32((uint32(t // n_places) << n_places) + place)
    high = uint32(low + (uint32(1) << level))
    store_sum(F, sums, low, add_sums(F, load_sum(F, sums, low), load_sum(F, sums, high)))


@kernel("g1_windows", "ppuu", fields=_cold_g1, max_threads=32)
@kernel("g2_windows", "ppuu", fields=_cold_g2, max_threads=32)
def windows(F, sums, out, log_buckets, n_windows):
    """out[w] = the sum of weight times bucket over window w, whose buckets weigh 1, 2, 3 ..., once they are all merged.

    The weight less one by its bits, Horner's rule, and every bucket once more.
    """
    w = uint32(cuda.grid(1))
    if w >= n_windows:
        return
    base, last = uint32(w << log_buckets), uint32(log_buckets << uint32(1))
    total = infinity(F)
    for step in range(last + uint32(1)):
        # Doubles at even steps, by the addition: twice the same code would compile and run slower.
        right = total
        if step == last:
            right = load_sum(F, sums, base)
        elif step & uint32(1):
            bit = uint32((last - uint32(1) - step) >> uint32(1))
            right = load_sum(F, sums, uint32(base + (uint32(1) << bit)))
        total = add_sums(F, total, right)
    store_sum(F, out, w, total)
