"""gpu/cuda/driver.py over the real cuda-bindings, on a driver that keeps its memory on the host (libcuda.c)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.prover, pytest.mark.timeout(900)]  # the first to come compiles the kernels
HERE = Path(__file__).parent
CASES = re.findall(r"^def (case_\w+)", (HERE / "driver_cases.py").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here to build the stand-in for the driver")
    folder = tmp_path_factory.mktemp("libcuda")
    flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["gcc", *flags, "-o", folder / "libcuda.so.1", HERE / "libcuda.c"], check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.cuda.driver_cases"],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_the_driver(name: str, results: dict[str, str]) -> None:
    assert results[name] == "ok", results[name]


def test_without_a_driver_the_reason_is_one_line() -> None:
    """Where there is one after all, the missing kernels are the reason."""
    code = """
from gpu.cuda.device import GpuUnavailable, KernelsMissing
from gpu.cuda.driver import CudaDevice
def images(capability):
    raise KernelsMissing("none")
try:
    CudaDevice(images)
except GpuUnavailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) == 1
