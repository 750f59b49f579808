"""The fields as kernels name them: every prime field and the quadratic extensions that hold G2, each for one
element at a time (lanes 1) and for blocks of eight (lanes 8, AVX-512 IFMA), each with its marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpu.field import isa
from gpu.field.params import BLS12381_P, BLS12381_R, BN254_P, BN254_R, Field

Marker = tuple[int, ...]
LANES = 8
"""Elements of a block in the vector back end."""
DIGIT_BITS = 52
"""Bits of a limb in the vector back end: what vpmadd52 multiplies."""


@dataclass(frozen=True)
class KernelField:
    """A field, or (degree 2) its extension by u^2 = -1. `marker` is what kernels are given: its length is
    the name.

    With lanes 1 an element is the canonical one: 64-bit words, Montgomery with R = 2^(64 limbs), reduced.
    With lanes 8 what kernels index is a block of eight elements: for each coefficient and each limb of 52 bits
    eight 64-bit words, one a lane; Montgomery with R = 2^(52 limbs), values below `ifma.STORED` times p.
    A row is the other home of a single element there: 64 bytes for each coefficient, the limbs first, then zeros.
    """

    field: Field
    degree: int
    lanes: int
    marker: Marker

    @property
    def limbs(self) -> int:
        """Limbs of one coefficient: of 64 bits (lanes 1) or of 52 (lanes 8)."""
        return self.field.limbs if self.lanes == 1 else -(-(self.field.modulus.bit_length() + 5) // DIGIT_BITS)

    @property
    def words(self) -> int:
        """64-bit words of an element (lanes 1) or of a block of eight (lanes 8)."""
        return self.degree * self.limbs * self.lanes

    @property
    def row_words(self) -> int:
        """64-bit words of a row: one element, where it can be gathered from and scattered to."""
        return self.degree * (self.limbs if self.lanes == 1 else LANES)

    @cached_property
    def r(self) -> int:
        """R mod p, the Montgomery form of one."""
        bits = 64 if self.lanes == 1 else DIGIT_BITS
        return (1 << (bits * self.limbs)) % self.field.modulus

    @property
    def isa(self) -> str:
        """The instructions that the field's operations are compiled to; part of every symbol's name."""
        return isa.scalar_name() if self.lanes == 1 else isa.vector_name()


_ALL = [(BN254_P, 1), (BN254_P, 2), (BN254_R, 1), (BLS12381_P, 1), (BLS12381_P, 2), (BLS12381_R, 1)]
FIELDS = {
    (field.name, degree, lanes): KernelField(field, degree, lanes, (0,) * (1 + i + k * len(_ALL)))
    for k, lanes in enumerate((1, LANES))
    for i, (field, degree) in enumerate(_ALL)
}
_BY_LENGTH = {len(kind.marker): kind for kind in FIELDS.values()}


def kernel_field(field: Field, degree: int = 1, lanes: int = 1) -> KernelField:
    """The field (degree 1) or its quadratic extension (degree 2), for 1 or 8 lanes."""
    return FIELDS[field.name, degree, lanes]


def of_marker_length(length: int) -> KernelField:
    return _BY_LENGTH[length]
