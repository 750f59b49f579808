"""The numbers of every prime field: modulus, limb count and what Montgomery arithmetic derives from them.

Canonical storage everywhere is snarkjs' own: `limbs` 64-bit little-endian words, Montgomery form with R =
2^(64 limbs).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Field:
    """A prime field. `name` is unique: emitted machine code is named after it."""

    name: str
    modulus: int
    limbs: int

    @property
    def n_bytes(self) -> int:
        return 8 * self.limbs

    @cached_property
    def r(self) -> int:
        """R mod p, the Montgomery form of one."""
        return (1 << (64 * self.limbs)) % self.modulus

    @cached_property
    def r2(self) -> int:
        """R^2 mod p: multiplying by it (Montgomery) brings a plain value into Montgomery form."""
        return self.r * self.r % self.modulus

    @cached_property
    def r_inverse(self) -> int:
        return pow(self.r, -1, self.modulus)

    @cached_property
    def n0(self) -> int:
        """-p^-1 mod 2^64, the factor of each CIOS row (Koc, Acar, Kaliski 1996)."""
        return -pow(self.modulus, -1, 1 << 64) % (1 << 64)

    def to_montgomery(self, value: int) -> int:
        return value * self.r % self.modulus

    def from_montgomery(self, value: int) -> int:
        return value * self.r_inverse % self.modulus


BN254_P = Field("bn254_p", 21888242871839275222246405745257275088696311157297823662689037894645226208583, 4)
BN254_R = Field("bn254_r", 21888242871839275222246405745257275088548364400416034343698204186575808495617, 4)
BLS12381_P = Field(
    "bls12381_p",
    0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB,
    6,
)
BLS12381_R = Field("bls12381_r", 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001, 4)
