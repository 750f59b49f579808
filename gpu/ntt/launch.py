"""Transforms on a device: the tables of one size, and how many passes and blocks each operation takes.

All elements are in Montgomery form, 32 bytes each, unless said otherwise. The kernels are in `gpu.ntt.cuda`; nothing
here needs numba.
"""

from __future__ import annotations

import numpy as np

from gpu.cuda.device import Buffer, Device, Span
from gpu.curve.params import Curve

ELEMENT = 32
TILE = 10
"""A block transforms 2^TILE elements in shared memory (32 KB)."""

_MAX_STEPS = 8  # of a pass that is not the lowest: a block then reads four neighbours, 128 bytes, from each row
_BLOCK = 256
_POWERS_PER_THREAD = 32

Place = Buffer | Span


class DeviceDomain:
    """The 2^k-th roots of unity of a curve's scalar field, with snarkjs' odd coset, as `gpu.ntt.domain.Domain`.

    One table serves both directions: the powers 0..n of the 2n-th root w. The transform down needs w^-2j = -w^(n-2j),
    and the transform up to the odd coset evaluates at odd powers of w, so that its twiddles contain the coset's
    shift. It is a whole table (512 MiB for 2^24), since twiddles put together from two smaller ones would cost a
    multiplication each, a quarter of the transform's time.
    """

    def __init__(self, device: Device, curve: Curve, size: int) -> None:
        """OutOfDeviceMemory when `n_bytes(curve, size)` is not free."""
        self.size = size
        self._log_n = size.bit_length() - 1
        if size < 2 or size & (size - 1) or self._log_n >= curve.two_adicity:
            raise ValueError(f"{size} is no domain size of {curve.name}")
        self._device = device
        self._curve = curve.name
        self._passes = passes(self._log_n)
        self._held: list[Buffer] = []
        try:
            self._table, self._constants = self._fill(constants=_constants(curve, size))
        except BaseException:
            self.free()
            raise

    def to_odd_coset(self, x: Place) -> None:
        """In place: values on the domain become values of the same polynomial on the odd coset, in natural order."""
        grid, block = max(1, self.size >> TILE), 1 << min(TILE, self._log_n) - 1
        scale = self._constants.at(self._log_n * ELEMENT + ELEMENT)
        for low, steps in reversed(self._passes):
            self._device.launch(f"{self._curve}_ntt_dif", grid, block, x, self._table, scale, self._log_n, low, steps)
        for low, steps in self._passes:
            self._device.launch(f"{self._curve}_ntt_dit", grid, block, x, self._table, self._log_n, low, steps)

    def free(self) -> None:
        for buffer in self._held:
            buffer.free()

    def _fill(self, constants: np.ndarray) -> tuple[Buffer, Buffer]:
        """The table of powers, and what it is made from."""
        for n_bytes in ((self.size + 1) * ELEMENT, constants.nbytes):
            self._held.append(self._device.alloc(n_bytes))
        table, device_constants = self._held
        self._device.upload(device_constants, constants)
        stride = _stride(self.size)
        grid = _grid(1 << stride)
        self._device.launch(f"{self._curve}_ntt_powers", *grid, table, device_constants, stride, self.size + 1)
        return table, device_constants


def n_bytes(curve: Curve, size: int) -> int:
    """Device memory that a `DeviceDomain` holds, apart from what it transforms."""
    return (size + 1) * ELEMENT + _constants(curve, size).nbytes


def passes(log_n: int) -> list[tuple[int, int]]:
    """(low, steps) of each pass, lowest first: it does the butterflies whose halves are 2^low .. 2^(low+steps-1) apart.

    The lowest pass works on neighbours and may do TILE steps; the others share the rest evenly, which gives each the
    widest rows.
    """
    lowest = min(log_n, TILE)
    rest = log_n - lowest
    others = -(-rest // _MAX_STEPS)
    if others:
        lowest = max(-(-log_n // (others + 1)), log_n - others * _MAX_STEPS)
        rest = log_n - lowest
    out, low = [(0, lowest)], lowest
    for k in range(others):
        steps = (rest + k) // others
        out.append((low, steps))
        low += steps
    return out


def multiply(device: Device, curve: Curve, out: Place, a: Place, b: Place, n: int) -> None:
    """out[i] = a[i] * b[i]; `out` may be `a` or `b`."""
    device.launch(f"{curve.name}_multiply", *_grid(n), out, a, b, n)


def quotient(device: Device, curve: Curve, a: Place, b: Place, c: Place, n: int) -> None:
    """a[i] = a[i] * b[i] - c[i], out of Montgomery form."""
    device.launch(f"{curve.name}_quotient", *_grid(n), a, b, c, n)


def _grid(n: int) -> tuple[int, int]:
    """Blocks and threads for one thread an element."""
    return max(1, -(-n // _BLOCK)), _BLOCK


def _stride(size: int) -> int:
    """log2 of the threads that fill the table."""
    return max(0, (size // _POWERS_PER_THREAD).bit_length() - 1)


def _constants(curve: Curve, size: int) -> np.ndarray:
    """w^(2^i) for i = 0 .. log_n (w the 2n-th root), then 1/n; Montgomery form."""
    log_n = size.bit_length() - 1
    values = [curve.roots[log_n + 1 - i] for i in range(log_n + 1)] + [pow(size, -1, curve.r)]
    raw = b"".join(curve.fr.to_montgomery(value).to_bytes(ELEMENT, "little") for value in values)
    return np.frombuffer(raw, np.uint8)
