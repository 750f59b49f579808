"""The heavy sums of a proof on one GPU: what a GPU process does.

The scalars of a witness are sent once; a, b and c = a b move to the odd coset by three pairs of transforms; five
multi-scalar sums follow. The points of the keys in use stay on the GPU, least recently used first out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpu.cuda.device import Buffer, Device, OutOfDeviceMemory, Span
from gpu.cuda.plan import SCALAR_BYTES, SMALLEST_RANGE, Plan, Section, make_plan, sections_of
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.reference import Point
from gpu.groth16.zkey import ZkeyFacts, open_zkey
from gpu.msm.launch import DeviceMsm, Running
from gpu.ntt.launch import DeviceDomain, multiply, quotient

Progress = Callable[[str], None]
"""Told the name of each piece of work before it begins; may raise to give the proof up."""

_MAX_RESERVE = 1 << 30  # bytes left to the driver, which takes stacks for its kernels as they are first launched
_LOAD_BYTES = 256 << 20  # of a key's points between two reports of progress


@dataclass(frozen=True)
class KeyPoints:
    """A key's points as they lie in its file: affine, Montgomery form, one uint8 array a sum."""

    path: str
    facts: ZkeyFacts
    points: dict[str, np.ndarray]
    content: str
    """Stands for what the file held when it was mapped, as `BinFile` says: equal for equal points."""


def open_points(path: str) -> KeyPoints:
    """The points of a `.zkey`, mapped, not checked: whoever wants a proof has done that. BadFile for another file."""
    file, facts = open_zkey(path)
    numbers = {"a": 5, "b1": 6, "b2": 7, "c": 8, "h": 9}
    points = {name: np.frombuffer(file.section(at), np.uint8) for name, at in numbers.items()}
    return KeyPoints(path, facts, points, file.content)


class _Workspace:
    """Everything of a proof but the points that stay: for one shape of key, used by one proof after another."""

    def __init__(self, device: Device, facts: ZkeyFacts, plan: Plan) -> None:
        self.shape = _shape(facts, plan)
        self.n_bytes = plan.work_bytes
        self._held: list[Buffer | DeviceMsm | DeviceDomain] = []
        self._device = device
        try:
            self.witness = self._buffer(SCALAR_BYTES * facts.n_vars)
            self.a, self.b, self.c = (self._buffer(SCALAR_BYTES * facts.domain_size) for _ in range(3))
            self.domain = DeviceDomain(device, facts.curve, facts.domain_size)
            self._held.append(self.domain)
            self.g1 = self._msm(kernel_g1(facts.curve), plan.width(facts, kernel_g1(facts.curve)))
            self.g2 = self._msm(kernel_g2(facts.curve), plan.width(facts, kernel_g2(facts.curve)))
            self.on_their_way = self._buffer(plan.on_their_way(facts)) if plan.on_their_way(facts) else None
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        while self._held:
            self._held.pop().free()

    def _buffer(self, n_bytes: int) -> Buffer:
        buffer = self._device.alloc(n_bytes)
        self._held.append(buffer)
        return buffer

    def _msm(self, group: KernelGroup, n: int) -> DeviceMsm:
        msm = DeviceMsm(self._device, group, n)
        self._held.append(msm)
        return msm


@dataclass(frozen=True)
class _Resident:
    """A key on the GPU: those of its points that stay."""

    plan: Plan
    points: dict[str, Buffer]

    def free(self) -> None:
        for buffer in self.points.values():
            buffer.free()


class DeviceProver:
    """The sums on one device. Used by one thread; `smallest_range` as in `plan.make_plan`."""

    def __init__(self, device: Device, smallest_range: int = SMALLEST_RANGE) -> None:
        self._device = device
        self._smallest_range = smallest_range
        self._keys: OrderedDict[str, _Resident] = OrderedDict()
        self._workspace: _Workspace | None = None

    @property
    def resident(self) -> dict[str, int]:
        """Bytes that each key holds on the GPU, by the key's content, most recently used last."""
        return {content: held.plan.key_bytes for content, held in self._keys.items()}

    def sums(
        self, key: KeyPoints, witness: np.ndarray, a: np.ndarray, b: np.ndarray, progress: Progress
    ) -> dict[str, Point]:
        """The sums, named as in `gpu.groth16.backend.Sums`.

        `witness`: plain scalars below r, 32 bytes each; `a`, `b`: values on the domain, in Montgomery form.
        OutOfDeviceMemory before any work when the proof can't fit; DevicePoisoned when the GPU is lost.
        """
        work, held = self._ready(key, progress)
        device, curve, size = self._device, key.facts.curve, key.facts.domain_size
        progress("transforms")
        device.upload(work.a, a)
        device.upload(work.b, b)
        multiply(device, curve, work.c, work.a, work.b, size)
        for vector in (work.a, work.b, work.c):
            work.domain.to_odd_coset(vector)
        quotient(device, curve, work.a, work.b, work.c, size)
        device.upload(work.witness, witness)
        private = work.witness.at(SCALAR_BYTES * (key.facts.n_public + 1))
        sums: dict[str, Point] = {}
        before: Callable[[], None] | None = None
        for section in sections_of(key.facts):
            scalars = {"c": private, "h": work.a.at(0)}.get(section.name, work.witness.at(0))
            sums[section.name] = None
            for running in self._parts(work, held, section, key.points[section.name], scalars, progress):
                if before is not None:
                    before()  # the end of the sum before, on the CPU, while the GPU is at this one
                running.wait()
                before = partial(_add, sums, section, running)
        if before is not None:
            before()
        return sums

    def close(self) -> None:
        """Gives all memory back."""
        while self._keys:
            self._evict(next(iter(self._keys)))
        self._free_workspace()

    def _parts(
        self, work: _Workspace, held: _Resident, section: Section, points: np.ndarray, scalars: Span, progress: Progress
    ) -> Iterator[Running]:
        """Starts one sum, a range of points at a time; the one before must have been waited for."""
        group = section.group
        msm = work.g1 if group.kind.degree == 1 else work.g2
        for begin in range(0, section.n, held.plan.range):
            progress(f"sum {section.name}")
            n = min(held.plan.range, section.n - begin)
            at = begin * group.point_bytes
            if section.name in held.points:
                where: Buffer | Span = held.points[section.name].at(at)
            else:
                assert work.on_their_way is not None
                where = work.on_their_way
                self._device.upload(where, points[at : at + n * group.point_bytes])
            yield msm.start(where, scalars.at(begin * SCALAR_BYTES), n)

    def _ready(self, key: KeyPoints, progress: Progress) -> tuple[_Workspace, _Resident]:
        """Workspace and points for this key, everything in its place."""
        try:
            return self._place(key, progress)
        except OutOfDeviceMemory:
            if not self._keys and self._workspace is None:
                raise
        # Somebody else took of the GPU's memory since it was planned: give all of ours back and plan with what is left.
        self.close()
        return self._place(key, progress)

    def _place(self, key: KeyPoints, progress: Progress) -> tuple[_Workspace, _Resident]:
        held = self._keys.get(key.content)
        plan = held.plan if held else self._plan(key)
        if self._workspace is not None and self._workspace.shape != _shape(key.facts, plan):
            self._free_workspace()
        needed = (0 if self._workspace else plan.work_bytes) + (0 if held else plan.key_bytes)
        self._make_room(needed, key.content)
        if self._workspace is None:
            self._workspace = _Workspace(self._device, key.facts, plan)
        if held is None:
            held = self._keys[key.content] = self._load(key, plan, progress)
        self._keys.move_to_end(key.content)
        return self._workspace, held

    def _plan(self, key: KeyPoints) -> Plan:
        """As if nothing were on the GPU yet."""
        free, total = self._free()
        ours = sum(self.resident.values()) + (self._workspace.n_bytes if self._workspace else 0)
        return make_plan(key.path, key.facts, free + ours, total, self._smallest_range)

    def _make_room(self, needed: int, keep: str) -> None:
        """Evicts keys, never `keep`, until `needed` bytes are free."""
        for name in [name for name in self._keys if name != keep]:
            if self._free()[0] >= needed:
                return
            self._evict(name)
        free, total = self._free()
        if free < needed:
            raise OutOfDeviceMemory(
                f"{needed >> 20} MiB of GPU memory are needed and {max(free, 0) >> 20} of {total >> 20} MiB are to be "
                "had; use a GPU with more memory, or end what else runs on it"
            )

    def _load(self, key: KeyPoints, plan: Plan, progress: Progress) -> _Resident:
        held = _Resident(plan, {})
        try:
            for section in sections_of(key.facts):
                if section.name not in plan.resident or section.n == 0:
                    continue
                points = key.points[section.name]
                held.points[section.name] = self._device.alloc(section.n_bytes)
                for begin in range(0, section.n_bytes, _LOAD_BYTES):
                    progress(f"load {section.name}")
                    self._device.upload(held.points[section.name], points[begin : begin + _LOAD_BYTES], begin)
        except BaseException:
            held.free()
            raise
        return held

    def _free(self) -> tuple[int, int]:
        """Bytes that may be used, and all."""
        free, total = self._device.memory()
        return free - min(total // 32, _MAX_RESERVE), total

    def _evict(self, name: str) -> None:
        self._keys.pop(name).free()

    def _free_workspace(self) -> None:
        if self._workspace is not None:
            self._workspace.free()
            self._workspace = None


def _add(sums: dict[str, Point], section: Section, running: Running) -> None:
    sums[section.name] = section.group.reference.add(sums[section.name], running.point())


def _shape(facts: ZkeyFacts, plan: Plan) -> tuple[object, ...]:
    """What two proofs must have in common to use one workspace."""
    return facts.curve.name, facts.domain_size, facts.n_vars, plan.range, plan.streamed
