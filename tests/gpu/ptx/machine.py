"""A PTX module compiled for this CPU, and launches of its kernels over host memory.

Blocks run one after the other, and in a block the threads, each up to its next barrier, in the order that is asked
for: a kernel that is right leaves the same bytes for every order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from tests.gpu.ptx.compiled import Program, program_of
from tests.gpu.ptx.lower import (
    BAD_ADDRESS,
    BAD_SIZE,
    BAD_TEXT,
    BLOCK,
    DONE,
    FAILED,
    LOCAL,
    LOCAL_END,
    SAVED,
    STATE,
    THREAD,
)

Order = Callable[[np.ndarray], np.ndarray]
"""From the numbers of the threads that may run to the order in which they do."""

Range = tuple[int, int]
"""Address and bytes."""

WARP = 32


class LaunchError(Exception):
    """A kernel did what a GPU would punish, or would not do the same way twice: the text says what."""


def ascending(threads: np.ndarray) -> np.ndarray:
    return threads


def shuffled(seed: int) -> Order:
    """Another order after every barrier."""
    rng = random.Random(seed)

    def order(threads: np.ndarray) -> np.ndarray:
        return np.array(rng.sample(threads.tolist(), len(threads)), np.int64)

    return order


class Module:
    """The kernels of one PTX text, which must be what NVVM writes: anything else is `Unsupported`."""

    def __init__(self, ptx_text: str) -> None:
        self._program: Program = program_of(ptx_text)
        self._variables = []
        for size, initial in self._program.variables:
            held = np.zeros(max(size, 1), np.uint8)
            held[: len(initial)] = np.frombuffer(initial, np.uint8)
            self._variables.append(held)

    @property
    def symbols(self) -> list[str]:
        return list(self._program.kernels)

    def launch(
        self,
        symbol: str,
        grid: int,
        block: int,
        args: Sequence[int],
        order: Order = ascending,
        memory: Sequence[Range] | None = None,
    ) -> None:
        """Runs a kernel with `args`: host addresses and 32-bit values, as the kernel's parameters are.

        `memory`: the only ranges that it may touch besides shared, local and constant memory; None: any.
        LaunchError for an access outside or not aligned to its size, for a barrier that not every living thread
        reaches, for a trap, for too many threads.
        """
        kernel = self._program.kernels[symbol]
        if kernel.max_threads is not None and block > kernel.max_threads:
            raise LaunchError(f"{symbol}: {block} threads a block, at most {kernel.max_threads} were compiled for")
        if len(args) != kernel.n_params:
            raise LaunchError(f"{symbol}: {len(args)} arguments, {kernel.n_params} parameters")
        params = np.array([arg & (1 << 64) - 1 for arg in args] or [0], np.uint64)
        shared = np.zeros(kernel.shared_bytes + 16, np.uint8)
        shared_at = (shared.ctypes.data + 15) & ~15
        ranges = [(0, (1 << 64) - 1)] if memory is None else [(at, at + n) for at, n in memory]
        ranges.append((shared_at, shared_at + kernel.shared_bytes))
        ranges += [(held.ctypes.data, held.ctypes.data + len(held)) for held in self._variables]
        table = np.array(ranges, np.uint64)
        head = [params.ctypes.data, shared_at, table.ctypes.data, len(ranges), block, grid, 0]
        launch = np.array(head + [held.ctypes.data for held in self._variables], np.uint64)
        threads = np.zeros((block, SAVED + kernel.n_saved), np.int64)
        local = np.zeros((block, (kernel.local_bytes + 15) // 16 * 16 + 16), np.uint8)
        for number in order(np.arange(grid, dtype=np.int64)).tolist():
            launch[BLOCK] = number
            shared[:] = 0xA5  # nothing is there until somebody writes it
            local[:] = 0x5A
            threads[:] = 0
            threads[:, THREAD] = np.arange(block)
            threads[:, LOCAL] = (local.ctypes.data + np.arange(block) * local.strides[0] + 15) & ~15
            threads[:, LOCAL_END] = threads[:, LOCAL] + kernel.local_bytes
            self._run_block(symbol, launch, threads, order)

    def _run_block(self, symbol: str, launch: np.ndarray, threads: np.ndarray, order: Order) -> None:
        kernel = self._program.kernels[symbol]
        runnable = np.arange(len(threads), dtype=np.int64)
        while len(runnable):
            sequence = np.ascontiguousarray(order(runnable), np.int64)
            kernel.run(launch.ctypes.data, threads.ctypes.data, threads.strides[0], sequence.ctypes.data, len(sequence))
            failed = np.flatnonzero(threads[:, STATE] == FAILED)
            if len(failed):
                raise LaunchError(self._reason(symbol, launch, threads[failed[0]]))
            runnable = self._released(symbol, threads[:, STATE])

    def _released(self, symbol: str, states: np.ndarray) -> np.ndarray:
        """The threads that go on: of each warp whose living threads wait for one another, or else of the block."""
        barriers = self._program.kernels[symbol].barriers
        living = np.flatnonzero(states != DONE)
        free = []
        for first in range(0, len(states), WARP):
            warp = living[(living >= first) & (living < first + WARP)]
            waits = set(states[warp].tolist())
            if len(waits) == 1 and barriers[waits.pop()].warp:
                free.append(warp)
        if free or not len(living):
            return np.concatenate(free) if free else living
        waits = set(states[living].tolist())
        if len(waits) != 1:
            texts = sorted({f"{barriers[number].text} (number {number})" for number in waits})
            raise LaunchError(f"{symbol}: threads of a block wait at different barriers: {', '.join(texts)}")
        return living

    def _reason(self, symbol: str, launch: np.ndarray, thread: np.ndarray) -> str:
        text = self._program.kernels[symbol].messages[int(thread[BAD_TEXT])]
        where = f"{symbol}: block {launch[BLOCK]}, thread {thread[THREAD]}: {text}"
        size, address = int(thread[BAD_SIZE]), int(thread[BAD_ADDRESS]) & (1 << 64) - 1
        if size == 0:
            return f"{where} was reached"
        if address % size:
            return f"{where}: address {address:#x} is not aligned to {size} bytes"
        return f"{where}: {size} bytes at {address:#x} are outside of every buffer"
