"""Arrays of elements on the host: aligned memory, and Python ints in and out of the form that kernels work on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.field.kinds import DIGIT_BITS, LANES, KernelField

_LINE = 64


def aligned(words: int) -> np.ndarray:
    """Zeroed uint64, starting at a cache line: numpy's own arrays start 16 bytes into one, and every load of 64
    bytes would touch two.
    """
    raw = np.zeros(8 * words + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + 8 * words].view(np.uint64)


def elements(kind: KernelField, count: int) -> np.ndarray:
    """Room for `count` elements, in whole blocks: zeros."""
    return aligned(-(-count // kind.lanes) * kind.words)


def rows(kind: KernelField, count: int) -> np.ndarray:
    """Room for `count` rows: zeros."""
    return aligned(count * kind.row_words)


def encode(kind: KernelField, values: Sequence[int]) -> np.ndarray:
    """Coefficients (`degree` ints an element, below 2^(bits of the limbs), no Montgomery factor) as elements; missing
    lanes of the last block are zero.
    """
    if kind.lanes == 1:
        out = aligned(len(values) * kind.limbs)
        raw = b"".join(value.to_bytes(8 * kind.limbs, "little") for value in values)
        out[:] = np.frombuffer(raw, np.uint64)
        return out
    count = len(values) // kind.degree
    out = elements(kind, count)
    blocks = out.reshape(-1, kind.degree, kind.limbs, LANES)
    mask = (1 << DIGIT_BITS) - 1
    for i, value in enumerate(values):
        element, c = divmod(i, kind.degree)
        for j in range(kind.limbs):
            blocks[element // LANES, c, j, element % LANES] = value >> (DIGIT_BITS * j) & mask
    return out


def decode(kind: KernelField, array: np.ndarray) -> list[int]:
    """The reverse of `encode`, for whole arrays: all lanes of all blocks."""
    if kind.lanes == 1:
        raw, n = array.tobytes(), 8 * kind.limbs
        return [int.from_bytes(raw[i : i + n], "little") for i in range(0, len(raw), n)]
    blocks = array.reshape(-1, kind.degree, kind.limbs, LANES).transpose(0, 3, 1, 2).reshape(-1, kind.limbs)
    return [sum(int(limb) << (DIGIT_BITS * j) for j, limb in enumerate(row)) for row in blocks]


def constant(kind: KernelField, value: int | Sequence[int]) -> np.ndarray:
    """One element, or a block with it in every lane, in Montgomery form. `value`: an int, or one a coefficient."""
    parts = [value, *[0] * (kind.degree - 1)] if isinstance(value, int) else list(value)
    return encode(kind, [part * kind.r % kind.field.modulus for part in parts] * kind.lanes)
