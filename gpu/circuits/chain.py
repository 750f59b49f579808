"""The chain circuit: x_0 = x, x_{i+1} = x_i^2 + i, public output x_N. N constraints, full-size values.

The same wires, constraints and labels that circom gives this program, so that a key made by snarkjs from the
circom source fits: wire 0 is one, wire 1 the output, wire 2 the input, wires 3..N+1 the intermediate values.
"""

from __future__ import annotations

import os

from gpu.curve.params import Curve, curve_by_name
from gpu.errors import Refused
from gpu.files import write_atomically
from gpu.groth16 import r1cs
from gpu.groth16.r1cs import Constraint, R1csFacts
from gpu.groth16.wtns import wtns_bytes

MAX_N = 1 << 26


def _sized(n: int, curve: str) -> Curve:
    if not 1 <= n <= MAX_N:
        raise Refused(f"a chain of {n} constraints cannot be made; choose 1 to {MAX_N}")
    return curve_by_name(curve)


def witness(n: int, curve: str, x: int) -> list[int]:
    """The N + 2 values of a satisfying witness, for any integer `x` (reduced mod r)."""
    r = _sized(n, curve).r
    values = [1, 0, x % r]
    for i in range(n):
        values.append((values[-1] * values[-1] + i) % r)
    values[1] = values.pop()
    return values


def public(n: int, curve: str, x: int) -> list[str]:
    """What `public.json` must say for input `x`: the output, as snarkjs writes it."""
    r = _sized(n, curve).r
    value = x % r
    for i in range(n):
        value = (value * value + i) % r
    return [str(value)]


def _constraint(n: int, r: int, i: int) -> Constraint:
    """-x_i * x_i = i - x_{i+1}, in the signs and the order that circom chooses."""
    here, after = i + 2, (i + 3 if i + 1 < n else 1)
    terms = [(after, r - 1)] if i == 0 else sorted([(0, i), (after, r - 1)])
    return [(here, r - 1)], [(here, 1)], terms


def write_r1cs(n: int, curve: str, path: str | os.PathLike[str]) -> None:
    """Writes the circuit of N constraints."""
    params = _sized(n, curve)
    facts = R1csFacts(params, n_wires=n + 2, n_pub_out=1, n_pub_in=0, n_prv_in=1, n_labels=n + 4, n_constraints=n)
    # circom keeps a label for each signal of the source; 3 is x[0], which it merged with the input.
    labels = [0, 1, 2, *range(4, n + 3)]
    r1cs.write_r1cs(path, facts, (_constraint(n, params.r, i) for i in range(n)), labels)


def write_wtns(n: int, curve: str, x: int, path: str | os.PathLike[str]) -> None:
    """Writes the witness for input `x`."""
    write_atomically(path, wtns_bytes(_sized(n, curve), witness(n, curve, x)))
