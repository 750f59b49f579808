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

uint32, uint64 = types.uint32, types.uint64

EXCEPTIONS, LONG_BUCKETS = 0, 1
"""Places in the array of counters."""


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
def accumulate(F, points, entries, tasks, n_tasks, sums, exceptions, counters, last):
    """sums[slice] = the sum of its entries' points, for each task (slice, begin, end).

    A pair of equal x stops a slice: (task, place of the entry that was not added) goes to the exceptions.
    """
    task = uint32(cuda.grid(1))
    if task >= n_tasks[last]:
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
                slot = atomic_add(counters, uint32(EXCEPTIONS), uint32(1))
                exceptions[uint32(2) * slot] = task
                exceptions[uint32(2) * slot + uint32(1)] = at
                break
            s = finish(F, s[0], s[1], s[2], s[3], p, r)
        at = uint32(at + uint32(1))
    store_sum(F, sums, tasks[uint32(3) * task], s)


@kernel("g1_repair", "pppppp", fields=_cold_g1, max_threads=64)
@kernel("g2_repair", "pppppp", fields=_cold_g2, max_threads=64)
def repair(F, points, entries, tasks, sums, exceptions, counters):
    """Finishes the slices that `accumulate` stopped in, with an addition that is right in every case."""
    k = uint32(cuda.grid(1))
    while k < counters[uint32(EXCEPTIONS)]:
        task, at = exceptions[uint32(2) * k], exceptions[uint32(2) * k + uint32(1)]
        where, end = tasks[uint32(3) * task], tasks[uint32(3) * task + uint32(2)]
        s = load_sum(F, sums, where)
        while at < end:
            x, y = load_point(F, points, entries[at])
            s = add_point(F, s, x, y)
            at = uint32(at + uint32(1))
        store_sum(F, sums, where, s)
        k = uint32(k + uint32(cuda.gridsize(1)))


@cuda.jit(device=True)
def _fold(F, sums, first, count):
    """A block adds sums[first .. first+count-1] up into sums[first], halving the range over and over."""
    while count > uint32(1):
        half = uint32((count + uint32(1)) >> uint32(1))
        k = uint32(cuda.threadIdx.x)
        while k < count - half:
            s = add_sums(F, load_sum(F, sums, first + k), load_sum(F, sums, first + k + half))
            store_sum(F, sums, first + k, s)
            k = uint32(k + uint32(cuda.blockDim.x))
        cuda.syncthreads()
        count = half


@kernel("g1_join", "pppp", fields=_cold_g1, max_threads=128)
@kernel("g2_join", "pppp", fields=_cold_g2, max_threads=128)
def join(F, sums, slice_starts, long_buckets, counters):
    """The slices of each long bucket into the first of them."""
    k = uint32(cuda.blockIdx.x)
    while k < counters[uint32(LONG_BUCKETS)]:
        bucket = long_buckets[k]
        first = slice_starts[bucket]
        _fold(F, sums, first, uint32(slice_starts[bucket + uint32(1)] - first))
        k = uint32(k + uint32(cuda.gridDim.x))


@kernel("g1_segments", "pppuuu", fields=_cold_g1, max_threads=64)
@kernel("g2_segments", "pppuuu", fields=_cold_g2, max_threads=64)
def segments(F, sums, slice_starts, out, log_segment, log_buckets, n_segments):
    """out[j] = the sum of weight times bucket over segment j, of 2^log_segment buckets; those of a window weigh 1, 2,
    3 ...

    Running sums from the top give weights from 1 on within the segment. Doubling and adding the segment's sum gives
    what its place in the window adds to the weights. All additions are one and the same piece of code.
    """
    j = uint32(cuda.grid(1))
    if j >= n_segments:
        return
    below = uint32((j << log_segment) & ((uint32(1) << log_buckets) - uint32(1)))
    halfway = uint32(uint32(2) << log_segment)
    last = uint32(halfway + uint32(2) * log_buckets)
    running, total = infinity(F), infinity(F)
    for step in range(last + uint32(1)):
        # An even step prepares (running += bucket, then total *= 2), an odd one adds (total += running).
        odd, before = step & uint32(1), uint32(step >> uint32(1))
        left, right = total, running
        if step < halfway:
            if not odd:
                bucket = uint32(((j + uint32(1)) << log_segment) - uint32(1) - before)
                at = slice_starts[bucket]
                if at == slice_starts[bucket + uint32(1)]:
                    continue
                left, right = running, load_sum(F, sums, at)
        elif step == last:
            right = load_sum(F, out, j)
        elif not odd:
            if step == halfway:
                store_sum(F, out, j, total)
                total = infinity(F)
                continue
            right = total
        elif not (below >> uint32((last - step) >> uint32(1))) & uint32(1):
            continue
        s = add_sums(F, left, right)
        if step < halfway and not odd:
            running = s
        else:
            total = s
    store_sum(F, out, j, total)


@kernel("g1_windows", "ppu", fields=_cold_g1, max_threads=128)
@kernel("g2_windows", "ppu", fields=_cold_g2, max_threads=128)
def windows(F, parts, out, per_window):
    """out[w] = the sum of the segments of window w, one block each. Uses up `parts`."""
    w = uint32(cuda.blockIdx.x)
    _fold(F, parts, uint32(w * per_window), per_window)
    if cuda.threadIdx.x == 0:
        store_sum(F, out, w, load_sum(F, parts, uint32(w * per_window)))
