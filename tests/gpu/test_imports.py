"""What each part may import: the controller's modules stay light, and a rented machine needs no control
plane.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.gpu.conftest import SNARKJS_FIXTURES

LIGHT = [
    "gpu.groth16",
    "gpu.groth16.verify",
    "gpu.groth16.zkey",
    "gpu.groth16.wtns",
    "gpu.groth16.r1cs",
    "gpu.groth16.formats",
    "gpu.circuits.chain",
    "gpu.circuits.merkle",
    "gpu.witness.calculate",
    "gpu.cli",
]


# What runs, or plans what runs, on a GPU.
ON_A_GPU = ["gpu.cuda.server", "gpu.cuda.client", "gpu.cuda.driver", "gpu.msm.launch", "gpu.ntt.launch"]


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("module", LIGHT)
def test_the_controllers_modules_import_no_numba_and_no_numpy(module: str) -> None:
    assert not {"numba", "numpy", "py_ecc", "py_arkworks_bls12381"} & loaded_after(f"import {module}")


def test_running_on_a_gpu_needs_no_compiler_of_kernels_and_touches_no_driver_by_import() -> None:
    loaded = loaded_after("import " + ", ".join(ON_A_GPU))
    assert not [name for name in loaded if name.startswith(("numba.cuda", "cuda."))]


def test_building_loads_no_compiler_before_there_is_work() -> None:
    assert not {"numba", "llvmlite"} & loaded_after("import gpu.cuda.build, gpu.cuda.images")


def test_prove_imports_nothing_of_the_control_plane(tmp_path) -> None:
    folder = SNARKJS_FIXTURES["bn254"]
    arguments = ["prove", *(str(folder / name) for name in ("circuit.zkey", "witness.wtns"))]
    arguments += [str(tmp_path / "p"), str(tmp_path / "q")]
    loaded = loaded_after(f"import provefleet; provefleet.main({arguments!r}, standalone_mode=False)")
    assert "numba" in loaded
    assert not {"flask", "sqlalchemy", "rq", "redis", "boto3", "py_ecc", "jobs", "web"} & loaded
