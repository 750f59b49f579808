"""Which kernels a GPU gets, and what the engine does where it has no GPU, or one that it can't use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu.cuda import images, presence
from gpu.cuda.device import KernelsMissing, NoDevice
from gpu.cuda.sources import FORMAT, MANIFEST, sources_digest
from gpu.errors import Refused
from gpu.groth16.engine import Engine

NAMES = ("sm_86", "sm_89", "sm_90", "sm_120", "compute_86")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(images.SETTING, str(tmp_path))
    write(tmp_path)
    return tmp_path


def write(folder: Path, **changes: Any) -> None:
    """A manifest as `gpu.cuda.build` writes it, of one kernel."""
    files = {name: {"file": f"{name}/k"} for name in NAMES}
    manifest = {
        "format": FORMAT,
        "sources": sources_digest(),
        "images": {name: [] for name in NAMES},
        "kernels": {"k": files},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((8, 6), "sm_86"),
        ((8, 7), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90"),
        ((10, 0), "compute_86"),
        ((11, 0), "compute_86"),
        ((12, 0), "sm_120"),
        ((12, 1), "sm_120"),
        ((13, 0), "compute_86"),
    ],
)
def test_machine_code_where_it_fits_else_ptx(capability: tuple[int, int], name: str, folder: Path) -> None:
    assert images.images_for(capability) == {"k": folder / name / "k"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sources": "0" * 16}, "of another version"),
        ({"format": FORMAT + 1}, "of another version"),
        ({"images": {"sm_90": []}}, "no kernels for compute capability 8.6, only sm_90"),
        ({"images": {"avx": []}}, "can't be understood"),
        ({"kernels": {"k": {}}}, "can't be understood"),
        ({"kernels": []}, "can't be understood"),
    ],
)
def test_kernels_that_do_not_fit(changes: dict[str, Any], words: str, folder: Path) -> None:
    write(folder, **changes)
    with pytest.raises(KernelsMissing, match=words) as found:
        images.images_for((8, 6))
    assert "python -m gpu.cuda.build" in str(found.value)
    assert "\n" not in str(found.value)


def test_no_kernels(folder: Path) -> None:
    (folder / MANIFEST).write_text("{")
    with pytest.raises(KernelsMissing, match="can't be understood"):
        images.images_for((8, 6))
    (folder / MANIFEST).unlink()
    with pytest.raises(KernelsMissing, match="no compiled GPU kernels there"):
        images.kernel_folder()


@pytest.fixture
def engine_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes an engine for a setting and says which back end it chose."""

    def choose(wanted: str) -> str:
        monkeypatch.setenv("PROVEFLEET_PROVER_BACKEND", wanted)
        engine = Engine(threads=1)
        engine.close()
        return engine.backend.name

    return choose


def test_without_a_gpu_auto_is_quiet_and_cuda_refused(
    engine_with: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(presence, "_DEVICE_NODES", (str(tmp_path / "nothing"),))
    with pytest.raises(NoDevice):
        presence.look_for_gpus()
    assert engine_with("auto") != "cuda"
    assert capsys.readouterr().err == ""
    with pytest.raises(Refused, match=r"PROVEFLEET_PROVER_BACKEND=cuda: this machine shows no NVIDIA GPU"):
        engine_with("cuda")


def test_with_a_gpu_that_can_not_be_used_auto_says_why(
    engine_with: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(presence, "_DEVICE_NODES", (str(folder),))
    monkeypatch.setattr(presence.importlib.util, "find_spec", lambda name: True)
    (folder / MANIFEST).unlink()
    assert engine_with("auto") != "cuda"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "proving on the CPU, because" in said[0]
    assert "no compiled GPU kernels" in said[0]
    with pytest.raises(Refused, match="no compiled GPU kernels"):
        engine_with("cuda")
