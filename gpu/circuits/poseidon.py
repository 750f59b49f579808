"""The Poseidon hash over both scalar fields, and its constraints.

Grassi, Khovratovich, Rechberger, Roy, Schofnegger, "Poseidon: A New Hash Function for Zero-Knowledge Proof
Systems" (eprint 2019/458): x^5, 8 full rounds, constants and a Cauchy matrix from the Grain LFSR as in the
authors' generate_parameters_grain.sage. Round numbers are for 128 bits of security: on BN254 circomlib's, so that
hashes are circomlib's; on BLS12-381 those of the authors' calc_round_numbers.py, which Filecoin's neptune has too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpu.circuits.system import Terms, Wiring
from gpu.curve.params import Curve

FULL_ROUNDS = 8
PARTIAL_ROUNDS = {"bn254": {2: 57, 4: 60, 8: 63}, "bls12381": {2: 55, 4: 56, 8: 57}}
"""By curve and number of inputs."""


@dataclass(frozen=True)
class Poseidon:
    """The hash of `arity` values: the first element of the permuted state (0, inputs)."""

    order: int
    partial_rounds: int
    constants: tuple[tuple[int, ...], ...]
    matrix: tuple[tuple[int, ...], ...]

    @property
    def arity(self) -> int:
        return len(self.matrix) - 1

    @property
    def n_wires(self) -> int:
        """Wires that a hash adds: as many as it has constraints."""
        width = len(self.matrix)
        return 3 * (FULL_ROUNDS * width + self.partial_rounds) + self.partial_rounds - 1 + width + 1

    def trace(self, inputs: Sequence[int]) -> list[int]:
        """The values of the wires of `wire_up`, in their order; the last one is the hash."""
        r, values = self.order, []
        state = [0, *inputs]
        for number, constants in enumerate(self.constants):
            state = [(value + constant) % r for value, constant in zip(state, constants, strict=True)]
            for i in range(self._boxes(number)):
                x = state[i]
                if self._is_long(number):
                    values.append(x)
                x2 = x * x % r
                x4 = x2 * x2 % r
                state[i] = x * x4 % r
                values += (x2, x4, state[i])
            state = [sum(m * value for m, value in zip(row, state, strict=True)) % r for row in self.matrix]
        return [*values, state[0]]

    def wire_up(self, wiring: Wiring, inputs: Sequence[int]) -> int:
        """Adds the constraints of a hash of these wires; the wire of the hash."""
        state: list[Terms] = [{}, *({wire: 1} for wire in inputs)]
        for number, constants in enumerate(self.constants):
            state = [
                wiring.sum([(1, terms), (constant, {0: 1})]) for terms, constant in zip(state, constants, strict=True)
            ]
            for i in range(self._boxes(number)):
                # Short combinations keep the matrices A and B sparse: a long one gets a wire, at one constraint.
                x = {wiring.equal_to(state[i]): 1} if self._is_long(number) else state[i]
                x2 = {wiring.product(x, x): 1}
                x4 = {wiring.product(x2, x2): 1}
                state[i] = {wiring.product(x4, x): 1}
            state = [wiring.sum(list(zip(row, state, strict=True))) for row in self.matrix]
        return wiring.equal_to(state[0])

    def _boxes(self, number: int) -> int:
        """How many elements of the state go through x^5 in this round."""
        half = FULL_ROUNDS // 2
        return 1 if half <= number < half + self.partial_rounds else len(self.matrix)

    def _is_long(self, number: int) -> bool:
        """Whether the state has become a combination of more wires than it has elements: a partial round came
        right before.
        """
        half = FULL_ROUNDS // 2
        return half < number <= half + self.partial_rounds


@lru_cache(maxsize=6)
def poseidon(curve: Curve, arity: int) -> Poseidon:
    """The hash of 2, 4 or 8 values. KeyError for another number."""
    partial = PARTIAL_ROUNDS[curve.name][arity]
    width, r = arity + 1, curve.r
    bits = _grain(r.bit_length(), width, partial)
    constants = []
    for _ in range(FULL_ROUNDS + partial):
        row: list[int] = []
        while len(row) < width:
            value = _take(bits, r.bit_length())
            if value < r:
                row.append(value)
        constants.append(tuple(row))
    return Poseidon(r, partial, tuple(constants), _cauchy(bits, r, width))


def _grain(n_bits: int, width: int, partial: int) -> Iterator[int]:
    """The bits of the Grain LFSR in self-shrinking mode (section F of the paper)."""
    state = 0
    fields = ((1, 2), (0, 4), (n_bits, 12), (width, 12), (FULL_ROUNDS, 10), (partial, 10), ((1 << 30) - 1, 30))
    for value, length in fields:
        state = (state << length) | value
    # Bit i of `state` is the i-th in time.
    state = int(f"{state:080b}"[::-1], 2)

    def step() -> int:
        nonlocal state
        bit = (state >> 62 ^ state >> 51 ^ state >> 38 ^ state >> 23 ^ state >> 13 ^ state) & 1
        state = state >> 1 | bit << 79
        return bit

    for _ in range(160):
        step()
    while True:
        chosen, bit = step(), step()
        if chosen:
            yield bit


def _take(bits: Iterator[int], count: int) -> int:
    """An integer of `count` bits, the highest first."""
    out = 0
    for _ in range(count):
        out = out << 1 | next(bits)
    return out


def _cauchy(bits: Iterator[int], r: int, width: int) -> tuple[tuple[int, ...], ...]:
    """M[i][j] = 1 / (x_i + y_j), for distinct x and y."""
    while True:
        drawn = [_take(bits, r.bit_length()) % r for _ in range(2 * width)]
        xs, ys = drawn[:width], drawn[width:]
        if len(set(drawn)) == 2 * width and all((x + y) % r for x in xs for y in ys):
            return tuple(tuple(pow(x + y, -1, r) for y in ys) for x in xs)
