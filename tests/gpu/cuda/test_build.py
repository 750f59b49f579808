"""The build command: what it writes, that it is reproducible and makes only what is not up to date; and the ceilings of
the machine code, which decide how fast the kernels are.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gpu.cuda import toolchain
from gpu.cuda.build import build, main
from gpu.cuda.device import MAX_SHARED_BYTES
from gpu.cuda.images import images_for
from gpu.cuda.sources import ARCHITECTURES, PTX
from gpu.errors import Refused
from tests.gpu.ptx.kernels import ptx_text, symbols
from tests.gpu.ptx.parse import parse

pytestmark = [pytest.mark.prover, pytest.mark.usefixtures("kernel_compiler")]

FEW = ["bn254_fr_mul_chain", "bls12381_fr_mul_chain"]
FAST = ["sm_90", "sm_120"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "kernels"
    build(out, FAST, FEW, jobs=1, count=True)
    return out


def manifest_of(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


def test_the_manifest_says_what_lies_there(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = manifest_of(built)
    assert sorted(manifest["kernels"]) == sorted(FEW)
    assert manifest["tools"]["ptxas"].startswith("13.0")
    for symbol, entry in manifest["kernels"].items():
        for name in (*FAST, PTX):
            data = (built / entry[name]["file"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == entry[name]["sha256"]
        assert f".visible .entry {symbol}(" in (built / entry[PTX]["file"]).read_text()
        for name in FAST:
            code = (built / entry[name]["file"]).read_bytes()
            assert code.startswith(b"\x7fELF")
            assert symbol.encode() in code
            assert entry[name]["spill_store_bytes"] == 0
            assert 100 <= entry[name]["imad_wide"] <= 130
    listed = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert listed == {
        "manifest.json",
        *(e[name]["file"] for e in manifest["kernels"].values() for name in (*FAST, PTX)),
    }
    monkeypatch.setenv("PROVEFLEET_CUDA_KERNELS", str(built))
    monkeypatch.setattr("gpu.cuda.images.sources_digest", lambda: manifest["sources"])
    for capability, suffix in (((9, 0), ".cubin"), ((10, 0), ".ptx"), ((12, 1), ".cubin")):
        images = images_for(capability)
        assert sorted(images) == sorted(FEW)
        assert all(path.is_file() and path.suffix == suffix for path in images.values()), capability


def test_the_same_sources_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """In another process, in another folder, in another order."""
    command = [sys.executable, "-m", "gpu.cuda.build", str(tmp_path / "again"), "--jobs", "1", "--count"]
    command += [flag for name in FAST for flag in ("--arch", name)]
    command += [flag for symbol in reversed(FEW) for flag in ("--kernel", symbol)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    assert "2 kernels for sm_90, sm_120" in done.stdout
    here, there = manifest_of(built), manifest_of(tmp_path / "again")
    # Not the digest of the sources: somebody may edit one that these kernels are not made of.
    assert here | {"sources": None} == there | {"sources": None}


def test_only_what_is_not_up_to_date_is_made(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.cuda.build.sources_digest", lambda: manifest_of(built)["sources"])
    before = {path: path.stat().st_mtime_ns for path in built.rglob("*.*")}
    monkeypatch.setattr("gpu.cuda.build._compile_all", lambda *_: pytest.fail("compiles what is up to date"))
    build(built, FAST, FEW, jobs=1, count=True)
    assert {path: path.stat().st_mtime_ns for path in built.rglob("*.*")} == before
    monkeypatch.undo()
    # A damaged file is noticed, and made again.
    damaged = built / manifest_of(built)["kernels"][FEW[0]]["sm_90"]["file"]
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-1])
    build(built, FAST, FEW, jobs=1, count=True)
    assert damaged.read_bytes() == good


def test_a_missing_tool_or_kernel_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([str(tmp_path / "out"), "--kernel", "bn254_nothing", "--jobs", "1"]) == 1
    assert capsys.readouterr().err == "no kernel is called bn254_nothing\n"
    assert not (tmp_path / "out" / "manifest.json").exists()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    toolchain.tool.cache_clear()
    assert main([str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("no ptxas here; install the compiler")
    monkeypatch.undo()
    toolchain.tool.cache_clear()


def test_ptxas_complaints_are_refusals() -> None:
    with pytest.raises(Refused, match="ptxas failed: "):
        toolchain.assemble(".version 9.0\n.target sm_86\nnonsense", "k", "sm_86")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_accumulating_g1_keeps_its_registers(architecture: str) -> None:
    """168 registers let three blocks of 128 threads work at once; see docs/performance.md."""
    for symbol in ("bls12381_g1_accumulate", "bn254_g1_accumulate"):
        _, figures = toolchain.assemble(ptx_text(symbol), symbol, architecture)
        assert figures.registers <= 168, symbol
        assert figures.spill_store_bytes == figures.spill_load_bytes == figures.stack_bytes == 0, symbol


@pytest.mark.parametrize("architecture", ["sm_86", "sm_90", "sm_120"])
def test_accumulating_g2_spills_little(architecture: str) -> None:
    for symbol in ("bls12381_g2_accumulate", "bn254_g2_accumulate"):
        _, figures = toolchain.assemble(ptx_text(symbol), symbol, architecture)
        assert figures.spill_store_bytes <= 300, symbol
        assert figures.spill_load_bytes <= 300, symbol


@pytest.mark.parametrize("architecture", ["sm_86", "sm_90", "sm_120"])
@pytest.mark.parametrize(
    ("symbol", "ceiling"),
    [
        ("bls12381_fp_mul_chain", 300),
        ("bls12381_fr_mul_chain", 130),
        ("bn254_fp_mul_chain", 130),
        ("bn254_fr_mul_chain", 130),
    ],
)
def test_a_product_takes_few_multiply_adds(symbol: str, ceiling: int, architecture: str) -> None:
    """The loop's body is one product: as many 32x32+64-bit multiply-adds as the best hand-written code has."""
    cubin, _ = toolchain.assemble(ptx_text(symbol), symbol, architecture)
    counts: Counter[str] = toolchain.instructions(cubin)
    assert 0 < counts["IMAD.WIDE"] <= ceiling


def test_kernels_hold_no_floating_point_and_fit_into_shared_memory() -> None:
    assert symbols()
    for symbol in symbols():
        text = ptx_text(symbol)
        assert not re.search(r"\.f(16|32|64)\b", text), symbol
        functions, variables = parse(text)
        shared = [v for v in [*variables, *(v for f in functions for v in f.variables)] if v.space == "shared"]
        assert sum(variable.size for variable in shared) <= MAX_SHARED_BYTES, symbol
