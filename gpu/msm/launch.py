"""A multi-scalar multiplication on a device: scratch memory made once, and the order of its kernels.

Bernstein, Doumen, Lange, Oosterwijk, "Faster batch forgery identification" (INDOCRYPT 2012), section 4, in parallel:
digits are sorted by bucket, buckets are cut into slices, each slice, then each bucket, then each window is added up.
The kernels are in `gpu.msm.sorting` and `gpu.msm.cuda`; nothing here needs numba.
"""

from __future__ import annotations

import numpy as np

from gpu.cuda.device import Buffer, Device, Span
from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.msm import schedule as schedules
from gpu.msm.horner import Sum, horner
from gpu.msm.schedule import DEFAULT_ENTRIES, RUN, SCAN_ITEMS, SCAN_THREADS, Schedule

SCALAR_BYTES = 32
_BLOCK = 256
_ACCUMULATE_BLOCK = 128
_REPAIR_BLOCK = 64
_BUCKET_BLOCK = 128

Place = Buffer | Span


def n_bytes(group: KernelGroup, n: int, entries: int = DEFAULT_ENTRIES, c: int | None = None) -> int:
    """Device memory that `DeviceMsm` of the same arguments holds, apart from points and scalars."""
    plan = schedules.best(group.curve.r, max(1, min(n, entries)), entries, c)
    return sum(plan.sizes(2 * group.point_bytes).values())


class DeviceMsm:
    """Sums of up to `n_max` multiples in one go, of any number in several.

    `entries` bounds the scratch memory: how many scalars times windows are sorted at once. A smaller one makes more
    rounds of fewer windows, and below `n_max` ranges of so many points. `c` is a window width (2 to MAX_C) to try
    instead of the one that seems best.
    """

    def __init__(
        self, device: Device, group: KernelGroup, n_max: int, entries: int = DEFAULT_ENTRIES, c: int | None = None
    ) -> None:
        """OutOfDeviceMemory when `n_bytes` are not free; nothing is left allocated then."""
        self._device = device
        self._group = group
        self._entries, self._c = entries, c
        self._range = max(1, min(n_max, entries))
        self._sum_bytes = 2 * group.point_bytes
        self._prefix = f"{group.curve.name}_g{group.kind.degree}"
        self._made_for = schedules.best(group.curve.r, self._range, entries, c)
        self._at: dict[str, Buffer] = {}
        try:
            for name, size in self._made_for.sizes(self._sum_bytes).items():
                self._at[name] = device.alloc(size)
        except BaseException:
            self.free()
            raise

    def run(self, points: Place, scalars: Place, n: int) -> Point:
        """The sum of scalars[i] * points[i]. `points`: affine, in `.zkey` form; `scalars`: 32 bytes each, plain,
        below r.
        """
        add, total, before = self._group.reference.add, None, None
        for begin in range(0, n, self._range):
            count = min(self._range, n - begin)
            running = self.start(points.at(begin * self._group.point_bytes), scalars.at(begin * SCALAR_BYTES), count)
            if before is not None:
                total = add(total, before.point())
            running.wait()
            before = running
        return total if before is None else add(total, before.point())

    def start(self, points: Place, scalars: Place, n: int) -> Running:
        """The same for 1 to `n_max` points, without waiting: the GPU works while the caller ends an earlier sum."""
        if not 0 < n <= self._range:
            raise ValueError(f"{n} points, where 1 to {self._range} can be summed at once")
        plan = schedules.fitting(self._group.curve.r, self._sum_bytes, n, self._entries, self._made_for, self._c)
        self._device.upload(self._at["constants"], _constants(self._group.curve.r, plan))
        for first in range(0, plan.n_windows, plan.per_round):
            count = min(plan.per_round, plan.n_windows - first)
            self._sort(plan, scalars, first, count)
            self._add_up(plan, points, first, count)
        return Running(self._device, self._group, plan, self._at["windows"])

    def free(self) -> None:
        """Gives the scratch memory back."""
        for buffer in self._at.values():
            buffer.free()

    def _sort(self, plan: Schedule, scalars: Place, first: int, count: int) -> None:
        """Entries, slices and tasks of `count` windows from `first` on."""
        device, at, curve = self._device, self._at, self._group.curve.name
        n, c, length = plan.n, plan.c, plan.slice_length
        buckets = count * plan.buckets_per_window
        for name, words in (("counts", buckets + 1), ("classes", length + 1), ("n_exceptions", 1)):
            device.zero(at[name], 4 * words)
        device.launch(
            f"{curve}_msm_digits", -(-n // _BLOCK), _BLOCK, scalars, at["constants"], at["digits"], n, c, first, count
        )
        blocks = -(-n // (_BLOCK * RUN))
        device.launch(f"{curve}_msm_histogram", blocks * count, _BLOCK, at["digits"], at["counts"], n, c, blocks)
        self._scan(at["counts"], at["starts"], buckets + 1)
        self._scan(at["counts"], at["extra_starts"], buckets + 1, length)
        device.launch(
            f"{curve}_msm_scatter",
            blocks * count,
            _BLOCK,
            at["digits"],
            at["counts"],
            at["starts"],
            at["entries"],
            n,
            c,
            blocks,
        )
        slices = (-(-plan.max_slices // _BLOCK), _BLOCK, at["starts"], at["extra_starts"], at["classes"])
        device.launch(f"{curve}_msm_lengths", *slices, buckets, length)
        self._scan(at["classes"], at["classes"], length + 1)
        device.launch(f"{curve}_msm_order", *slices, at["tasks"], buckets, length)

    def _scan(self, source: Place, out: Place, n: int, slice_length: int = 0) -> None:
        """out[i] = the sum of source[k], or of the further slices that so many entries make, for k < i."""
        device, totals, curve = self._device, self._at["totals"], self._group.curve.name
        blocks = -(-n // (SCAN_THREADS * SCAN_ITEMS))
        device.launch(f"{curve}_msm_scan", blocks, SCAN_THREADS, source, out, totals, n, slice_length)
        if blocks > 1:
            device.launch(f"{curve}_msm_scan", 1, SCAN_THREADS, totals, totals, totals.at(4 * blocks), blocks, 0)
            device.launch(f"{curve}_msm_scan_add", -(-n // _BLOCK), _BLOCK, out, totals, n)

    def _add_up(self, plan: Schedule, points: Place, first: int, count: int) -> None:
        """The sums of `count` windows from `first` on."""
        device, at, prefix = self._device, self._at, self._prefix
        buckets, sms = count * plan.buckets_per_window, device.sm_count
        entries, tasks, sums, exceptions, n_exceptions = (
            at[name] for name in ("entries", "tasks", "sums", "exceptions", "n_exceptions")
        )
        device.zero(sums, buckets * self._sum_bytes)  # buckets without entries: infinity
        blocks = -(-plan.max_slices // _ACCUMULATE_BLOCK)
        # Once slices are in order, the class of empty ones says how many there are.
        found = (at["classes"], sums, exceptions, n_exceptions, plan.slice_length)
        device.launch(f"{prefix}_accumulate", blocks, _ACCUMULATE_BLOCK, points, entries, tasks, *found)
        device.launch(
            f"{prefix}_repair", 6 * sms, _REPAIR_BLOCK, points, entries, tasks, sums, exceptions, n_exceptions
        )
        stride = 1
        while stride <= plan.max_extra:
            blocks = -(-plan.max_extra // _BUCKET_BLOCK)
            device.launch(f"{prefix}_join", blocks, _BUCKET_BLOCK, sums, at["extra_starts"], buckets, stride)
            stride *= 4
        for level in range(plan.c - 1):
            n = (buckets >> (level + 1)) * (level + 1)
            device.launch(f"{prefix}_merge", -(-n // _BUCKET_BLOCK), _BUCKET_BLOCK, sums, level, n)
        out = at["windows"].at(first * self._sum_bytes)
        device.launch(f"{prefix}_windows", count, 1, sums, out, plan.c - 1, count)


class Running:
    """A sum that the GPU is at. `wait` comes before the next start of the same DeviceMsm, `point` any time after it."""

    def __init__(self, device: Device, group: KernelGroup, plan: Schedule, windows: Buffer) -> None:
        self._device, self._group, self._plan, self._windows = device, group, plan, windows
        self._raw: np.ndarray | None = None

    def wait(self) -> None:
        """Until the GPU has done its part: the sum of each window."""
        self._raw = self._device.download(self._windows, self._plan.n_windows * 2 * self._group.point_bytes)

    def point(self) -> Point:
        """The windows put together: some milliseconds of arithmetic on Python ints."""
        if self._raw is None:
            raise RuntimeError("a sum's point before its wait")
        width = self._group.point_bytes // 2
        values = [self._group.value(self._raw[i : i + width]) for i in range(0, len(self._raw), width)]
        sums: list[Sum] = [(values[i], values[i + 1], values[i + 2], values[i + 3]) for i in range(0, len(values), 4)]
        return horner(self._group.reference.field, sums, self._plan.c)


def _constants(order: int, plan: Schedule) -> np.ndarray:
    """Half the order, the number whose digits are all 2^(c-1), and that less the order mod 2^288: nine words each."""
    middle = schedules.middle(plan.c, plan.n_windows)
    raw = b"".join(value.to_bytes(36, "little") for value in (order // 2, middle, (middle - order) % (1 << 288)))
    return np.frombuffer(raw, np.uint8)
