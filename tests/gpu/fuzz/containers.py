"""Broken containers: hypothesis strategies over the section table and over what sections hold."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import BLS12381, BN254, Curve
from gpu.groth16.binfile import Kind
from tests.gpu.mutants import read_sections
from tests.gpu.points import on_curve

EDGES = [0, 1, 2, 3, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF]
LONG_EDGES = [*EDGES, 1 << 32, (1 << 32) + 12, 1 << 40, (1 << 62) - 1, 1 << 63, (1 << 64) - 1]


@dataclass
class Container:
    """A file as its parts: whatever is in them, `content` writes it down."""

    magic: bytes
    version: int
    count: int | None
    table: list[tuple[int, int | None, bytearray]]
    tail: bytes = b""

    def content(self) -> bytes:
        count = len(self.table) if self.count is None else self.count
        out = [struct.pack("<4sII", self.magic, self.version, count)]
        for number, length, data in self.table:
            out.append(struct.pack("<IQ", number, len(data) if length is None else length))
            out.append(bytes(data))
        return b"".join([*out, self.tail])


def opened(path: Path, kind: Kind) -> Container:
    sections = read_sections(path, kind)
    return Container(kind.magic, kind.version, None, [(number, None, data) for number, data in sections.items()])


def boundaries(raw: bytes) -> Iterator[int]:
    """Where a file can be cut with the most effect: at each section's header, begin and end, and a byte around."""
    at, out = 12, {0, 1, 3, 4, 8, 11, 12}
    while at + 12 <= len(raw):
        length = struct.unpack_from("<Q", raw, at + 4)[0]
        out |= {at - 1, at, at + 1, at + 4, at + 11, at + 12, at + 13, at + 12 + length // 2}
        at += 12 + length
    return iter(sorted(cut for cut in out if cut < len(raw)))


def fields(kind_name: str, curve: Curve) -> list[tuple[int, int, int]]:
    """(section, offset, width) of every number of the headers, and of the first entries of long sections."""
    n8 = curve.fp.n_bytes
    if kind_name == "zkey":
        sizes = 8 + n8 + 32
        header = [(2, 0, 4), (2, 4, n8), (2, 4 + n8, 4), (2, 8 + n8, 32), (2, sizes, 4), (2, sizes + 4, 4)]
        entry = [(4, 0, 4), (4, 4, 4), (4, 8, 4), (4, 12, 4), (4, 16, 32)]
        return [(1, 0, 4), *header, (2, sizes + 8, 4), *entry]
    if kind_name == "wtns":
        return [(1, 0, 4), (1, 4, 32), (1, 36, 4), (2, 0, 32), (2, 32, 32), (2, 64, 32)]
    header = [(1, 0, 4), (1, 4, 32), *((1, 36 + 4 * i, 4) for i in range(4)), (1, 52, 8), (1, 60, 4)]
    return [*header, (2, 0, 4), (2, 4, 4), (2, 8, 32), (2, 40, 4), (2, 44, 4), (3, 0, 8)]


def bad_points(curve: Curve) -> dict[int, list[bytes]]:
    """For degree 1 and 2: encoded points that no key may hold, and two that are no fault by themselves (infinity,
    the generator).
    """
    out: dict[int, list[bytes]] = {}
    for degree, group in ((1, kernel_g1(curve)), (2, kernel_g2(curve))):
        width, n8 = group.point_bytes, curve.fp.n_bytes
        good = group.encode([group.reference.generator]).tobytes()
        other = BN254 if curve is BLS12381 else BLS12381
        foreign = (kernel_g1(other) if degree == 1 else kernel_g2(other)).encode(
            [other.g1 if degree == 1 else other.g2]
        )
        out[degree] = [
            bytes(width),
            good,
            b"\xff" * width,
            curve.p.to_bytes(n8, "little") + good[n8:],
            good[:-n8] + bytes(n8),
            good[n8:] + good[:n8],
            bytes([good[0] ^ 1]) + good[1:],
            foreign.tobytes()[:width].ljust(width, b"\0"),
            *(group.encode([on_curve(group, k)]).tobytes() for k in (1, 2)),
        ]
    return out


def point_sections(kind_name: str, curve: Curve) -> list[tuple[int, int, int]]:
    """(section, degree, where its points begin): the key's header points, then the sections of points."""
    if kind_name != "zkey":
        return []
    n8, at = curve.fp.n_bytes, 8 + curve.fp.n_bytes + 32 + 12
    header = [(2, 1, at), (2, 1, at + 2 * n8), (2, 2, at + 4 * n8), (2, 2, at + 8 * n8), (2, 1, at + 12 * n8)]
    return [*header, (2, 2, at + 14 * n8), (3, 1, 0), (5, 1, 0), (6, 1, 0), (7, 2, 0), (8, 1, 0), (9, 1, 0)]


def edits(
    kind_name: str, curve: Curve, points: dict[int, list[bytes]]
) -> st.SearchStrategy[Callable[[Container], None]]:
    """One fault, ready to be put into an opened container."""

    def put(section: int, at: int, value: bytes) -> Callable[[Container], None]:
        def edit(container: Container) -> None:
            for number, _, data in container.table:
                if number == section:
                    data[at : at + len(value)] = value

        return edit

    def number(field: tuple[int, int, int], value: int) -> Callable[[Container], None]:
        section, at, width = field
        return put(section, at, (value % (1 << (8 * width))).to_bytes(width, "little"))

    def point(place: tuple[int, int, int], which: int, index: int) -> Callable[[Container], None]:
        section, degree, begin = place
        chosen = points[degree][which % len(points[degree])]
        return put(section, begin + (index * len(chosen) if section != 2 else 0), chosen)

    def entry(index: int, change: Callable[[Container, int], None]) -> Callable[[Container], None]:
        return lambda container: change(container, index % len(container.table)) if container.table else None

    def set_length(length: int) -> Callable[[Container, int], None]:
        def change(container: Container, i: int) -> None:
            container.table[i] = (container.table[i][0], length, container.table[i][2])

        return change

    def set_number(new: int) -> Callable[[Container, int], None]:
        def change(container: Container, i: int) -> None:
            container.table[i] = (new, *container.table[i][1:])

        return change

    def repeat(container: Container, i: int) -> None:
        container.table.append(container.table[i])

    def drop(container: Container, i: int) -> None:
        del container.table[i]

    def resize(by: int) -> Callable[[Container, int], None]:
        def change(container: Container, i: int) -> None:
            data = container.table[i][2]
            if by < 0:
                del data[by:]
            else:
                data.extend(bytes(by))

        return change

    def scramble(at: int, value: int) -> Callable[[Container, int], None]:
        def change(container: Container, i: int) -> None:
            data = container.table[i][2]
            if data:
                data[at % len(data)] ^= value

        return change

    def header(name: str, value: int) -> Callable[[Container], None]:
        def edit(container: Container) -> None:
            if name == "magic":
                container.magic = struct.pack("<I", value % (1 << 32))
            elif name == "tail":
                container.tail = bytes(value % 100)
            else:
                setattr(container, name, value % (1 << 32))

        return edit

    index, edge = st.integers(0, 12), st.sampled_from(LONG_EDGES) | st.integers(0, 2**64 - 1)
    moduli = st.sampled_from([curve.r - 1, curve.r, curve.p, curve.p - 1, 2**256 - 1, BN254.r, BLS12381.r, BN254.p])
    choices = [
        st.builds(number, st.sampled_from(fields(kind_name, curve)), edge | moduli),
        st.builds(entry, index, st.builds(set_length, edge)),
        st.builds(entry, index, st.builds(set_number, st.integers(0, 12) | edge.map(lambda v: v % (1 << 32)))),
        st.builds(entry, index, st.just(repeat)),
        st.builds(entry, index, st.just(drop)),
        st.builds(entry, index, st.builds(resize, st.sampled_from([-65, -64, -32, -12, -4, -1, 1, 4, 12, 32, 64, 96]))),
        st.builds(entry, index, st.builds(scramble, st.integers(0, 10_000), st.integers(1, 255))),
        st.builds(header, st.sampled_from(["magic", "version", "count", "tail"]), edge),
    ]
    if point_sections(kind_name, curve):
        places = st.sampled_from(point_sections(kind_name, curve))
        choices.append(st.builds(point, places, st.integers(0, 20), st.integers(0, 7)))
    return st.one_of(choices)
