"""Memory shared with a GPU process: the vectors of a proof are written once and read there without another copy."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Sequence

import numpy as np

from gpu.errors import OutOfMemory


class Segment:
    """Anonymous shared memory of `n_bytes`, which lives as long as somebody has it mapped or holds its descriptor."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self.descriptor = os.memfd_create("provefleet-vectors", os.MFD_CLOEXEC)
        try:
            # Taken at once: what is only promised ends the process (SIGBUS) when the promise can't be kept.
            os.posix_fallocate(self.descriptor, 0, n_bytes)
            self._map = mmap.mmap(self.descriptor, n_bytes)
        except OSError as error:
            os.close(self.descriptor)
            raise OutOfMemory(
                f"{n_bytes >> 20} MiB of memory to share with the GPU process can't be had: {error.strerror}; "
                "use a machine with more memory"
            ) from error

    def write(self, vectors: Sequence[np.ndarray]) -> None:
        """One after another, from the start."""
        at = 0
        for vector in vectors:
            np.frombuffer(self._map, np.uint8, vector.nbytes, at)[:] = vector.reshape(-1).view(np.uint8)
            at += vector.nbytes

    def close(self) -> None:
        self._map.close()
        os.close(self.descriptor)


class Segments:
    """Segments to use again, `limit` at most: the kernel clears fresh memory, which costs as much as writing it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._free: list[Segment] = []

    def take(self, n_bytes: int) -> Segment:
        """OutOfMemory when there is none of that size to be had."""
        with self._lock:
            for segment in self._free:
                if n_bytes <= segment.n_bytes <= 2 * n_bytes:
                    self._free.remove(segment)
                    return segment
            unfit, self._free = self._free, []
        for segment in unfit:
            segment.close()
        return Segment(n_bytes)

    def give_back(self, segment: Segment) -> None:
        with self._lock:
            if len(self._free) < self._limit:
                self._free.append(segment)
                return
        segment.close()

    def close(self) -> None:
        with self._lock:
            for segment in self._free:
                segment.close()
            self._free.clear()
            self._limit = 0
