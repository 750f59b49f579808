"""Which of the CPU back ends to use: the vector one where this CPU and numba's settings allow it and it is seen to
calculate right, else the scalar one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import cache

import numpy as np

from gpu.errors import Refused
from gpu.field import arrays, isa
from gpu.field.compiled import kernel
from gpu.field.kinds import LANES, KernelField, kernel_field
from gpu.field.moves import from_words, gather_signed, to_rows, to_words
from gpu.field.operations import add, mul, sqr, sub
from gpu.field.params import Field
from gpu.field.tower import Fp, Fp2

_log = logging.getLogger(__name__)
_N_ANSWERS = 4


@kernel
def _probe(F, words, refs, rows, blocks, out):
    """For eight x at even places of `words` and eight y at odd ones: x y, x^2, x + y, and x - z for z = +-y."""
    from_words(F, blocks, 0, words, 0, 2)
    from_words(F, blocks, 1, words, 1, 2)
    to_rows(F, rows, 0, blocks, 1, 1)
    gather_signed(F, blocks, 2, rows, 0, refs, 0, 1)
    mul(F, blocks, 3, blocks, 0, blocks, 1)
    to_words(F, out, 0, blocks, 3, 1)
    sqr(F, blocks, 3, blocks, 0)
    to_words(F, out, 8, blocks, 3, 1)
    add(F, blocks, 3, blocks, 0, blocks, 1)
    to_words(F, out, 16, blocks, 3, 1)
    sub(F, blocks, 3, blocks, 0, blocks, 2)
    to_words(F, out, 24, blocks, 3, 1)


def check_request(wanted: str) -> None:
    """Refused, before any work, when `ifma` is asked for and this process can't have it."""
    missing = _missing()
    if wanted == "ifma" and missing:
        raise Refused(
            f"PROVEFLEET_PROVER_BACKEND=ifma: {missing}; set it to auto or scalar, or use a CPU with AVX-512 IFMA"
        )


def preferred(wanted: str) -> str:
    """The name of the back end that will be tried first: scalar or ifma. Refused as by `check_request`.

    An emulated vector back end is slow and has to be asked for.
    """
    check_request(wanted)
    if wanted == "ifma":
        return wanted
    return "scalar" if wanted == "scalar" or _missing() or isa.emulated() else "ifma"


def lanes(wanted: str, fields: Sequence[tuple[Field, int]]) -> int:
    """8 for the vector back end, 1 for the scalar one, for work in these fields (with their degrees).

    `wanted`: auto, scalar or ifma. A vector back end that fails its known answers is passed over under auto, with one
    line in the log. Refused when ifma is asked for and can't be had.
    """
    if preferred(wanted) == "scalar":
        return 1
    for field, degree in fields:
        wrong = _wrong_answers(kernel_field(field, degree, LANES))
        if not wrong:
            continue
        why = f"the vector back end calculates wrongly on this CPU ({wrong} of {field.name}, degree {degree})"
        if wanted == "ifma":
            raise Refused(f"PROVEFLEET_PROVER_BACKEND=ifma: {why}; set it to scalar and report this CPU")
        _log.warning("%s; using the scalar back end", why)
        return 1
    return LANES


def _missing() -> str | None:
    return isa.host_missing() or isa.vector_missing()


def expected(kind: KernelField, x: list[int], y: list[int], negative: list[bool]) -> dict[str, list[int]]:
    """The known answers: what the operations give, by Python ints, in canonical Montgomery form."""
    p, d = kind.field.modulus, kind.degree
    f = Fp(p) if d == 1 else Fp2(p)
    out: dict[str, list[int]] = {"products": [], "squares": [], "sums": [], "differences": []}
    for lane in range(LANES):
        a, b = (side[lane * d] if d == 1 else tuple(side[lane * d : lane * d + d]) for side in (x, y))
        answers = (
            f.scale(f.mul(a, b), kind.field.r_inverse),
            f.scale(f.mul(a, a), kind.field.r_inverse),
            f.add(a, b),
            f.add(a, b) if negative[lane] else f.sub(a, b),
        )
        for values, answer in zip(out.values(), answers, strict=True):
            values.extend([answer] if d == 1 else answer)
    return out


@cache
def _wrong_answers(kind: KernelField) -> str | None:
    """The name of an operation whose answers are wrong, or None. A few milliseconds, once in a process."""
    canonical = kernel_field(kind.field, kind.degree)
    p, rng = kind.field.modulus, random.Random(52)  # noqa: S311 - known answers, not secrets
    edges = [0, 1, p - 1, p >> 1, (1 << 52) - 1, 1 << 52]
    values = [rng.choice(edges) if rng.random() < 0.5 else rng.randrange(p) for _ in range(2 * LANES * kind.degree)]
    d = kind.degree
    x, y = ([v for i in range(s, 2 * LANES, 2) for v in values[i * d : i * d + d]] for s in (0, 1))
    refs = np.array([2 * lane + (lane % 3 == 0) for lane in range(LANES)], np.uint32)
    out = np.zeros(_N_ANSWERS * LANES * canonical.words, np.uint64)
    blocks, rows = arrays.elements(kind, 4 * LANES), arrays.rows(kind, LANES)
    _probe(kind.marker, arrays.encode(canonical, values), refs, rows, blocks, out)
    got = arrays.decode(canonical, out)
    size = LANES * d
    for i, (name, answers) in enumerate(expected(kind, x, y, [bool(ref & 1) for ref in refs]).items()):
        if got[i * size : (i + 1) * size] != answers:
            return name
    return None
