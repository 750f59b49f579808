"""Kernels that only multiply: for the throughput figures of the check on a GPU."""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from gpu.cuda.registry import kernel
from gpu.field.cuda import field_type, load, mul, store


@kernel("fr_mul_chain", "ppu", fields=lambda curve: [field_type(curve.fr)], max_threads=256)
@kernel("fp_mul_chain", "ppu", fields=lambda curve: [field_type(curve.fp)], max_threads=256)
@kernel("fp2_mul_chain", "ppu", fields=lambda curve: [field_type(curve.fp, 2)], max_threads=256)
def mul_chain(F, out, a, rounds):
    """out[i] = a[i]^(rounds + 1) in Montgomery form, one element a thread: each product waits for the one before."""
    i = cuda.grid(1)
    x = load(F, a, i)
    total = x
    for _ in range(types.uint32(0), rounds):
        total = mul(F, total, x)
    store(F, out, i, total)
