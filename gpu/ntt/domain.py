"""The evaluation domain of one size: its tables, and the one transform that Groth16 makes of it.

From values on the n-th roots of unity to values on snarkjs' odd coset, the 2n-th roots that are no n-th ones: down to
coefficients by a DIF transform with inverse roots, up by a DIT transform whose i-th twiddle of a stage on blocks of m
is the (2i + 1)-th power of the primitive 2m-th root. So the coset's shift costs nothing: the even and the odd
coefficients of a polynomial on odd 2m-th roots are polynomials on odd m-th roots.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from gpu.curve.params import Curve
from gpu.field import arrays
from gpu.field.kinds import LANES, kernel_field
from gpu.ntt import passes
from gpu.ntt.tables import Tables

_LANES_FROM = 64  # elements; a smaller transform has less than one block for each of the first stages
_INNER_LOG = {1: 10, LANES: 8}  # 2^10 elements are 32 KiB, 2^8 blocks 80 KiB: they stay in a core's own cache
_LEAST = 256  # butterflies in a slice; for fewer, handing over costs more than the work


class Domain:
    """The 2^k-th roots of unity of a curve's scalar field, and the odd coset.

    `lanes`: 8 for the vector back end, 1 for the scalar one, which sizes below 64 use in any case.
    """

    def __init__(self, curve: Curve, size: int, lanes: int = 1) -> None:
        self.size = size
        self.lanes = lanes if size >= _LANES_FROM else 1
        self.kind = kernel_field(curve.fr, lanes=self.lanes)
        self._log_n = size.bit_length() - 1
        r, root = curve.r, [curve.roots[k] for k in range(self._log_n + 2)]
        self._down = Tables(self.kind, size, lambda m: (1, pow(root[m.bit_length() - 1], -1, r)))
        self._up = Tables(self.kind, size, lambda m: (root[m.bit_length()], root[m.bit_length() - 1]))

    def to_odd_coset(self, x: np.ndarray, pool: Executor | None = None, threads: int = 1) -> None:
        """In place, in natural order: values on the domain (reduced words, whatever their Montgomery form) become
        values of the same polynomial on the odd coset. On the calling thread, or on `threads` of the pool, of which
        the caller must be none.
        """
        share, n = _Share(self.kind.marker, pool, threads), self.size
        if self.lanes == 1:
            self._stages(share, x)
            share(passes.finish_all, n, x, self._log_n)
            return
        blocks = arrays.elements(self.kind, n)
        share(passes.open_lanes, n >> 6, blocks, x, n, self._down.blocks, self._scratch, least=_LEAST >> 3)
        self._stages(share, blocks)
        rest = (x, blocks, n, self._log_n, self._up.blocks, self._scratch)
        share(passes.close_lanes, n >> 6, *rest, least=_LEAST >> 3)

    def quotient(self, a: np.ndarray, b: np.ndarray, pool: Executor | None = None, threads: int = 1) -> None:
        """In place of `a`, `b` used up: from values of two polynomials on the domain (Montgomery form) to the plain
        values of a b - c on the odd coset, where c is the polynomial with the values a b on the domain.
        """
        share, steps, c = _Share(self.kind.marker, pool, threads), self.size // self.lanes, np.empty_like(a)
        share(passes.multiply, steps, c, a, b, self.lanes, self._scratch)
        for x in (a, b, c):
            self.to_odd_coset(x, pool, threads)
        # With S the radix of the arithmetic and R that of the words, all three are x R, the product a b R^2 / S, as is
        # c, which was made in the same way. Times S^2 / R^2, divided by S: the plain value.
        p = self.kind.field.modulus
        ratio = self.kind.r * self.kind.field.r_inverse
        factor = arrays.encode(self.kind, [ratio * ratio % p] * self.lanes)
        share(passes.quotient, steps, a, b, c, factor, self.lanes, self._scratch)

    def _scratch(self) -> np.ndarray:
        return arrays.elements(self.kind, LANES * self.lanes)

    def _stages(self, share: _Share, x: np.ndarray) -> None:
        """All stages within lanes: two at a time over the whole array while the blocks are large, then everything
        else a block at a time, while it is in the cache.
        """
        n, down, up = self.size // self.lanes, self._down.rows, self._up.rows
        log_n = n.bit_length() - 1
        widths = range(log_n, _INNER_LOG[self.lanes], -2)
        for log_m in widths:
            share(passes.outer, n >> 2, x, log_m - 2, down, n, False)
        inner = widths[-1] - 2 if widths else log_n
        share(passes.inner, n >> inner, x, inner, down, up, n, least=1)
        for log_m in reversed(widths):
            share(passes.outer, n >> 2, x, log_m - 2, up, n, True)


class _Share:
    """Hands out slices of a kernel's range and waits for them."""

    def __init__(self, marker: tuple[int, ...], pool: Executor | None, threads: int) -> None:
        self._marker = marker
        self._pool = pool
        self._threads = threads if pool else 1

    def __call__(self, kernel: Callable[..., None], count: int, *args: Any, least: int = _LEAST) -> None:
        """kernel(marker, begin, end, *args) over the range of `count`; a callable argument makes each slice its own."""

        def run(begin: int, end: int) -> None:
            kernel(self._marker, begin, end, *(arg() if callable(arg) else arg for arg in args))

        slices = max(1, min(self._threads, count // least))
        if slices == 1 or self._pool is None:
            run(0, count)
            return
        edges = [count * i // slices for i in range(slices + 1)]
        parts = [self._pool.submit(run, *edge) for edge in pairwise(edges)]
        # Every part is awaited, also after a failed one: none may write to memory that its owner has given up.
        for error in [part.exception() for part in parts]:
            if error:
                raise error


@lru_cache(maxsize=4)
def domain(curve: Curve, size: int, lanes: int = 1) -> Domain:
    """The domain of this size, made once: its tables cost as much as one transform."""
    return Domain(curve, size, lanes)
