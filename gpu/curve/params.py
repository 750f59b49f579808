"""The numbers of the two curves, under the names that the product, snarkjs and the file formats use.

Sources: EIP-196/197 for BN254 (snarkjs calls it "bn128"), draft-irtf-cfrg-pairing-friendly-curves for
BLS12-381. Both twists are over Fp2 = Fp[u]/(u^2 + 1); Fp6 = Fp2[v]/(v^3 - xi); Fp12 = Fp6[w]/(w^2 - v).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpu.errors import Refused
from gpu.field.params import BLS12381_P, BLS12381_R, BN254_P, BN254_R, Field

Fp2 = tuple[int, int]


@dataclass(frozen=True)
class Curve:
    """A pairing-friendly curve y^2 = x^3 + b with its twist y^2 = x^3 + b2.

    `x` is the BN or BLS parameter, `two_adicity` the power of two in r - 1, `non_residue` a non-square of Fr
    from which the roots of unity are derived exactly as ffjavascript derives them.
    """

    name: str
    snarkjs_name: str
    fp: Field
    fr: Field
    b: int
    b2: Fp2
    xi: Fp2
    x: int
    d_twist: bool
    g1: tuple[int, int]
    g2: tuple[Fp2, Fp2]
    two_adicity: int
    non_residue: int

    @property
    def r(self) -> int:
        return self.fr.modulus

    @property
    def p(self) -> int:
        return self.fp.modulus

    @cached_property
    def roots(self) -> list[int]:
        """`roots[k]` is the primitive 2^k-th root of unity that snarkjs uses."""
        root = pow(self.non_residue, (self.r - 1) >> self.two_adicity, self.r)
        out = [root]
        for _ in range(self.two_adicity):
            out.append(out[-1] * out[-1] % self.r)
        return out[::-1]


def _twist_b(b: int, xi: Fp2, p: int, d_twist: bool) -> Fp2:
    """b/xi for a D-twist (BN254), b*xi for an M-twist (BLS12-381)."""
    if not d_twist:
        return b * xi[0] % p, b * xi[1] % p
    norm = pow(xi[0] * xi[0] + xi[1] * xi[1], -1, p)
    return b * xi[0] * norm % p, -b * xi[1] * norm % p


BN254 = Curve(
    name="bn254",
    snarkjs_name="bn128",
    fp=BN254_P,
    fr=BN254_R,
    b=3,
    b2=_twist_b(3, (9, 1), BN254_P.modulus, True),
    xi=(9, 1),
    x=4965661367192848881,
    d_twist=True,
    g1=(1, 2),
    g2=(
        (
            10857046999023057135944570762232829481370756359578518086990519993285655852781,
            11559732032986387107991004021392285783925812861821192530917403151452391805634,
        ),
        (
            8495653923123431417604973247489272438418190587263600148770280649306958101930,
            4082367875863433681332203403145435568316851327593401208105741076214120093531,
        ),
    ),
    two_adicity=28,
    non_residue=5,
)

BLS12381 = Curve(
    name="bls12381",
    snarkjs_name="bls12381",
    fp=BLS12381_P,
    fr=BLS12381_R,
    b=4,
    b2=(4, 4),
    xi=(1, 1),
    x=-0xD201000000010000,
    d_twist=False,
    g1=(
        0x17F1D3A73197D7942695638C4FA9AC0FC3688C4F9774B905A14E3A3F171BAC586C55E83FF97A1AEFFB3AF00ADB22C6BB,
        0x08B3F481E3AAA0F1A09E30ED741D8AE4FCF5E095D5D00AF600DB18CB2C04B3EDD03CC744A2888AE40CAA232946C5E7E1,
    ),
    g2=(
        (
            0x024AA2B2F08F0A91260805272DC51051C6E47AD4FA403B02B4510B647AE3D1770BAC0326A805BBEFD48056C8C121BDB8,
            0x13E02B6052719F607DACD3A088274F65596BD0D09920B61AB5DA61BBDC7F5049334CF11213945D57E5AC7D055D042B7E,
        ),
        (
            0x0CE5D527727D6E118CC9CDC6DA2E351AADFD9BAA8CBDD3A76D429A695160D12C923AC9CC3BACA289E193548608B82801,
            0x0606C4A02EA734CC32ACD2B02BC28B99CB3E287E85A763AF267492AB572E99AB3F370D275CEC1DA1AAA9075FF05F79BE,
        ),
    ),
    two_adicity=32,
    non_residue=5,
)

CURVES = {curve.name: curve for curve in (BN254, BLS12381)}


def curve_by_name(name: str) -> Curve:
    """The curve called `name` by us or by snarkjs; Refused for any other."""
    for curve in CURVES.values():
        if name in (curve.name, curve.snarkjs_name):
            return curve
    raise Refused(f"unknown curve {name!r}; the curves are {', '.join(CURVES)}")


def curve_by_moduli(q: int, r: int) -> Curve | None:
    """The curve whose base field and group order are `q` and `r`, or None."""
    return next((curve for curve in CURVES.values() if (curve.p, curve.r) == (q, r)), None)


def curve_by_order(r: int) -> Curve | None:
    """The curve of group order `r` (all that a witness or constraint file says), or None."""
    return next((curve for curve in CURVES.values() if curve.r == r), None)
