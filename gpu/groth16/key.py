"""A proving key made ready: mapped, every point checked, coefficients unpacked, verification key at hand."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from gpu import memory
from gpu.curve.checks import first_fault
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.errors import OutOfMemory
from gpu.field import choice
from gpu.field.kinds import kernel_field
from gpu.groth16.binfile import BinFile
from gpu.groth16.formats import VerificationKey
from gpu.groth16.rows import Matrix, first_not_reduced
from gpu.groth16.zkey import COEFFICIENT, ZkeyFacts, ic_points, open_zkey

_PIECE = 1 << 16  # coefficients looked at at a time


@dataclass(frozen=True)
class ProvingKey:
    """Everything that `prove` needs of a `.zkey`. The sections are views of the mapped file (uint8)."""

    path: str
    facts: ZkeyFacts
    vkey: VerificationKey
    g1: KernelGroup
    g2: KernelGroup
    a: np.ndarray
    b1: np.ndarray
    b2: np.ndarray
    c: np.ndarray
    h: np.ndarray
    ic: np.ndarray
    matrices: tuple[Matrix, Matrix]
    n_bytes: int
    """Memory that keeping this key costs: the file's pages and the unpacked coefficients."""
    content: str
    """Stands for what the file held when it was checked, as `BinFile` says."""

    @property
    def curve(self) -> Curve:
        return self.facts.curve


def load_key(path: str | os.PathLike[str], pool: Executor, threads: int, wanted: str = "scalar") -> ProvingKey:
    """Reads and checks a key: structure, coefficients, every point on its curve and in its subgroup.

    `wanted`: the kernels' width, as `choice.lanes` takes it. BadFile for a bad key, OutOfMemory, before any work, for
    one with which this process could not prove.
    """
    file, facts = open_zkey(path)
    needed = memory.needed_for(facts.n_vars, facts.domain_size, facts.n_coefficients, threads)
    if needed > memory.limit_bytes():
        raise OutOfMemory(
            f"{path}: a proof with this key takes {needed >> 20} MiB besides the file, and this process may use "
            f"{memory.limit_bytes() >> 20}; take a machine with more memory"
        )
    lanes = choice.lanes(wanted, ((facts.curve.fp, 1), (facts.curve.fp, 2)))
    one, two = kernel_g1(facts.curve), kernel_g2(facts.curve)
    sections = {number: np.frombuffer(file.section(number), np.uint8) for number in (3, 5, 6, 7, 8, 9)}
    numbers = list(sections)
    owned = [(two if number == 7 else one, sections[number]) for number in numbers]
    fault = first_fault(owned, pool, threads, lanes)
    if fault is not None:
        raise file.bad(numbers[fault.section], f"point {fault.index} {fault.why}")
    matrices = _matrices(file, facts)
    vkey = VerificationKey(facts.curve, facts.alpha1, facts.beta2, facts.gamma2, facts.delta2, ic_points(file, facts))
    return ProvingKey(
        path=str(path),
        facts=facts,
        vkey=vkey,
        g1=one,
        g2=two,
        a=sections[5],
        b1=sections[6],
        b2=sections[7],
        c=sections[8],
        h=sections[9],
        ic=sections[3],
        matrices=matrices,
        n_bytes=file.size + 40 * facts.n_coefficients,
        content=file.content,
    )


def _matrices(file: BinFile, facts: ZkeyFacts) -> tuple[Matrix, Matrix]:
    """Section 4 as the matrices A and B. BadFile for an index or a value out of range."""
    entries = np.frombuffer(file.section(4)[4:], np.dtype(COEFFICIENT))
    pieces = [slice(i, i + _PIECE) for i in range(0, len(entries), _PIECE)]  # no whole copy of the section
    n_first = 0
    for piece in pieces:
        _check_indexes(file, facts, entries[piece], piece.start)
        n_first += int(np.count_nonzero(entries["matrix"][piece] == 0))
    fr = kernel_field(facts.curve.fr)
    out = []
    for matrix, count in enumerate((n_first, len(entries) - n_first)):
        rows, columns, values = np.empty(count, np.uint32), np.empty(count, np.uint32), np.empty((count, 4), np.uint64)
        end = 0
        for piece in pieces:
            chosen = entries[piece][entries["matrix"][piece] == matrix]
            begin, end = end, end + len(chosen)
            rows[begin:end], columns[begin:end], values[begin:end] = chosen["row"], chosen["column"], chosen["value"]
        flat = values.reshape(-1)
        if first_not_reduced(fr.marker, flat, count) >= 0:
            raise file.bad(4, f"a value of matrix {'AB'[matrix]} is not below the field's modulus")
        out.append(Matrix.by_rows(rows, columns, flat, facts.domain_size))
    return out[0], out[1]


def _check_indexes(file: BinFile, facts: ZkeyFacts, entries: np.ndarray, first: int) -> None:
    """BadFile when one of these coefficients, the first of which is number `first`, names what there is not."""
    for name, limit, what in (
        ("matrix", 2, "matrix"),
        ("row", facts.domain_size, "constraint"),
        ("column", facts.n_vars, "variable"),
    ):
        wrong = np.flatnonzero(entries[name] >= limit)
        if len(wrong):
            k = int(wrong[0])
            raise file.bad(4, f"coefficient {first + k} names {what} {int(entries[name][k])}, there are {limit}")
