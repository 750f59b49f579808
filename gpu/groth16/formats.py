"""snarkjs' JSON: `proof.json`, `public.json` and `vkey.json`, made from points and strictly read back.

Reading raises ProofRejected for whatever is not exactly what snarkjs writes: wrong types, missing keys,
values not in canonical decimal, coordinates at or over p, points that are infinite or off the curve. Extra
keys are ignored, as snarkjs ignores them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.curve.pairing import pairing
from gpu.curve.params import CURVES, Curve
from gpu.curve.reference import Group, Point, g1, g2
from gpu.errors import BadFile, ProofRejected
from gpu.groth16.zkey import ic_points, open_zkey

MAX_JSON_BYTES = 64 << 20
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,119}", re.ASCII)  # 120 digits hold every coordinate and bound the parsing


@dataclass(frozen=True)
class Proof:
    """A Groth16 proof as points: on their curves and not infinite, subgroups not yet checked."""

    a: Point
    b: Point
    c: Point


@dataclass(frozen=True)
class VerificationKey:
    """A verification key as points, with len(ic) - 1 public values."""

    curve: Curve
    alpha1: Point
    beta2: Point
    gamma2: Point
    delta2: Point
    ic: list[Point]


def proof_json(curve: Curve, proof: Proof) -> dict[str, Any]:
    """The value of `proof.json`."""
    return {
        "pi_a": _g1_json(proof.a),
        "pi_b": _g2_json(proof.b),
        "pi_c": _g1_json(proof.c),
        "protocol": "groth16",
        "curve": curve.snarkjs_name,
    }


def vkey_from_zkey(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The value of `vkey.json` for a proving key, as `snarkjs zkey export verificationkey` writes it. BadFile
    for a bad key.
    """
    file, facts = open_zkey(path)
    return vkey_json(
        VerificationKey(facts.curve, facts.alpha1, facts.beta2, facts.gamma2, facts.delta2, ic_points(file, facts))
    )


def vkey_json(vkey: VerificationKey) -> dict[str, Any]:
    curve = vkey.curve
    return {
        "protocol": "groth16",
        "curve": curve.snarkjs_name,
        "nPublic": len(vkey.ic) - 1,
        "vk_alpha_1": _g1_json(vkey.alpha1),
        "vk_beta_2": _g2_json(vkey.beta2),
        "vk_gamma_2": _g2_json(vkey.gamma2),
        "vk_delta_2": _g2_json(vkey.delta2),
        "vk_alphabeta_12": _alphabeta(vkey),
        "IC": [_g1_json(point) for point in vkey.ic],
    }


def _alphabeta(vkey: VerificationKey) -> list[list[list[str]]]:
    """e(alpha, beta) in ffjavascript's tower and with its final exponent, which is a multiple of (p^12 -
    1)/r: 2x(6x^2 + 3x + 1) for BN254 (Fuentes-Castaneda et al. 2011), 3 for BLS12-381.
    """
    engine = pairing(vkey.curve)
    x = vkey.curve.x
    factor = 2 * x * (6 * x * x + 3 * x + 1) if vkey.curve.d_twist else 3
    value = engine.fp12.power(engine.product([(vkey.alpha1, vkey.beta2)]), factor)
    return [[[str(part) for part in value[2 * v + w]] for v in range(3)] for w in range(2)]


def _g1_json(point: Point) -> list[str]:
    return ["0", "1", "0"] if point is None else [str(point[0]), str(point[1]), "1"]


def _g2_json(point: Point) -> list[list[str]]:
    if point is None:
        return [["0", "0"], ["1", "0"], ["0", "0"]]
    return [[str(part) for part in point[0]], [str(part) for part in point[1]], ["1", "0"]]


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """The JSON value of a file. BadFile when it can't be read or is not JSON."""
    todo = f"give the {what} that snarkjs or provefleet wrote"
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or str(error)
        raise BadFile(path, what, f"cannot be read: {why}", todo) from error
    if len(raw) > MAX_JSON_BYTES:
        raise BadFile(path, what, f"is over {MAX_JSON_BYTES >> 20} MiB", todo)
    try:
        # Integers stay text: Python refuses to parse very long ones, and no number in these files is one.
        return json.loads(raw, parse_int=str, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadFile(path, what, f"is not JSON: {str(error)[:80]}", todo) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers of a key that is given twice might take different values."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def parse_vkey(value: Any) -> VerificationKey:
    """The verification key in a `vkey.json` value; its header points may not be infinite, IC points may
    (snarkjs allows it).
    """
    where = "verification key"
    curve = _check_kind(value, where)
    one, two = g1(curve), g2(curve)
    ic = _get(value, "IC", list, where)
    if str(value.get("nPublic")) != str(len(ic) - 1):
        raise ProofRejected(f"{where}: nPublic does not match the {len(ic)} points of IC")
    return VerificationKey(
        curve,
        _g1(_get(value, "vk_alpha_1", list, where), one, "vk_alpha_1"),
        _g2(_get(value, "vk_beta_2", list, where), two, "vk_beta_2"),
        _g2(_get(value, "vk_gamma_2", list, where), two, "vk_gamma_2"),
        _g2(_get(value, "vk_delta_2", list, where), two, "vk_delta_2"),
        [_g1(point, one, f"IC[{i}]", infinity=True) for i, point in enumerate(ic)],
    )


def parse_proof(value: Any, curve: Curve) -> Proof:
    """The proof in a `proof.json` value, which must name the key's curve."""
    if _check_kind(value, "proof") is not curve:
        raise ProofRejected(f"proof: its curve is not the key's, {curve.snarkjs_name}")
    one, two = g1(curve), g2(curve)
    return Proof(
        _g1(_get(value, "pi_a", list, "proof"), one, "pi_a"),
        _g2(_get(value, "pi_b", list, "proof"), two, "pi_b"),
        _g1(_get(value, "pi_c", list, "proof"), one, "pi_c"),
    )


def parse_public(value: Any, vkey: VerificationKey) -> list[int]:
    """The public values, as many as the key has, each in canonical decimal and below r."""
    if not isinstance(value, list):
        raise ProofRejected("public values: not a list")
    if len(value) != len(vkey.ic) - 1:
        raise ProofRejected(f"public values: {len(value)} given, the key has {len(vkey.ic) - 1}")
    return [_number(item, vkey.curve.r, f"public value {i}") for i, item in enumerate(value)]


def _check_kind(value: Any, where: str) -> Curve:
    if not isinstance(value, dict):
        raise ProofRejected(f"{where}: not a JSON object")
    if value.get("protocol") != "groth16":
        raise ProofRejected(f"{where}: the protocol is not groth16")
    name = value.get("curve")
    for curve in CURVES.values():
        if name == curve.snarkjs_name:
            return curve
    raise ProofRejected(f"{where}: the curve is neither bn128 nor bls12381")


def _get(value: dict[str, Any], key: str, kind: type, where: str) -> Any:
    if not isinstance(value.get(key), kind):
        raise ProofRejected(f"{where}: {key} is missing or of the wrong type")
    return value[key]


def _number(value: Any, limit: int, name: str) -> int:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise ProofRejected(f"{name}: not a canonical decimal string")
    number = int(value)
    if number >= limit:
        raise ProofRejected(f"{name}: not below the field's modulus")
    return number


def _g1(value: Any, group: Group, name: str, infinity: bool = False) -> Point:
    if not isinstance(value, list) or len(value) != 3:
        raise ProofRejected(f"{name}: not three coordinates")
    x, y, z = (_number(part, group.field.p, name) for part in value)
    return _affine((x, y), z, 1, group, name, infinity)


def _g2(value: Any, group: Group, name: str) -> Point:
    if not isinstance(value, list) or len(value) != 3:
        raise ProofRejected(f"{name}: not three coordinates")
    x, y, z = (_pair(part, group.field.p, name) for part in value)
    return _affine((x, y), z, (1, 0), group, name, False)


def _pair(value: Any, p: int, name: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ProofRejected(f"{name}: not pairs of coordinates")
    return _number(value[0], p, name), _number(value[1], p, name)


def _affine(point: tuple[Any, Any], z: Any, one: Any, group: Group, name: str, infinity: bool) -> Point:
    if z == group.field.zero:
        if infinity:
            return None
        raise ProofRejected(f"{name}: the point at infinity")
    if z != one:
        raise ProofRejected(f"{name}: not in affine form")
    if not group.on_curve(point):
        raise ProofRejected(f"{name}: not on the curve")
    return point


def public_json(values: Sequence[int]) -> list[str]:
    """The value of `public.json`."""
    return [str(value) for value in values]
