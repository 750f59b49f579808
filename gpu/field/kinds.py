"""The fields as kernels name them: every prime field, and the quadratic extensions that hold G2, each
with its marker.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu.field.params import BLS12381_P, BLS12381_R, BN254_P, BN254_R, Field

Marker = tuple[int, ...]


@dataclass(frozen=True)
class KernelField:
    """A field, or (degree 2) its extension by u^2 = -1. `marker` is what kernels are given: its length is
    the name.
    """

    field: Field
    degree: int
    marker: Marker

    @property
    def words(self) -> int:
        """64-bit words of an element."""
        return self.degree * self.field.limbs


_ALL = [(BN254_P, 1), (BN254_P, 2), (BN254_R, 1), (BLS12381_P, 1), (BLS12381_P, 2), (BLS12381_R, 1)]
FIELDS = {(f.name, degree): KernelField(f, degree, (0,) * (i + 1)) for i, (f, degree) in enumerate(_ALL)}
_BY_LENGTH = {len(kind.marker): kind for kind in FIELDS.values()}


def kernel_field(field: Field, degree: int = 1) -> KernelField:
    return FIELDS[field.name, degree]


def of_marker_length(length: int) -> KernelField:
    return _BY_LENGTH[length]
