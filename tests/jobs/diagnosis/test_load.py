"""Folders, bundles and their zips; and everything that is neither."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.diagnosis.case import BadCase
from jobs.diagnosis.cli import diagnose
from jobs.diagnosis.load import load_case

MANIFEST = {
    "exit_codes": {"bench": 1},
    "agent_manifest": {"signals": {"daemon": "SIGILL"}},
    "hardware": {"cpu_model": "old"},
    "telemetry": None,
}


def bundle(folder: Path) -> Path:
    path = folder / "evidence.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(MANIFEST))
        archive.writestr("streams/daemon.log", "one\nIllegal instruction (core dumped)\n")
        archive.writestr("streams/gpu.log", "time_ms,index,temperature_c\n1,0,50\n")
        archive.writestr("artifacts/proof.json", "{}")
        archive.writestr("chunks/daemon.jsonl", "{}")
        archive.writestr("../../escape.log", "no")
        archive.writestr("SHA256SUMS", "")
    return path


def test_a_bundle_as_zip_and_unpacked_is_one_case(tmp_path: Path) -> None:
    packed = load_case(bundle(tmp_path))
    with zipfile.ZipFile(tmp_path / "evidence.zip") as archive:
        archive.extractall(tmp_path / "un", [n for n in archive.namelist() if ".." not in n])
    unpacked = load_case(tmp_path / "un")
    assert packed.streams == unpacked.streams == {"daemon.log": ["one", "Illegal instruction (core dumped)"]}
    assert packed.facts == unpacked.facts
    assert packed.facts["run"]["signals"] == {"daemon": "SIGILL"}
    assert packed.gpu == [{"time_ms": "1", "index": "0", "temperature_c": "50"}]


def test_what_is_no_case_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "case.toml").write_text("[run\n")
    (tmp_path / "torn.zip").write_bytes(bundle(tmp_path).read_bytes()[:-30])
    for name in ("empty", "text", "bad", "nothing", "torn.zip"):
        result = CliRunner().invoke(diagnose, [str(tmp_path / name)])
        assert result.exit_code == 1, name
        assert result.output.count("\n") == 1, result.output
        assert "Traceback" not in result.output
    with pytest.raises(BadCase, match="can't be parsed"):
        load_case(tmp_path / "bad")


def test_links_and_pipes_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "setup.log").write_text("x\n")
    (tmp_path / "daemon.log").symlink_to("/etc/passwd")
    assert list(load_case(tmp_path).streams) == ["setup.log"]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_in_the_files_it_answers(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    junk = [
        "1",
        '"x"',
        "[1, 2]",
        "{ a = 1 }",
        "1e400",
        "nan",
        "true",
        '"sha256:zz"',
        '["a", {b=[]}]',
        "2026-01-01",
        '""',
        "-5",
    ]
    keys = ["run", "minutes", "hardware", "image", "provider", "telemetry", "fleet", "stages"]
    inner = [
        "stage_reached",
        "exit_codes",
        "signals",
        "loading",
        "compute_capability",
        "driver_cuda",
        "image_cuda",
        "digest",
        "expected_digest",
        "rate_reported",
        "min_rate",
        "gpu_util_mean",
        "benchmark",
        "status",
    ]

    def table(name: str) -> str:
        return f"[{name}]\n" + "\n".join(f"{key} = {rng.choice(junk)}" for key in rng.sample(inner, 6))

    names = rng.sample(keys, len(keys))
    text = "\n".join([f"{name} = {rng.choice(junk)}" for name in names[:2]] + [table(name) for name in names[2:]])
    (tmp_path / "case.toml").write_text(text)
    (tmp_path / "daemon.log").write_bytes(rng.randbytes(5000))
    (tmp_path / "bench.log").write_bytes(b"a" * 200_000 + b"\x00\xff\n" * 50)
    (tmp_path / "gpu.csv").write_bytes(
        rng.choice([b"", b"\n\n", b"a,b\n1\n", b'temperature,"\n\x00', rng.randbytes(300)])
    )
    result = CliRunner().invoke(diagnose, [str(tmp_path), "--json"])
    if result.exit_code == 0:
        assert {"stage", "outcome", "hypotheses", "next_step"} <= set(json.loads(result.output))
    else:
        assert result.exit_code == 1
        assert "can't be parsed" in result.output


def test_it_needs_no_database_and_no_site() -> None:
    modules = "jobs.diagnosis.cli, jobs.diagnosis.engine, jobs.diagnosis.load"
    code = f"import sys, {modules}; print(sorted({{'flask', 'sqlalchemy', 'rq', 'boto3'}} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
