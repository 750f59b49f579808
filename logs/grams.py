"""What a chunk may hold, in 4 KiB: a bitmap of the hashes of all its three-byte sequences.

A text can only be in a chunk if all its three-byte sequences are, so most chunks are ruled out without reading them,
for any part of a word as well as for words. ASCII letters count as lower-case. A text of fewer than three bytes rules
out nothing.
(Trigram indexes: Cox, Regular Expression Matching with a Trigram Index, 2012.)
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

BITS = 1 << 15
BYTES = BITS // 8
DENSE = 16 * 1024  # bytes of a chunk from which on compressing its bitmap is not worth the time

BLOCK = 16 * 1024
"""Bytes hashed at once. The arrays then stay in the cache, and below the size from which on malloc asks the kernel for
fresh pages each time, which took three quarters of the time."""

Bitmap = npt.NDArray[np.uint8]


def _hashes(data: bytes) -> npt.NDArray[np.uint32]:
    """One hash for each three-byte sequence of `data`, which has at least one."""
    raw = np.frombuffer(data, dtype=np.uint8).astype(np.uint32)
    hashes = raw[:-2] << np.uint32(8)
    hashes |= raw[1:-1]
    hashes <<= np.uint32(8)
    hashes |= raw[2:]
    hashes *= np.uint32(2654435761)  # Knuth's multiplicative hash
    hashes >>= np.uint32(17)
    return hashes


def bitmap(raw: bytes) -> bytes:
    """The bitmap of a chunk's bytes."""
    seen = np.zeros(BITS, dtype=np.bool_)
    lowered = raw.lower()
    for at in range(0, len(lowered) - 2, BLOCK):
        seen[_hashes(lowered[at : at + BLOCK + 2]).astype(np.intp)] = True
    return np.packbits(seen).tobytes()


def packed(raw: bytes) -> bytes:
    """The bitmap as it is kept: that of a small chunk is nearly empty, and shrinks to a few bytes."""
    bits = bitmap(raw)
    return bits if len(raw) >= DENSE else zlib.compress(bits, 1)


def unpacked(kept: bytes) -> bytes:
    """The bitmap of what `packed` gave."""
    return kept if len(kept) == BYTES else zlib.decompress(kept)


def needed(text: bytes) -> npt.NDArray[np.uint32]:
    """The bits that a chunk with `text` in it has; none for a text of fewer than three bytes."""
    return np.unique(_hashes(text.lower())) if len(text) >= 3 else np.zeros(0, dtype=np.uint32)


def may_hold(bitmaps: Bitmap, bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """For each row of `bitmaps` (n x 4096 bytes): could it hold a text that needs `bits`?"""
    columns = bitmaps[:, bits >> np.uint32(3)] >> (np.uint32(7) - (bits & np.uint32(7))).astype(np.uint8)
    return np.asarray((columns & np.uint8(1)).all(axis=1), dtype=np.bool_)
