"""Poseidon inclusion proofs, the shape of a storage proof: leaves of one Merkle tree, each shown to lie under the
public root at its public position.

The tree is Filecoin's for a sector of 32 GiB: 2^30 leaves, 8 children a node, 10 levels (4 children: 15, 2: 30). It
exists only along the proofs' paths: other nodes are pseudo-random values.

Wires: 0 is one, 1 the root, then the positions (public), then for each proof its leaf and the children of each
node on the path (private), then what follows from these.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from gpu.circuits.poseidon import Poseidon, poseidon
from gpu.circuits.system import Terms, Wiring
from gpu.curve.params import Curve, curve_by_name
from gpu.errors import Refused
from gpu.files import write_atomically
from gpu.groth16 import r1cs
from gpu.groth16.r1cs import Constraint, R1csFacts
from gpu.groth16.wtns import wtns_bytes

MAX_N = 1 << 26
DEPTHS = {2: 30, 4: 15, 8: 10}
ARITY = 8


@dataclass(frozen=True)
class Merkle:
    """A circuit of `n_proofs` inclusion proofs in a tree of this arity and depth."""

    curve: Curve
    arity: int
    depth: int
    n_proofs: int

    @property
    def hash(self) -> Poseidon:
        return poseidon(self.curve, self.arity)

    @property
    def n_public(self) -> int:
        """The root and the positions."""
        return 1 + self.n_proofs

    @property
    def n_private(self) -> int:
        """Of one proof: the leaf, and the children of each node on its path."""
        return 1 + self.depth * self.arity

    @property
    def n_inner(self) -> int:
        """Of one proof: the selectors and the wires of the hash, at each level."""
        return self.depth * (self.arity - 1 + self.hash.n_wires)

    @property
    def n_wires(self) -> int:
        return 1 + self.n_public + self.n_proofs * (self.n_private + self.n_inner)

    @property
    def n_constraints(self) -> int:
        return self.n_proofs * proof_constraints(self.arity, self.depth, self.hash)

    def first_private(self, proof: int) -> int:
        return 1 + self.n_public + proof * self.n_private

    def first_inner(self, proof: int) -> int:
        return 1 + self.n_public + self.n_proofs * self.n_private + proof * self.n_inner


def proof_constraints(arity: int, depth: int, hashing: Poseidon) -> int:
    """A selector is 0 or 1 and its child is the node, for each child; the hash; then the root and the position."""
    return depth * (2 * arity + hashing.n_wires) + 2


def fitting(n: int, curve: str, arity: int = ARITY) -> Merkle:
    """The circuit of at most `n` constraints: as many whole proofs as fit; where none does, one in a tree of
    fewer levels, at least one. Refused for an n or an arity that there is not.
    """
    if not 1 <= n <= MAX_N:
        raise Refused(f"a merkle circuit of {n} constraints cannot be made; choose 1 to {MAX_N}")
    if arity not in DEPTHS:
        raise Refused(f"a tree of arity {arity} cannot be made; choose one of {', '.join(map(str, DEPTHS))}")
    params, depth = curve_by_name(curve), DEPTHS[arity]
    whole = proof_constraints(arity, depth, poseidon(params, arity))
    if n < whole:
        level = (whole - 2) // depth
        return Merkle(params, arity, max(1, (n - 2) // level), 1)
    return Merkle(params, arity, depth, n // whole)


def describe(n: int, curve: str, arity: int = ARITY) -> str:
    """One line on what `n` gives."""
    made = fitting(n, curve, arity)
    proofs = "proof" if made.n_proofs == 1 else "proofs"
    return (
        f"{made.n_proofs} Poseidon inclusion {proofs} of depth {made.depth} in a tree of arity {arity}: "
        f"{made.n_constraints} constraints"
    )


def witness(n: int, curve: str, x: int, arity: int = ARITY) -> list[int]:
    """The values of a satisfying witness; positions and nodes are derived from the integer `x`."""
    return _values(fitting(n, curve, arity), x)


def public(n: int, curve: str, x: int, arity: int = ARITY) -> list[str]:
    """What `public.json` must say for `x`: the root, and the position of each leaf."""
    made = fitting(n, curve, arity)
    return [str(value) for value in _values(made, x)[1 : 1 + made.n_public]]


def write_r1cs(n: int, curve: str, path: str | os.PathLike[str], arity: int = ARITY) -> None:
    """Writes the circuit."""
    made = fitting(n, curve, arity)
    facts = R1csFacts(
        made.curve,
        n_wires=made.n_wires,
        n_pub_out=1,
        n_pub_in=made.n_proofs,
        n_prv_in=made.n_proofs * made.n_private,
        n_labels=made.n_wires,
        n_constraints=made.n_constraints,
    )
    r1cs.write_r1cs(path, facts, _constraints(made), range(made.n_wires))


def write_wtns(n: int, curve: str, x: int, path: str | os.PathLike[str], arity: int = ARITY) -> None:
    """Writes the witness for `x`."""
    made = fitting(n, curve, arity)
    write_atomically(path, wtns_bytes(made.curve, _values(made, x)))


def _constraints(made: Merkle) -> Iterator[Constraint]:
    """Those of the first proof, then the same with other wires for each further one."""
    first = _one_proof(made)
    for proof in range(made.n_proofs):
        # The first proof's wires in order: those that all share, its position, its private and its inner ones.
        private, inner = made.first_private(proof), made.first_inner(proof)
        here = [0, 1, 2 + proof, *range(3, made.first_private(0))]
        here += [*range(private, private + made.n_private)]
        here += [0] * (made.first_inner(0) - len(here))
        here += [*range(inner, inner + made.n_inner)]
        for a, b, c in first:
            yield (
                [(here[wire], factor) for wire, factor in a],
                [(here[wire], factor) for wire, factor in b],
                [(here[wire], factor) for wire, factor in c],
            )


def _one_proof(made: Merkle) -> list[Constraint]:
    """The constraints of the proof whose position is wire 2."""
    r, arity = made.curve.r, made.arity
    wiring = Wiring(r, made.first_inner(0))
    node = made.first_private(0)
    position: list[tuple[int, Terms]] = []
    for level in range(made.depth):
        children = [made.first_private(0) + 1 + level * arity + k for k in range(arity)]
        chosen: list[Terms] = [{wiring.wire(): 1} for _ in range(arity - 1)]
        # Exactly one selector is 1: each is 0 or 1, and the first is one minus the others.
        chosen.insert(0, wiring.sum([(1, {0: 1}), *((r - 1, selector) for selector in chosen)]))
        for k, selector in enumerate(chosen):
            wiring.require(selector, wiring.sum([(1, {0: 1}), (r - 1, selector)]), {})
            wiring.require(selector, {children[k]: 1, node: r - 1}, {})
            position.append((k * arity**level, selector))
        node = made.hash.wire_up(wiring, children)
    wiring.require({node: 1}, {0: 1}, {1: 1})
    wiring.require(wiring.sum(position), {0: 1}, {2: 1})
    return wiring.constraints


def _values(made: Merkle, x: int) -> list[int]:
    """The witness: the tree is built upwards, along all paths at once."""
    arity, r = made.arity, made.curve.r
    leaves = [_drawn(x, f"position {i}") % arity**made.depth for i in range(made.n_proofs)]
    nodes = {leaf: _drawn(x, f"0/{leaf}") % r for leaf in leaves}
    private = [[nodes[leaf]] for leaf in leaves]
    inner: list[list[int]] = [[] for _ in leaves]
    for level in range(made.depth):
        families, above = {}, {}
        for parent in {index // arity for index in nodes}:
            indexes = range(parent * arity, (parent + 1) * arity)
            children = [nodes[i] if i in nodes else _drawn(x, f"{level}/{i}") % r for i in indexes]
            wires = made.hash.trace(children)
            families[parent] = children, wires
            above[parent] = wires[-1]
        for proof, leaf in enumerate(leaves):
            index = leaf // arity**level
            children, wires = families[index // arity]
            private[proof] += children
            inner[proof] += [int(index % arity == k) for k in range(1, arity)]
            inner[proof] += wires
        nodes = above
    out = [1, nodes[0], *leaves]
    for part in (*private, *inner):
        out += part
    return out


def _drawn(x: int, what: str) -> int:
    """A pseudo-random integer of 512 bits that depends on nothing else."""
    return int.from_bytes(hashlib.sha512(f"{x}/{what}".encode()).digest(), "little")
