"""Transforms on a GPU, in place and without bit reversal, and the element by element products around them.

Decimation in frequency (Gentleman, Sande) takes values in natural order to coefficients in bit-reversed order;
decimation in time (Cooley, Tukey) takes those to values in natural order. A pass does several steps at once on tiles
of 2^10 elements in shared memory: a tile is `2^steps` rows, 2^low apart, of neighbours. Inside a tile an element's
place is its address with the bits that all of the tile share left out, so that neighbours in memory stay neighbours.
`gpu.ntt.launch` says what the tables hold and makes the passes.
"""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from gpu.cuda.registry import kernel
from gpu.curve.params import Curve
from gpu.field.cuda import (
    FieldType,
    add,
    field_type,
    from_montgomery,
    load,
    load_tile,
    mul,
    one,
    store,
    store_tile,
    sub,
)

uint32, uint64 = types.uint32, types.uint64

_TILE = 10
_WORDS = 8  # limbs of an element of either scalar field
_SHARED = _WORDS << _TILE


def _scalars(curve: Curve) -> list[FieldType]:
    return [field_type(curve.fr)]


@cuda.jit(device=True)
def _spread(pair, bit):
    """The place, in a tile, of the first element of a pair: the pair's number with a zero put in at `bit`."""
    below = pair & ((uint32(1) << bit) - uint32(1))
    return uint32(((pair ^ below) << uint32(1)) | below)


@cuda.jit(device=True)
def _slot(place):
    """Where a place lies in shared memory: flips the bank with bit 5, so that pairs of any distance meet no bank
    twice.
    """
    return uint32(place ^ ((uint32(0) - ((place >> uint32(5)) & uint32(1))) & uint32(31)))


@cuda.jit(device=True)
def _address(place, tile, low, steps, column_bits):
    """The index of the element at `place` of a tile."""
    near = min(low, column_bits)
    beside = place & ((uint32(1) << near) - uint32(1))
    row = (place >> near) & ((uint32(1) << steps) - uint32(1))
    above = place >> (near + steps)
    inner = tile & ((uint32(1) << (low - near)) - uint32(1))
    outer = ((tile >> (low - near)) << (column_bits - near)) | above
    return uint32((outer << (low + steps)) | (row << low) | (inner << near) | beside)


@kernel("ntt_dif", "pppuuu", fields=_scalars, max_threads=512, min_blocks=2)
def ntt_dif(F, x, table, scale, log_n, low, steps):
    """`steps` steps of decimation in frequency with the inverse root; the lowest pass multiplies by scale[0] at its
    end.
    """
    shared = cuda.shared.array(_SHARED, uint32)
    pair, tile = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
    columns = uint32(min(uint32(_TILE), log_n) - steps)
    bit = uint32(min(low, columns) + steps - uint32(1))
    place = _spread(pair, bit)
    other = uint32(place | (uint32(1) << bit))
    at = _address(place, tile, low, steps, columns)
    a, b = load(F, x, at), load(F, x, _address(other, tile, low, steps, columns))
    level = uint32(low + steps)
    while True:
        level = uint32(level - uint32(1))  # the halves of this step are 2^level apart
        if level == uint32(0):
            a, b = mul(F, add(F, a, b), load(F, scale, uint32(0))), mul(F, sub(F, a, b), load(F, scale, uint32(0)))
            break
        power = uint32((at & ((uint32(1) << level) - uint32(1))) << (log_n - level))
        # The table's w^(n-e) is minus w^-e, which turns the difference round.
        a, b = add(F, a, b), mul(F, sub(F, b, a), load(F, table, uint32((uint32(1) << log_n) - power)))
        if level == low:
            break
        store_tile(F, shared, _slot(place), 1 << _TILE, a)
        store_tile(F, shared, _slot(other), 1 << _TILE, b)
        cuda.syncthreads()
        # A thread reads the pair that it will write next, so one barrier a step is enough.
        bit = uint32(bit - uint32(1))
        place = _spread(pair, bit)
        other = uint32(place | (uint32(1) << bit))
        at = _address(place, tile, low, steps, columns)
        a, b = load_tile(F, shared, _slot(place), 1 << _TILE), load_tile(F, shared, _slot(other), 1 << _TILE)
    store(F, x, at, a)
    store(F, x, _address(other, tile, low, steps, columns), b)


@kernel("ntt_dit", "ppuuu", fields=_scalars, max_threads=512, min_blocks=2)
def ntt_dit(F, x, table, log_n, low, steps):
    """`steps` steps of decimation in time whose twiddles are the odd powers of w: values come out on the odd coset."""
    shared = cuda.shared.array(_SHARED, uint32)
    pair, tile = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
    columns = uint32(min(uint32(_TILE), log_n) - steps)
    bit = uint32(min(low, columns))
    place = _spread(pair, bit)
    other = uint32(place | (uint32(1) << bit))
    at = _address(place, tile, low, steps, columns)
    a, b = load(F, x, at), load(F, x, _address(other, tile, low, steps, columns))
    level = low
    while True:
        # The values of a polynomial of degree below 2^(level+1), at powers of w^(n/2^level) times w^(n/2^(level+1)).
        power = uint32((at & ((uint32(1) << level) - uint32(1))) << uint32(1) | uint32(1))
        odd = mul(F, b, load(F, table, uint32(power << (log_n - level - uint32(1)))))
        a, b = add(F, a, odd), sub(F, a, odd)
        level = uint32(level + uint32(1))
        if level == low + steps:
            break
        store_tile(F, shared, _slot(place), 1 << _TILE, a)
        store_tile(F, shared, _slot(other), 1 << _TILE, b)
        cuda.syncthreads()
        bit = uint32(bit + uint32(1))
        place = _spread(pair, bit)
        other = uint32(place | (uint32(1) << bit))
        at = _address(place, tile, low, steps, columns)
        a, b = load_tile(F, shared, _slot(place), 1 << _TILE), load_tile(F, shared, _slot(other), 1 << _TILE)
    store(F, x, at, a)
    store(F, x, _address(other, tile, low, steps, columns), b)


@kernel("ntt_powers", "ppuu", fields=_scalars, max_threads=256)
def ntt_powers(F, out, squares, stride, n):
    """out[i] = w^i for i < n, with squares[j] = w^(2^j); thread t fills every 2^stride-th place from t on."""
    t = uint32(cuda.grid(1))
    if t >= uint32(1) << stride:
        return
    value = one(F)
    for bit in range(stride):
        if (t >> uint32(bit)) & uint32(1):
            value = mul(F, value, load(F, squares, uint32(bit)))
    step = load(F, squares, stride)
    for i in range(t, n, uint32(1) << stride):
        store(F, out, i, value)
        value = mul(F, value, step)


@kernel("multiply", "pppu", fields=_scalars, max_threads=256)
def multiply(F, out, a, b, n):
    """out[i] = a[i] * b[i]."""
    i = uint32(cuda.grid(1))
    if i < n:
        store(F, out, i, mul(F, load(F, a, i), load(F, b, i)))


@kernel("quotient", "pppu", fields=_scalars, max_threads=256)
def quotient(F, a, b, c, n):
    """a[i] = a[i] * b[i] - c[i], out of Montgomery form."""
    i = uint32(cuda.grid(1))
    if i < n:
        store(F, a, i, from_montgomery(F, sub(F, mul(F, load(F, a, i), load(F, b, i)), load(F, c, i))))
