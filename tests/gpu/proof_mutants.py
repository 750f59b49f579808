"""Mutated proofs: each differs from a proof that holds in one way that must make it fail."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import BLS12381, BN254, Curve
from gpu.curve.reference import Point, g1, g2
from tests.gpu.points import on_curve

Json = Any


@dataclass(frozen=True)
class Mutant:
    """`changed` reads as snarkjs' JSON; `kind` says what was done."""

    kind: str
    public: Json
    proof: Json


def g1_json(point: Point) -> list[str]:
    assert point is not None
    return [str(point[0]), str(point[1]), "1"]


def g2_json(point: Point) -> list[list[str]]:
    assert point is not None
    return [[str(part) for part in point[0]], [str(part) for part in point[1]], ["1", "0"]]


class Mutator:
    """Draws mutants of one good proof. `other` is another good proof of the same key, of other values."""

    def __init__(self, curve: Curve, public: Json, proof: Json, other: Json, rng: random.Random) -> None:
        self.curve, self.public, self.proof, self.other, self.rng = curve, public, proof, other, rng
        self.one, self.two = g1(curve), g2(curve)
        self._points: dict[str, Any] = {
            "pi_a": (int(proof["pi_a"][0]), int(proof["pi_a"][1])),
            "pi_b": tuple(tuple(int(part) for part in pair) for pair in proof["pi_b"][:2]),
            "pi_c": (int(proof["pi_c"][0]), int(proof["pi_c"][1])),
        }
        # A few strays are enough, and take time to find; sums with random members make each mutant another point.
        self._strays = {
            1: [on_curve(kernel_g1(curve), k) for k in range(1, 4)],
            2: [on_curve(kernel_g2(curve), k) for k in range(1, 4)],
        }
        self._members = {1: self._ladder(self.one), 2: self._ladder(self.two)}

    def _ladder(self, group: Any) -> list[Point]:
        out = [group.generator]
        for _ in range(60):
            out.append(group.add(out[-1], out[-1]))
        return out

    def draw(self) -> Mutant:
        kind: Callable[[], Mutant] = self.rng.choice(
            [
                self.coordinate_bit,
                self.coordinate_step,
                self.coordinate_range,
                self.coordinates_swapped,
                self.coordinate_of_another_curve,
                self.negated,
                self.moved,
                self.replaced,
                self.parts_of_another_proof,
                self.out_of_subgroup,
                self.infinite,
                self.public_step,
                self.public_range,
                self.shape,
            ]
        )
        return kind()

    def _name(self) -> str:
        return self.rng.choice(["pi_a", "pi_b", "pi_c"])

    def _with(self, kind: str, name: str, value: Json) -> Mutant:
        return Mutant(f"{kind} {name}", self.public, self.proof | {name: value})

    def _group(self, name: str) -> Any:
        return self.two if name == "pi_b" else self.one

    def _json(self, name: str, point: Point) -> Json:
        return g2_json(point) if name == "pi_b" else g1_json(point)

    def _edit_coordinate(self, kind: str, edit: Callable[[int], int | str]) -> Mutant:
        name = self._name()
        value = copy.deepcopy(self.proof[name])
        i = self.rng.randrange(2)
        if name == "pi_b":
            j = self.rng.randrange(2)
            value[i][j] = str(edit(int(value[i][j])))
        else:
            value[i] = str(edit(int(value[i])))
        return self._with(kind, name, value)

    def coordinate_bit(self) -> Mutant:
        bit = self.rng.randrange(self.curve.p.bit_length())
        return self._edit_coordinate(f"bit {bit} flipped in", lambda value: value ^ 1 << bit)

    def coordinate_step(self) -> Mutant:
        step = self.rng.choice([-2, -1, 1, 2])
        return self._edit_coordinate(f"{step:+d} in", lambda value: value + step)

    def coordinate_range(self) -> Mutant:
        p, r = self.curve.p, self.curve.r
        edits: list[Callable[[int], int | str]] = [
            lambda v: v + p,
            lambda v: p - v,
            lambda v: v - p,
            lambda v: p,
            lambda v: 0,
            lambda v: 1,
            lambda v: v % r if v >= r else v + r,
            lambda v: 2**512 + v,
            lambda v: f"0{v}",
            lambda v: f"{v}.0",
            lambda v: f"{v}e0",
            lambda v: hex(v),
            lambda v: f" {v}",
            lambda v: "",
            lambda v: "NaN",
        ]
        k = self.rng.randrange(len(edits))
        return self._edit_coordinate(f"range case {k} in", edits[k])

    def coordinates_swapped(self) -> Mutant:
        name = self._name()
        x, y, z = self.proof[name]
        if name == "pi_b" and self.rng.random() < 0.7:
            both = self.rng.choice([(x[::-1], y), (x, y[::-1]), (x[::-1], y[::-1])])
            return self._with("halves swapped in", name, [*both, z])
        return self._with("x and y swapped in", name, self.rng.choice([[y, x, z], [x, x, z], [y, y, z], [z, x, y]]))

    def coordinate_of_another_curve(self) -> Mutant:
        other = BN254 if self.curve is BLS12381 else BLS12381
        k = self.rng.randrange(2, 2**32)
        name = self._name()
        if name == "pi_b":
            return self._with("another curve's point in", name, g2_json(g2(other).mul(other.g2, k)))
        return self._with("another curve's point in", name, g1_json(g1(other).mul(other.g1, k)))

    def negated(self) -> Mutant:
        """One point, or two but for A with B, which would still hold."""
        names = self.rng.choice([["pi_a"], ["pi_b"], ["pi_c"], ["pi_a", "pi_c"], ["pi_b", "pi_c"]])
        out = {name: self._json(name, self._group(name).neg(self._points[name])) for name in names}
        return Mutant(f"negated {names}", self.public, self.proof | out)

    def moved(self) -> Mutant:
        """A point plus a member of its group: the commonest of all, since it passes every check but the pairing."""
        name = self._name()
        group = self._group(name)
        step = self.rng.choice(self._members[2 if name == "pi_b" else 1])
        if self.rng.random() < 0.5:
            step = group.neg(step)
        return self._with("moved", name, self._json(name, group.add(self._points[name], step)))

    def replaced(self) -> Mutant:
        name = self._name()
        member = self.rng.choice(self._members[2 if name == "pi_b" else 1])
        choices = [member]
        if name != "pi_b":
            choices.append(self._points["pi_c" if name == "pi_a" else "pi_a"])
        return self._with("replaced", name, self._json(name, self.rng.choice(choices)))

    def parts_of_another_proof(self) -> Mutant:
        names = self.rng.sample(["pi_a", "pi_b", "pi_c"], self.rng.choice([1, 2]))
        return Mutant(f"{names} of another", self.public, self.proof | {name: self.other[name] for name in names})

    def out_of_subgroup(self) -> Mutant:
        """A point plus one outside the subgroup; on BN254's G1, which has none, plus any other."""
        name = self._name()
        degree, group = (2, self.two) if name == "pi_b" else (1, self.one)
        stray = group.add(self.rng.choice(self._strays[degree]), self.rng.choice(self._members[degree]))
        return self._with("out of the subgroup:", name, self._json(name, group.add(self._points[name], stray)))

    def infinite(self) -> Mutant:
        name = self._name()
        one, zero = ("1", "0") if name != "pi_b" else (["1", "0"], ["0", "0"])
        forms = [[zero, one, zero], [zero, zero, zero], [zero, zero, one], [*self.proof[name][:2], zero]]
        return self._with("infinite", name, self.rng.choice(forms))

    def public_step(self) -> Mutant:
        public = list(self.public)
        i = self.rng.randrange(len(public))
        value, r = int(public[i]), self.curve.r
        choices = [value + 1, value - 1, r - value, value ^ 1 << self.rng.randrange(250), self.rng.randrange(r), 0, 1]
        public[i] = str(self.rng.choice([new % r for new in choices if new % r != value]))
        return Mutant("public value changed", public, self.proof)

    def public_range(self) -> Mutant:
        public, r = list(self.public), self.curve.r
        i = self.rng.randrange(len(public))
        value = int(public[i])
        public[i] = self.rng.choice([str(value + r), str(value - r), str(value + 2 * r), f"0{value}", value, None, ""])
        if self.rng.random() < 0.3:
            public = self.rng.choice([self.public[:-1], [*self.public, "0"], [self.public], {}, None, "1"])
        return Mutant("public values out of range", public, self.proof)

    def shape(self) -> Mutant:
        """JSON of another shape."""
        name = self._name()
        value = self.proof[name]
        junk = [
            None,
            True,
            0,
            1.5,
            "",
            "1",
            [],
            {},
            [[]],
            [None] * 3,
            ["1"] * 3,
            [["1", "0"]] * 3,
            value[:2],
            [*value, "1"],
        ]
        kind = self.rng.randrange(4)
        if kind == 0:
            return self._with("junk as", name, self.rng.choice(junk))
        if kind == 1:
            i = self.rng.randrange(3)
            return self._with(
                "junk inside", name, [*value[:i], self.rng.choice([j for j in junk if j != value[i]]), *value[i + 1 :]]
            )
        if kind == 2:
            gone = self.rng.choice(["pi_a", "pi_b", "pi_c", "protocol", "curve"])
            return Mutant(f"no {gone}", self.public, {key: v for key, v in self.proof.items() if key != gone})
        wrong = self.rng.choice([("protocol", "plonk"), ("curve", "bn256"), ("curve", ["bn128"]), ("protocol", None)])
        return Mutant(f"{wrong[0]} is {wrong[1]}", self.public, self.proof | dict([wrong]))
