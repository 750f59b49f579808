"""Pippenger's bucket method on a GPU: the kernels that sort. They know no field and no points.

Signed digits of all scalars, window by window; how many fall into each bucket; prefix sums; each digit's scalar into
its bucket (counting sort); buckets cut into slices and slices ordered by length, so that the threads of a warp end
together. `gpu.msm.launch` says what the arrays hold.
"""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from gpu.cuda.registry import kernel
from gpu.curve.cuda import SIGN
from gpu.curve.params import Curve
from gpu.field.cuda import FieldType, atomic_add
from gpu.msm.schedule import RUN, SCAN_ITEMS, SCAN_THREADS

uint32, uint64 = types.uint32, types.uint64

_SCALAR_WORDS = 8
_CONSTANT_WORDS = _SCALAR_WORDS + 1


def _no_field(curve: Curve) -> list[FieldType]:
    return []


@kernel("msm_digits", "pppuuuu", fields=_no_field, max_threads=256)
def digits(scalars, constants, out, n, c, first, n_windows):
    """out[w * n + i] = digit `first + w` of scalar i: its absolute value up to 2^(c-1), with SIGN if negative.

    `constants`: half the order (9 words), the number whose digits are all 2^(c-1), and that number less the order. A
    scalar above half the order counts as itself less the order, so that small negative ones have few digits, too.
    Added to the second number, or to the third, it has unsigned digits that lie 2^(c-1) above the signed ones,
    without carries.
    """
    i = uint32(cuda.grid(1))
    if i >= n:
        return
    at = uint64(i) * uint64(_SCALAR_WORDS)
    base = uint32(_CONSTANT_WORDS)
    k = uint32(_SCALAR_WORDS)
    while k > uint32(0):
        k = uint32(k - uint32(1))
        word, half = scalars[at + uint64(k)], constants[k]
        if word != half:
            if word > half:
                base = uint32(2 * _CONSTANT_WORDS)
            break
    middle = uint64(1) << uint64(c - uint32(1))
    mask = (uint64(1) << uint64(c)) - uint64(1)
    carry, pending, n_bits, window = uint64(0), uint64(0), uint32(0), uint32(0)
    for k in range(uint32(_CONSTANT_WORDS)):
        carry += uint64(constants[base + uint32(k)])
        if k < uint32(_SCALAR_WORDS):
            carry += uint64(scalars[at + uint64(k)])
        pending |= (carry & uint64(0xFFFFFFFF)) << uint64(n_bits)
        carry >>= uint64(32)
        n_bits = uint32(n_bits + uint32(32))
        while n_bits >= c:
            raw = pending & mask
            if window >= first and window < first + n_windows:
                digit = uint32(raw - middle)
                if raw < middle:
                    digit = uint32(uint64(SIGN) | (middle - raw))
                out[uint64(window - first) * uint64(n) + uint64(i)] = digit
            pending >>= uint64(c)
            n_bits = uint32(n_bits - c)
            window = uint32(window + uint32(1))


@kernel("msm_histogram", "ppuuu", fields=_no_field, max_threads=256)
def histogram(digits, counts, n, c, blocks_per_window):
    """counts[bucket] += 1 for each digit but 0; a bucket's number is window * 2^(c-1) + digit - 1.

    Equal digits in a row are counted first, so that all threads together don't queue at one bucket when all scalars
    are equal.
    """
    window = uint32(uint32(cuda.blockIdx.x) // blocks_per_window)
    block = uint32(uint32(cuda.blockIdx.x) % blocks_per_window)
    i = uint32(block * uint32(cuda.blockDim.x) * uint32(RUN) + uint32(cuda.threadIdx.x))
    first_bucket = uint32(window << (c - uint32(1)))
    current, count = uint32(0), uint32(0)
    for _ in range(RUN):
        digit = uint32(0)
        if i < n:
            digit = uint32(digits[uint64(window) * uint64(n) + uint64(i)] & uint32(SIGN - 1))
        if digit != current:
            if current:
                atomic_add(counts, uint32(first_bucket + current - uint32(1)), count)
            current, count = digit, uint32(0)
        count = uint32(count + uint32(1))
        i = uint32(i + uint32(cuda.blockDim.x))
    if current:
        atomic_add(counts, uint32(first_bucket + current - uint32(1)), count)


@cuda.jit(device=True)
def _place(digits, counts, starts, entries, base, n, bucket, first, end):
    """Writes the run of scalars first, first + blockDim, ... below end into their bucket."""
    count = uint32((end - first) // uint32(cuda.blockDim.x))
    # Counting down: what remains is the number of entries still to come.
    left = atomic_add(counts, bucket, uint32(uint32(0) - count))
    slot = uint64(starts[bucket]) + uint64(left) - uint64(count)
    i = first
    while i < end:
        entries[slot] = uint32(i | (digits[base + uint64(i)] & uint32(SIGN)))
        slot += uint64(1)
        i = uint32(i + uint32(cuda.blockDim.x))


@kernel("msm_scatter", "ppppuuu", fields=_no_field, max_threads=256)
def scatter(digits, counts, starts, entries, n, c, blocks_per_window):
    """entries[starts[bucket] ...] = the scalars of each bucket, in any order, with SIGN. `counts` are zero
    afterwards.
    """
    window = uint32(uint32(cuda.blockIdx.x) // blocks_per_window)
    block = uint32(uint32(cuda.blockIdx.x) % blocks_per_window)
    i = uint32(block * uint32(cuda.blockDim.x) * uint32(RUN) + uint32(cuda.threadIdx.x))
    first_bucket = uint32(window << (c - uint32(1)))
    base = uint64(window) * uint64(n)
    current, first = uint32(0), i
    for _ in range(RUN):
        digit = uint32(0)
        if i < n:
            digit = uint32(digits[base + uint64(i)] & uint32(SIGN - 1))
        if digit != current:
            if current:
                _place(digits, counts, starts, entries, base, n, uint32(first_bucket + current - uint32(1)), first, i)
            current, first = digit, i
        i = uint32(i + uint32(cuda.blockDim.x))
    if current:
        _place(digits, counts, starts, entries, base, n, uint32(first_bucket + current - uint32(1)), first, i)


@cuda.jit(device=True)
def _weight(count, slice_length):
    """The count, or (slice_length not 0) how many more slices than one so many entries make."""
    if slice_length and count:
        return uint32((count - uint32(1)) // slice_length)
    if slice_length:
        return uint32(0)
    return count


@kernel("msm_scan", "pppuu", fields=_no_field, max_threads=SCAN_THREADS)
def scan(counts, out, totals, n, slice_length):
    """Exclusive prefix sums of the counts, or of the further slices that they make, within each block's SCAN_THREADS
    * SCAN_ITEMS places, and each block's total. `out` may be `counts`. Hillis, Steele, "Data parallel algorithms"
    (CACM 29, 1986).
    """
    shared = cuda.shared.array(SCAN_THREADS, uint32)
    t = uint32(cuda.threadIdx.x)
    begin = uint32((uint32(cuda.blockIdx.x) * uint32(SCAN_THREADS) + t) * uint32(SCAN_ITEMS))
    end = uint32(min(uint32(begin + uint32(SCAN_ITEMS)), n))
    mine = uint32(0)
    i = begin
    while i < end:
        mine = uint32(mine + _weight(counts[i], slice_length))
        i = uint32(i + uint32(1))
    total = mine
    shared[t] = total
    reach = uint32(1)
    while reach < uint32(SCAN_THREADS):
        cuda.syncthreads()
        if t >= reach:
            total = uint32(total + shared[t - reach])
        cuda.syncthreads()
        shared[t] = total
        reach = uint32(reach << uint32(1))
    before = uint32(total - mine)
    i = begin
    while i < end:
        count = _weight(counts[i], slice_length)
        out[i] = before
        before = uint32(before + count)
        i = uint32(i + uint32(1))
    if t == uint32(SCAN_THREADS - 1):
        totals[uint32(cuda.blockIdx.x)] = total


@kernel("msm_scan_add", "ppu", fields=_no_field, max_threads=SCAN_THREADS)
def scan_add(out, totals, n):
    """Adds to every place the sum of all earlier blocks of `scan`: the prefix sums of its totals."""
    i = uint32(cuda.grid(1))
    if i < n:
        out[i] = uint32(out[i] + totals[uint32(i // uint32(SCAN_THREADS * SCAN_ITEMS))])


@cuda.jit(device=True)
def bucket_of(extra_starts, n_buckets, extra):
    """The bucket that a further slice belongs to: the last one whose further slices begin at or before it."""
    low, high = uint32(0), n_buckets
    while high - low > uint32(1):
        middle = uint32((low + high) >> uint32(1))
        if extra_starts[middle] <= extra:
            low = middle
        else:
            high = middle
    return low


@cuda.jit(device=True)
def _slice(starts, extra_starts, n_buckets, number):
    """Begin and end, among the entries, of a slice: a bucket is cut evenly.

    The first slice of a bucket has the bucket's number; the further ones of all buckets follow, in order.
    """
    bucket, k = number, uint64(0)
    if number >= n_buckets:
        extra = uint32(number - n_buckets)
        bucket = bucket_of(extra_starts, n_buckets, extra)
        k = uint64(extra - extra_starts[bucket]) + uint64(1)
    pieces = uint64(extra_starts[bucket + uint32(1)] - extra_starts[bucket]) + uint64(1)
    begin, length = uint64(starts[bucket]), uint64(starts[bucket + uint32(1)] - starts[bucket])
    return uint32(begin + length * k // pieces), uint32(begin + length * (k + uint64(1)) // pieces)


@kernel("msm_lengths", "pppuu", fields=_no_field, max_threads=256)
def lengths(starts, extra_starts, classes, n_buckets, slice_length):
    """classes[slice_length - length] += 1 for every slice that is not empty."""
    number = uint32(cuda.grid(1))
    if number < n_buckets + extra_starts[n_buckets]:
        begin, end = _slice(starts, extra_starts, n_buckets, number)
        if begin < end:
            atomic_add(classes, uint32(slice_length - (end - begin)), uint32(1))


@kernel("msm_order", "ppppuu", fields=_no_field, max_threads=256)
def order(starts, extra_starts, classes, tasks, n_buckets, slice_length):
    """tasks[...] = (slice, begin, end), the longest first; `classes` are the prefix sums of what `lengths` counted."""
    number = uint32(cuda.grid(1))
    if number < n_buckets + extra_starts[n_buckets]:
        begin, end = _slice(starts, extra_starts, n_buckets, number)
        if begin < end:
            task = atomic_add(classes, uint32(slice_length - (end - begin)), uint32(1))
            tasks[uint32(3) * task] = number
            tasks[uint32(3) * task + uint32(1)] = begin
            tasks[uint32(3) * task + uint32(2)] = end
