"""GPU telemetry over a stand-in for NVML (libnvidia-ml.c), built by gcc and told by a file what GPUs there are."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.agent.telemetry import COLUMNS

HERE = Path(__file__).parent
GPU = {
    "utilization": 3, "memory_used": 1 << 30, "temperature": 41, "power_mw": 120_500, "power_limit_mw": 450_000,
    "power_default_mw": 600_000, "clock_sm": 1200, "clock": 900, "clock_max": 1980, "pcie_gen": 1, "pcie_width": 16,
    "pcie_gen_max": 4, "pcie_width_max": 16, "throttle": 4 | 64, "ecc": 2, "energy_mj": 5_000_000,
}  # fmt: skip
DRIVE = """
import json, pathlib, sys
from gpu.agent.telemetry import GpuTelemetry

class Source:
    def feed(self, data): out.append(data.decode())

out, told, now = [], [], iter(range(1000, 9999, 1000))
telemetry = GpuTelemetry(Source(), lambda name, **values: told.append([name, values]), lambda: next(now))
states = json.loads(sys.argv[2])
latest = []
for i, state in enumerate(states):
    pathlib.Path(sys.argv[1]).write_text(state)
    if i == 0 and not telemetry.open():
        break
    telemetry.sample()
    latest.append(telemetry.latest())
seen = {"text": "".join(out), "told": told, "latest": latest, "driver": telemetry.driver, "cuda": telemetry.cuda}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here to build the stand-in for NVML")
    folder = tmp_path_factory.mktemp("nvml")
    flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", folder / "libnvidia-ml.so.1", HERE / "libnvidia-ml.c"], check=True, timeout=60)
    return folder


def state(*gpus: dict[str, int]) -> str:
    lines = [f"{key}.{i} {value}" for i, gpu in enumerate(gpus) for key, value in gpu.items()]
    return "\n".join([f"count.0 {len(gpus)}", *lines, ""])


def drive(folder: Path, library: Path | str, *states: str) -> Any:
    told = folder / "gpus"
    done = subprocess.run(
        [sys.executable, "-c", DRIVE, told, json.dumps(states)],
        env={"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(told)},
        capture_output=True, text=True, timeout=60, cwd=HERE.parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(seen: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(seen["text"].splitlines()))


def test_the_figures_of_several_gpus(tmp_path: Path, library: Path) -> None:
    seen = drive(tmp_path, library, state(GPU, {**GPU, "utilization": 97}))
    assert seen["text"].splitlines()[0].split(",") == list(COLUMNS)
    first, second = rows(seen)
    assert (first["time_ms"], first["index"], first["name"]) == ("1000", "0", "NVIDIA Fake 0")
    assert (second["index"], second["utilization_gpu_percent"]) == ("1", "97")
    assert (first["memory_used_mib"], first["memory_total_mib"]) == ("1024", "81920")
    assert (first["power_w"], first["power_limit_w"], first["power_default_limit_w"]) == ("120.5", "450.0", "600.0")
    assert (first["pcie_gen"], first["pcie_gen_max"], first["pcie_width"]) == ("1", "4", "16")
    assert first["throttle_reasons"] == "sw_power_cap|hw_thermal_slowdown"
    assert first["ecc_uncorrected"] == "0", "errors from before we began are not ours"
    assert first["xid"] == ""
    assert (seen["driver"], seen["cuda"]) == ("580.95.05", "13.0")
    assert seen["latest"][0]["gpu1_util_percent"] == 97.0
    assert seen["latest"][0]["gpu0_ram_used_bytes"] == 1 << 30


def test_errors_energy_and_the_link_under_load(tmp_path: Path, library: Path) -> None:
    busy = {**GPU, "utilization": 90, "pcie_gen": 3, "pcie_width": 8, "energy_mj": 5_700_000}
    seen = drive(tmp_path, library, state(GPU), *[state(busy)] * 4, state({**busy, "ecc": 5, "xid": 94}))
    assert [row["ecc_uncorrected"] for row in rows(seen)] == ["0", "0", "0", "0", "0", "3"]
    assert [row["xid"] for row in rows(seen)] == ["", "", "", "", "", "94"]
    assert seen["told"] == [["xid", {"gpu": 0, "xid": 94}]]
    assert "gpu0_pcie_gen_under_load" not in seen["latest"][4], "an idle link is narrow by design"
    last = seen["latest"][5]
    assert (last["gpu0_pcie_gen_under_load"], last["gpu0_pcie_width_under_load"]) == (3.0, 8.0)
    assert last["gpu0_energy_j"] == 700.0


def test_a_gpu_that_falls_off_the_bus_is_told_once_and_the_other_goes_on(tmp_path: Path, library: Path) -> None:
    lost = state(GPU, {**GPU, "lost": 1, "xid": 79})
    seen = drive(tmp_path, library, state(GPU, GPU), lost, lost)
    assert seen["told"] == [
        ["xid", {"gpu": 1, "xid": 79}],
        ["gpu_lost", {"gpu": 1, "model": "NVIDIA Fake 1", "error": "GPU is lost"}],
    ]
    assert [(row["index"], row["temperature_c"], row["xid"]) for row in rows(seen)] == [
        ("0", "41", ""), ("1", "41", ""), ("0", "41", ""), ("1", "", "79"), ("0", "41", ""),
    ]  # fmt: skip
    assert not [name for name in seen["latest"][2] if name.startswith("gpu1_")]


def test_what_a_driver_does_not_know_is_left_empty(tmp_path: Path, library: Path) -> None:
    (row,) = rows(drive(tmp_path, library, state({"temperature": 50})))
    assert row["temperature_c"] == "50"
    assert {row[name] for name in COLUMNS[3:] if name not in ("temperature_c",)} == {""}


def test_without_a_driver_or_a_library_one_line_says_so(tmp_path: Path, library: Path) -> None:
    assert drive(tmp_path, library, "")["text"] == "no GPU telemetry on this machine (NVML: Driver Not Loaded)\n"
    assert drive(tmp_path, library, state())["text"].endswith("(NVML shows none, driver 580.95.05)\n")
    text = drive(tmp_path, tmp_path, "")["text"]
    assert text.startswith("no GPU telemetry on this machine (NVML: ")
    assert text.count("\n") == 1
