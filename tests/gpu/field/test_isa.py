"""The machine code of the vector back end for CPUs that have it, and the choice between the back ends."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from gpu.errors import Refused
from gpu.field import choice, isa, transfer
from gpu.field.bodies import OPERATIONS
from gpu.field.kinds import FIELDS, LANES, KernelField
from gpu.field.lowering import Operation, function_of
from gpu.field.params import BN254_P, BN254_R
from gpu.ntt import bodies as ntt
from tests.gpu.conftest import ROOT
from tests.gpu.field.values import name

WIDE = [kind for kind in FIELDS.values() if kind.lanes == LANES]
MOVES = [value for value in vars(transfer).values() if isinstance(value, Operation)]
STAGES = [value for value in vars(ntt).values() if isinstance(value, Operation)]
_SPILLS = {(5, 1): 0, (5, 2): 40, (8, 1): 8, (8, 2): 120}
"""Vectors on the stack at most, by limbs and degree: a few in a hundred of the multiply-adds, on ports of their own."""
FEATURES = ",".join(f"+{feature}" for feature in isa.IFMA_FEATURES)


def assembly(operation: Operation, kind: KernelField, cpu: str) -> str:
    """What LLVM makes of one operation for a CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module()
    module.triple = llvm.get_process_triple()
    function_of(module, operation, kind).linkage = ""
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(cpu=cpu, opt=3)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    return str(machine.emit_assembly(parsed))


def counts(text: str) -> tuple[int, int, int]:
    """Multiply-adds, vectors written to the stack, and vectors of half the width."""
    spills = len(re.findall(r"vmov\w+\s+%zmm\d+, -?\d*\(%rsp\)", text))
    return len(re.findall(r"\tvpmadd52[lh]uq\t.*zmm", text)), spills, len(re.findall(r"\tvpmadd52[lh]uq\t.*ymm", text))


@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="LLVM here may make no x86 code")
@pytest.mark.parametrize("cpu", ["icelake-client", "znver4"])
@pytest.mark.parametrize("kind", WIDE, ids=name)
def test_real_instructions_in_the_expected_number(kind: KernelField, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "emulated", lambda: False)
    n = kind.limbs
    product, square, reductions = 4 * n * n + n, 3 * n * n + 2 * n, 1
    expected = {
        ("mul", 1): product,
        ("sqr", 1): square,
        ("add", 1): reductions,
        ("sub", 1): reductions,
        ("mul", 2): 3 * product + 2 * reductions,
        ("sqr", 2): 2 * product + reductions,
    }
    for operation in OPERATIONS.values():
        text = assembly(operation, kind, cpu)
        n_products, spills, halves = counts(text)
        wanted = expected.get((operation.name, kind.degree))
        # LLVM leaves out what a zero limb of a constant makes needless.
        assert wanted is None or 0.98 * wanted - 2 <= n_products <= wanted, (operation.name, n_products, wanted)
        assert spills <= _SPILLS[kind.limbs, kind.degree], (operation.name, spills)
        assert halves == 0
        assert "emulated" not in text
    for operation in MOVES + (STAGES if kind.field.name.endswith("_r") else []):
        assert counts(assembly(operation, kind, cpu))[2] == 0


_COMPILE = """
from numba import types
from gpu.field import choice, compiled, isa
from gpu.field.kinds import LANES, kernel_field
from gpu.field.params import BN254_R
words, refs = types.Array(types.uint64, 1, "C"), types.Array(types.uint32, 1, "C")
marker = types.UniTuple(types.int64, len(kernel_field(BN254_R, 1, LANES).marker))
choice._probe.compile((marker, words, refs, words, words, words))
real = "vpmadd52luq" in next(iter(choice._probe.inspect_asm().values()))
print(isa.vector_missing(), real, compiled._config.CACHE_DIR)
"""


@pytest.mark.prover
def test_kernels_for_another_cpu_compile_here_into_a_cache_of_their_own(tmp_path) -> None:
    features = llvm.get_host_cpu_features()
    features.update(dict.fromkeys((*isa.IFMA_FEATURES, "avx512bw", "avx512cd"), True))
    environment = {key: value for key, value in os.environ.items() if key != "PROVEFLEET_IFMA_EMULATED"}
    environment |= {"NUMBA_CPU_NAME": "icelake-client", "NUMBA_CPU_FEATURES": features.flatten()}
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE],
        env=environment | {"NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    missing, real, folder = done.stdout.split()
    assert (missing, real) == ("None", "True")
    assert folder.endswith("-icelake-client-ifma")


@pytest.mark.prover
def test_one_element_without_adx(tmp_path) -> None:
    """Where the tests run on a CPU with ADX: the same operations by LLVM's own multiplications."""
    features = llvm.get_host_cpu_features()
    features["adx"] = False
    environment = os.environ | {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": features.flatten()}
    if not llvm.get_process_triple().startswith("x86_64"):
        environment = dict(os.environ)
    tests = ["tests/gpu/field/test_operations.py", "-k", "edges and scalar", "-m", "prover", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests],
        env=environment | {"NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert any("-x86-64-" in folder.name for folder in tmp_path.iterdir())


@pytest.fixture
def not_emulated(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process without the tests' own switch, which forgets what it was told."""
    monkeypatch.setattr(isa, "emulated", lambda: False)
    monkeypatch.setattr(isa, "vector_missing", isa.vector_missing.__wrapped__)
    monkeypatch.setattr(isa, "host_missing", isa.host_missing.__wrapped__)
    return monkeypatch


def test_numbas_settings_count(not_emulated: pytest.MonkeyPatch) -> None:
    not_emulated.setattr(isa._config, "CPU_FEATURES", FEATURES)
    assert isa.vector_missing() is None
    for leaving_out in isa.IFMA_FEATURES:
        not_emulated.setattr(isa._config, "CPU_FEATURES", FEATURES.replace(f"+{leaving_out}", f"-{leaving_out}"))
        assert leaving_out in str(isa.vector_missing())
    not_emulated.setattr(isa._config, "CPU_FEATURES", "")
    assert "avx512ifma" in str(isa.vector_missing())


def test_a_cpu_without_ifma_is_told_in_one_line(not_emulated: pytest.MonkeyPatch) -> None:
    not_emulated.setattr(llvm, "get_host_cpu_features", lambda: {"avx512f": True})
    with pytest.raises(
        Refused, match=r"^PROVEFLEET_PROVER_BACKEND=ifma: this CPU has no AVX-512 IFMA \(missing: .*; set "
    ):
        choice.preferred("ifma")
    assert choice.preferred("auto") == choice.preferred("scalar") == "scalar"
    assert choice.lanes("auto", [(BN254_P, 1)]) == 1


@pytest.mark.prover
def test_right_answers_give_the_vector_back_end() -> None:
    assert choice.lanes("ifma", [(BN254_R, 1)]) == LANES
    assert choice.lanes("scalar", [(BN254_R, 1)]) == 1


@pytest.mark.prover
def test_wrong_answers_fall_back_or_refuse(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    right = choice.expected

    def wrong(*args: object) -> dict[str, list[int]]:
        answers = right(*args)  # type: ignore[arg-type]
        answers["squares"][3] ^= 1
        return answers

    monkeypatch.setattr(choice, "expected", wrong)
    monkeypatch.setattr(choice, "_wrong_answers", choice._wrong_answers.__wrapped__)
    monkeypatch.setattr(choice, "preferred", lambda wanted: "ifma")
    with caplog.at_level(logging.WARNING):
        assert choice.lanes("auto", [(BN254_R, 1)]) == 1
    assert [record.message for record in caplog.records] == [
        "the vector back end calculates wrongly on this CPU (squares of bn254_r, degree 1); using the scalar back end"
    ]
    with pytest.raises(Refused, match="calculates wrongly on this CPU"):
        choice.lanes("ifma", [(BN254_R, 1)])
