"""What a proof needs of a GPU's memory, decided before any of it is taken.

The vectors of a proof and the scratch of its sums must fit. The key's points stay on the GPU as far as they fit, and
are sent anew for every proof where they don't, range by range, so that a key larger than the GPU's memory still proves.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu.cuda.device import OutOfDeviceMemory
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.groth16.zkey import ZkeyFacts
from gpu.msm.launch import n_bytes as msm_bytes
from gpu.msm.schedule import DEFAULT_ENTRIES
from gpu.ntt.launch import n_bytes as domain_bytes

SCALAR_BYTES = 32
SMALLEST_RANGE = 1 << 16
"""Points to a range, at least: with fewer, launches and bucket sums cost more than the points."""


@dataclass(frozen=True)
class Section:
    """One of a proof's sums: `n` points of the key, in `group`."""

    name: str
    group: KernelGroup
    n: int

    @property
    def n_bytes(self) -> int:
        return self.n * self.group.point_bytes


@dataclass(frozen=True)
class Plan:
    """How a proof uses the GPU. A sum takes at most `range` points at a time; sections in `resident` stay."""

    range: int
    resident: frozenset[str]
    work_bytes: int
    """Vectors, tables, scratch, and points on their way."""
    key_bytes: int
    """Points that stay."""
    streamed: bool
    """Whether some points don't stay."""

    def width(self, facts: ZkeyFacts, group: KernelGroup) -> int:
        """Points that a sum in `group` takes at most at a time."""
        return _width(facts, group, self.range)

    def on_their_way(self, facts: ZkeyFacts) -> int:
        """Bytes for points that don't stay, a range of them at a time."""
        return _on_their_way(facts, self.range) if self.streamed else 0


def sections_of(facts: ZkeyFacts) -> list[Section]:
    """The five sums of a proof, as `gpu.groth16.backend.Sums` names them."""
    g1, g2 = kernel_g1(facts.curve), kernel_g2(facts.curve)
    n, n_private = facts.n_vars, facts.n_vars - facts.n_public - 1
    sizes = (("b2", g2, n), ("a", g1, n), ("b1", g1, n), ("c", g1, n_private), ("h", g1, facts.domain_size))
    return [Section(*each) for each in sizes]


def make_plan(path: str, facts: ZkeyFacts, available: int, total: int, smallest_range: int = SMALLEST_RANGE) -> Plan:
    """The plan that keeps most of the key with `available` bytes of a GPU that has `total`.

    OutOfDeviceMemory, with the figures and the key's `path`, when not even the smallest one fits.
    """
    sections = sections_of(facts)
    longest = min(DEFAULT_ENTRIES, max(section.n for section in sections))
    everything = sum(section.n_bytes for section in sections)
    work = _work_bytes(facts, longest)
    if work + everything <= available:
        return Plan(longest, frozenset(section.name for section in sections), work, everything, streamed=False)
    width = _range_that_fits(path, facts, longest, available, total, smallest_range)
    work = _work_bytes(facts, width, streamed=True)
    kept: dict[str, int] = {}
    for section in sorted(sections, key=lambda each: -each.n_bytes):
        if work + sum(kept.values()) + section.n_bytes <= available:
            kept[section.name] = section.n_bytes
    return Plan(width, frozenset(kept), work, sum(kept.values()), streamed=len(kept) < len(sections))


def _range_that_fits(path: str, facts: ZkeyFacts, longest: int, available: int, total: int, smallest: int) -> int:
    """The widest range that leaves a quarter of the memory to points that stay, else the widest that fits at all."""
    widths = [longest]
    while widths[-1] > smallest:
        widths.append(max(smallest, widths[-1] // 2))
    needs = [_work_bytes(facts, width, streamed=True) for width in widths]
    for limit in (available * 3 // 4, available):
        for width, need in zip(widths, needs, strict=True):
            if need <= limit:
                return width
    raise OutOfDeviceMemory(
        f"{path}: a proof needs at least {-(-needs[-1] >> 20)} MiB of GPU memory, of which {available >> 20} MiB are "
        f"to be had ({total >> 20} MiB in all); use a GPU with more memory, or end what else runs on it"
    )


def _work_bytes(facts: ZkeyFacts, width: int, *, streamed: bool = False) -> int:
    groups = kernel_g1(facts.curve), kernel_g2(facts.curve)
    vectors = SCALAR_BYTES * (facts.n_vars + 3 * facts.domain_size)
    scratch = sum(msm_bytes(group, _width(facts, group, width)) for group in groups)
    on_their_way = _on_their_way(facts, width) if streamed else 0
    return vectors + domain_bytes(facts.curve, facts.domain_size) + scratch + on_their_way


def _width(facts: ZkeyFacts, group: KernelGroup, width: int) -> int:
    return min(width, max(section.n for section in sections_of(facts) if section.group is group))


def _on_their_way(facts: ZkeyFacts, width: int) -> int:
    return max(min(width, section.n) * section.group.point_bytes for section in sections_of(facts))
