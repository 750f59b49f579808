"""Constraints in the making: wires are added one after another, each with the constraint that defines it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpu.groth16.r1cs import Constraint

Terms = Mapping[int, int]
"""A linear combination: coefficients by wire. Wire 0 is the constant one."""

_ONE: Terms = {0: 1}


class Wiring:
    """Constraints over the wires that there are, and further wires from `n_wires` on."""

    def __init__(self, order: int, n_wires: int) -> None:
        self.order = order
        self.n_wires = n_wires
        self.constraints: list[Constraint] = []

    def wire(self) -> int:
        """A new wire, still without a constraint."""
        self.n_wires += 1
        return self.n_wires - 1

    def require(self, a: Terms, b: Terms, c: Terms) -> None:
        """a * b = c."""
        self.constraints.append((sorted(a.items()), sorted(b.items()), sorted(c.items())))

    def product(self, a: Terms, b: Terms) -> int:
        """A new wire that is a * b."""
        out = self.wire()
        self.require(a, b, {out: 1})
        return out

    def equal_to(self, terms: Terms) -> int:
        """A new wire that is the value of a combination."""
        return self.product(terms, _ONE)

    def sum(self, parts: Iterable[tuple[int, Terms]]) -> Terms:
        """The combination sum of factor * terms."""
        out: dict[int, int] = {}
        for factor, terms in parts:
            for wire, coefficient in terms.items():
                out[wire] = (out.get(wire, 0) + factor * coefficient) % self.order
        return {wire: coefficient for wire, coefficient in out.items() if coefficient}
