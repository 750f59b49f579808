"""Many proofs of one key at once, with our own compiled pairing.

The proofs' equations are raised to secret random weights and multiplied into one, so that n proofs cost n Miller
loops, three more, and one final exponentiation (Bellare, Garay, Rabin, EUROCRYPT 1998; Groth16: Bowe, Gabizon,
"Making Groth's zk-SNARK simulation extractable", ePrint 2018/187, appendix). When the product is not one, halves
are looked at until each bad proof is alone; a value of the whole and of one half gives that of the other half.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np

from gpu.curve.endomorphism import endomorphisms, relation
from gpu.curve.group import KernelGroup
from gpu.curve.membership import first_outside
from gpu.curve.reference import Point
from gpu.errors import ProofRejected
from gpu.groth16.formats import Proof, VerificationKey
from gpu.groth16.own import EQUATION, OUTSIDE
from gpu.memory import usable_cpus
from gpu.msm.plan import small
from gpu.pairing.host import compiled_pairing
from gpu.pairing.weights import weighted

Statement = tuple[list[int], Proof]
_GROUP = 8  # proofs whose Miller loops share their squarings; a larger group would gain little


def holds(vkey: VerificationKey, ic_sum: Point, proof: Proof) -> bool:
    """Whether e(A, B) = e(alpha, beta) e(ic_sum, gamma) e(C, delta). Points must be in their subgroups; none of the
    proof's may be infinite.
    """
    engine = compiled_pairing(vkey.curve)
    neg = engine.one.reference.neg
    pairs = [(proof.a, proof.b), (neg(vkey.alpha1), vkey.beta2)]
    return engine.is_one([*pairs, (neg(ic_sum), vkey.gamma2), (neg(proof.c), vkey.delta2)])


def check_many(
    vkey: VerificationKey, items: Sequence[Statement], threads: int | None = None
) -> list[ProofRejected | None]:
    """For each (public values, proof) of parsed values, None when it holds, else why not; see `own.check_many`."""
    with ThreadPoolExecutor(threads or usable_cpus(), "verify") as pool:
        _check_key(vkey, pool)
        verdicts = _outside_subgroups(vkey, [proof for _, proof in items], pool)
        sound = [i for i, verdict in enumerate(verdicts) if verdict is None]
        if sound:
            for k in _Batch(vkey, [items[i] for i in sound], pool).bad():
                verdicts[sound[k]] = ProofRejected(EQUATION)
    return verdicts


def _check_key(vkey: VerificationKey, pool: Executor) -> None:
    """ProofRejected when a point of the key is outside its subgroup."""
    engine = compiled_pairing(vkey.curve)
    for group, named in (
        (engine.one, [("vk_alpha_1", vkey.alpha1), *((f"IC[{i}]", point) for i, point in enumerate(vkey.ic))]),
        (engine.two, [("vk_beta_2", vkey.beta2), ("vk_gamma_2", vkey.gamma2), ("vk_delta_2", vkey.delta2)]),
    ):
        for i in _strays(group, [point for _, point in named], pool):
            raise ProofRejected(f"{named[i][0]}: {OUTSIDE}")


def _outside_subgroups(vkey: VerificationKey, proofs: Sequence[Proof], pool: Executor) -> list[ProofRejected | None]:
    """For each proof, the first of its points that is outside its subgroup."""
    verdicts: list[ProofRejected | None] = [None] * len(proofs)
    engine = compiled_pairing(vkey.curve)
    for name, group, points in (
        ("pi_c", engine.one, [proof.c for proof in proofs]),
        ("pi_b", engine.two, [proof.b for proof in proofs]),
        ("pi_a", engine.one, [proof.a for proof in proofs]),
    ):
        for i in _strays(group, points, pool):
            verdicts[i] = ProofRejected(f"{name}: {OUTSIDE}")
    return verdicts


def _strays(group: KernelGroup, points: Sequence[Point], pool: Executor) -> list[int]:
    """The indexes of all points outside the subgroup of order r, each point tested exactly."""
    if not relation(group.curve, group.kind.degree):
        return []
    section, nothing, marker = group.encode(points), group.sums(0), group.kind.marker

    def scan(begin: int, end: int) -> list[int]:
        found = []
        while begin < end:
            stray = first_outside(marker, section, begin, end, nothing, 0, 0, group.sums(1))
            if stray < 0:
                break
            found.append(stray)
            begin = stray + 1
        return found

    parts = [pool.submit(scan, i, min(i + 64, len(points))) for i in range(0, len(points), 64)]
    return [i for part in parts for i in part.result()]


class _Batch:
    """Proofs whose points are in their subgroups, each with its weight; ranges of them are put to the equation."""

    def __init__(self, vkey: VerificationKey, items: Sequence[Statement], pool: Executor) -> None:
        self._engine = engine = compiled_pairing(vkey.curve)
        self._r, self._items = vkey.curve.r, items
        one, two = engine.one, engine.two
        # Odd, so that no weight is zero: every proof takes part in its own equation.
        words = np.frombuffer(bytearray(secrets.token_bytes(16 * len(items))), np.uint64)
        words[::2] |= np.uint64(1)
        lam = endomorphisms(vkey.curve).lam
        self._weights = [(int(a) + int(b) * lam) % self._r for a, b in words.reshape(-1, 2)]
        self._fixed = two.encode([vkey.beta2, vkey.gamma2, vkey.delta2]).view(np.uint64)
        self._alpha, self._ic = one.encode([vkey.alpha1]), one.encode(vkey.ic)
        self._b = two.encode([proof.b for _, proof in items]).view(np.uint64)
        points = [one.encode([proof.a for _, proof in items]), one.encode([proof.c for _, proof in items])]

        def weigh(begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            width = one.point_bytes
            a, c = (
                weighted(one, part[begin * width : end * width].view(np.uint64), words[2 * begin : 2 * end])
                for part in points
            )
            return a, c, engine.miller(a, self._b[begin * 2 * two.kind.words :], 0, end - begin)

        ranges = [(i, min(i + _GROUP, len(items))) for i in range(0, len(items), _GROUP)]
        parts = [part.result() for part in [pool.submit(weigh, *each) for each in ranges]]
        self._a = np.concatenate([a for a, _, _ in parts])
        self._values = np.concatenate([value for _, _, value in parts])
        section = np.concatenate([c for _, c, _ in parts])
        self._c_sums: list[Point] = [None]  # of the first k, so that a range's is a difference
        for i in range(len(items)):
            self._c_sums.append(one.reference.add(self._c_sums[-1], one.decode(section, i)))

    def bad(self) -> list[int]:
        """The indexes of the proofs whose equation does not hold."""
        out: list[int] = []
        self._search(0, len(self._items), self._value(0, len(self._items)), out)
        return out

    def _search(self, begin: int, end: int, value: np.ndarray, out: list[int]) -> None:
        """Adds the bad proofs of [begin, end), whose product is `value`."""
        if np.array_equal(value, self._engine.unit):
            return
        if end - begin == 1:
            out.append(begin)
            return
        half = (end - begin) // 2
        middle = begin + (half - half % _GROUP or half)
        left = self._value(begin, middle)
        self._search(begin, middle, left, out)
        self._search(middle, end, self._engine.quotient(value, left), out)

    def _value(self, begin: int, end: int) -> np.ndarray:
        """The product over [begin, end) of e(A, B) / (e(alpha, beta) e(public IC, gamma) e(C, delta)), each to its
        weight: one when all of them hold.
        """
        one, r = self._engine.one, self._r
        factors = [0] * (self._ic.size // one.point_bytes)
        for weight, (public, _) in zip(self._weights[begin:end], self._items[begin:end], strict=True):
            for j, value in enumerate((1, *public)):
                factors[j] = (factors[j] - weight * value) % r
        alpha, ic = small(one, self._alpha, factors[:1]), small(one, self._ic, factors)
        c = one.reference.add(self._c_sums[begin], one.reference.neg(self._c_sums[end]))
        return self._engine.final(one.encode([alpha, ic, c]).view(np.uint64), self._fixed, self._loops(begin, end))

    def _loops(self, begin: int, end: int) -> np.ndarray:
        """Values whose product is that of the Miller loops of [begin, end): of whole groups, or made anew."""
        if begin % _GROUP or (end % _GROUP and end != len(self._items)):
            return self._engine.miller(self._a, self._b, begin, end)
        width = self._engine.unit.size
        return self._values[begin // _GROUP * width : -(-end // _GROUP) * width]
