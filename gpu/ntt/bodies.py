"""Butterflies as LLVM functions, for one element and for blocks of eight: Gentleman-Sande (DIF) and Cooley-Tukey
(DIT), two stages at a time where possible, so that a pass over memory does the work of two.

A DIF stage on blocks of m takes (x, y) at distance m/2 to (x + y, (x - y) w[i]); a DIT stage to (x + y w[i],
x - y w[i]). Values in memory between the stages are below 2p (one lane) or as everywhere (eight lanes): `finish`
ends that.
"""

from __future__ import annotations

from typing import Any

from gpu.field import limbs
from gpu.field import vector as v
from gpu.field.bodies import load
from gpu.field.kinds import LANES
from gpu.field.limbs import I64
from gpu.field.lowering import ROWS, Machine, Operation


def _arith(m: Machine) -> Any:
    """The arithmetic of the stages: lazily reduced in either back end."""
    return limbs.Lazy(m.builder, m.kind) if m.kind.lanes == 1 else m.arith


def _constant(m: Machine, a: Any, row: Any) -> Any:
    """An element of a table of rows as a second factor, in every lane."""
    if m.kind.lanes == 1:
        return row
    b = m.builder
    return a.stored([v.spread(b, b.load(b.gep(row, [I64(i)]))) for i in range(m.kind.limbs)])


def _dif4(m: Machine, places: tuple[Any, ...], first: Any, second: Any, half: Any) -> None:
    """Stages m and m/2. Twiddles w[i] and w[i + m/4] of the one, w[i] of the other."""
    a = _arith(m)
    x0, x1, x2, x3 = (a.load(place)[0] for place in places)
    a.store(places[0], [a.add(a.add(x0, x2), a.add(x1, x3))])
    a.store(places[1], [a.mul(a.sub(a.add(x0, x2), a.add(x1, x3)), half)])
    y2, y3 = a.mul(a.sub(x0, x2), first), a.mul(a.sub(x1, x3), second)
    a.store(places[2], [a.add(y2, y3)])
    a.store(places[3], [a.mul(a.sub(y2, y3), half)])


def _dit4(m: Machine, places: tuple[Any, ...], first: Any, second: Any, half: Any) -> None:
    """Stages m/2 and m: the reverse order of `_dif4`."""
    a = _arith(m)
    x0, x1, x2, x3 = (a.load(place)[0] for place in places)
    x1, x3 = a.mul(x1, half), a.mul(x3, half)
    y2, y3 = a.mul(a.add(x2, x3), first), a.mul(a.sub(x2, x3), second)
    a.store(places[0], [a.add(a.add(x0, x1), y2)])
    a.store(places[2], [a.sub(a.add(x0, x1), y2)])
    a.store(places[1], [a.add(a.sub(x0, x1), y3)])
    a.store(places[3], [a.sub(a.sub(x0, x1), y3)])


def _dif4_rows(m: Machine, *args: Any) -> None:
    a = _arith(m)
    _dif4(m, args[:4], *(_constant(m, a, row) for row in args[4:]))


def _dit4_rows(m: Machine, *args: Any) -> None:
    a = _arith(m)
    _dit4(m, args[:4], *(_constant(m, a, row) for row in args[4:]))


def _dif4_blocks(m: Machine, *args: Any) -> None:
    _dif4(m, args[:4], *(load(m, place)[0] for place in args[4:]))


def _dit4_blocks(m: Machine, *args: Any) -> None:
    _dit4(m, args[:4], *(load(m, place)[0] for place in args[4:]))


def _dif4_last(m: Machine, p0: Any, p1: Any, p2: Any, p3: Any, fourth_root: Any) -> None:
    """Stages 4 and 2, whose twiddles are 1 but for one."""
    a = _arith(m)
    x0, x1, x2, x3 = (a.load(place)[0] for place in (p0, p1, p2, p3))
    y3 = a.mul(a.sub(x1, x3), _constant(m, a, fourth_root))
    a.store(p0, [a.add(a.add(x0, x2), a.add(x1, x3))])
    a.store(p1, [a.sub(a.add(x0, x2), a.add(x1, x3))])
    a.store(p2, [a.add(a.sub(x0, x2), y3)])
    a.store(p3, [a.sub(a.sub(x0, x2), y3)])


def _dif2(m: Machine, x: Any, y: Any, twiddle: Any) -> None:
    a = _arith(m)
    (left,), (right,) = a.load(x), a.load(y)
    a.store(x, [a.add(left, right)])
    a.store(y, [a.mul(a.sub(left, right), twiddle(a))])


def _dit2(m: Machine, x: Any, y: Any, twiddle: Any) -> None:
    a = _arith(m)
    (left,), (right,) = a.load(x), a.load(y)
    right = a.mul(right, twiddle(a))
    a.store(x, [a.add(left, right)])
    a.store(y, [a.sub(left, right)])


def _dif2_rows(m: Machine, x: Any, y: Any, row: Any) -> None:
    _dif2(m, x, y, lambda a: _constant(m, a, row))


def _dit2_rows(m: Machine, x: Any, y: Any, row: Any) -> None:
    _dit2(m, x, y, lambda a: _constant(m, a, row))


def _dif2_blocks(m: Machine, x: Any, y: Any, place: Any) -> None:
    _dif2(m, x, y, lambda a: load(m, place)[0])


def _dit2_blocks(m: Machine, x: Any, y: Any, place: Any) -> None:
    _dit2(m, x, y, lambda a: load(m, place)[0])


def _finish(m: Machine, target: Any, source: Any, log_n: Any) -> None:
    """target = source / 2^log_n, as values are everywhere else."""
    a = _arith(m)
    m.arith.store(target, [a.divide(a.load(source)[0], log_n)])


def _transpose(m: Machine, target: Any, source: Any) -> None:
    """Eight blocks to eight: lane i of block j becomes lane j of block i."""
    n = m.kind.limbs
    for limb in range(n):
        columns = v.transpose(m.builder, [v.load(m.builder, m.element(source, i), limb) for i in range(LANES)])
        for i, column in enumerate(columns):
            v.store(m.builder, column, m.element(target, i), limb)


DIF4 = Operation("ntt_dif4", _dif4_rows, (1, 1, 1, 1, ROWS, ROWS, ROWS))
DIT4 = Operation("ntt_dit4", _dit4_rows, (1, 1, 1, 1, ROWS, ROWS, ROWS))
DIF2 = Operation("ntt_dif2", _dif2_rows, (1, 1, ROWS))
DIT2 = Operation("ntt_dit2", _dit2_rows, (1, 1, ROWS))
DIF4_LAST = Operation("ntt_dif4_last", _dif4_last, (1, 1, 1, 1, ROWS))
DIF4_BLOCKS = Operation("ntt_dif4_blocks", _dif4_blocks, (1, 1, 1, 1, 1, 1, 1))
DIT4_BLOCKS = Operation("ntt_dit4_blocks", _dit4_blocks, (1, 1, 1, 1, 1, 1, 1))
DIF2_BLOCKS = Operation("ntt_dif2_blocks", _dif2_blocks, (1, 1, 1))
DIT2_BLOCKS = Operation("ntt_dit2_blocks", _dit2_blocks, (1, 1, 1))
FINISH = Operation("ntt_finish", _finish, (1, 1), integers=1)
TRANSPOSE = Operation("ntt_transpose", _transpose, (1, 1))
