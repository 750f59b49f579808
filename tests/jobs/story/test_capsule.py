"""The capsule: whole, checkable without our software, the same each time, and without a secret."""

from __future__ import annotations

import io
import json
import re
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import payloads
from jobs.domain.models import Input, Instance, Proof, Run
from jobs.story.capsule import capsule, image_of

PLANTED = {
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB",
    "bearer": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "ours": "correct-horse-battery-staple",
    "password": "hunter2hunter2",
}
DIGEST = "sha256:" + "3f" * 32


def rows(**facts: Any) -> tuple[Run, Instance, list[Proof]]:
    key = Input(id="k", kind="zkey", name="chain.zkey", sha256="ab" * 32, size_bytes=1000)
    run = Run(
        id="7f3a" * 8, kind="benchmark", payload="groth16", state="broken", reason="0 of 2 proofs valid",
        inputs={"circuit": "chain/8/bls12381", "warm_up": {"sha256": "cd" * 32, "bytes": 90, "key": "runs/x"}},
        proofs=2, concurrency=3, partition_workers=4, max_duration_s=3600, zkey=key,
    )  # fmt: skip
    instance = Instance(
        id="1234" * 8, provider="vast", machine_id="27113", offer_id="9", reason="broken", image_ran=DIGEST,
        image_expected="ghcr.io/team/groth16:1@sha256:" + "00" * 32, facts=facts or {"gpus": [{"name": "RTX 4090"}]},
    )  # fmt: skip
    shapes = [(0, "12" * 32), (1, "34" * 32)]
    proofs = [Proof(index=i, witness_sha256=sha, witness_bytes=9, witness_name=f"chain-{i}") for i, sha in shapes]
    return run, instance, proofs


def unpacked(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_it_names_all_that_is_needed_and_checks_with_sha256sum(tmp_path: Path) -> None:
    run, instance, proofs = rows()
    data = capsule(run, instance, proofs, payloads.load("groth16"), [])
    files = unpacked(data)
    told = json.loads(files["capsule.json"])
    assert told["image"]["reference"] == f"ghcr.io/team/groth16:1@{DIGEST}"
    assert f"groth16:1@{DIGEST} /work/run.sh" in files["README.md"]
    assert "for i in $(seq 0 1); do" in files["README.md"]
    assert "Another image ran than was asked for" in files["README.md"]
    assert files["inputs.sha256"].splitlines() == [
        "ab" * 32 + "  params/key.zkey",
        "cd" * 32 + "  params/warm-up.wtns",
        "12" * 32 + "  witnesses/0.wtns",
        "34" * 32 + "  witnesses/1.wtns",
    ]
    assert told["machine"]["gpus"] == [{"name": "RTX 4090"}]
    last = files["run.sh"].splitlines()[-1]
    assert "--wtns /work/witnesses/0.wtns --wtns /work/witnesses/1.wtns --proofs 2 --concurrency 3" in last
    assert "--partition-workers 4 &" in files["run.sh"]
    assert not re.search(r"\{\w", files["run.sh"])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["sh", "-n", "run.sh"], cwd=tmp_path, check=True, capture_output=True)
    assert capsule(*rows(), payloads.load("groth16"), []) == data


def test_no_secret_is_in_it_wherever_it_was_planted() -> None:
    said = {
        "kernel": f"token={PLANTED['github']}",
        "api_key": PLANTED["password"],
        "nested": {"note": [f"Authorization: Bearer {PLANTED['bearer']}", {"password": PLANTED["password"]}]},
        f"x {PLANTED['aws']}": PLANTED["ours"],
        "gpus": [{"name": f"RTX {PLANTED['ours']}"}],
    }
    run, instance, proofs = rows(**said)
    run.reason = f"could not log in: aws_access_key_id={PLANTED['aws']} password={PLANTED['password']}"
    instance.reason = f"curl -H 'Authorization: Bearer {PLANTED['bearer']}'"
    instance.image_expected = f"https://user:{PLANTED['password']}@registry.example/x"
    proofs[0].witness_name = PLANTED["github"]
    assert run.zkey is not None
    run.zkey.name = f"{PLANTED['ours']}.zkey"
    env = {"PROVER_MODE": "fast", "HF_TOKEN": PLANTED["password"], "NOTE": PLANTED["ours"], "DB_PASSWORD": "short"}
    data = capsule(run, instance, proofs, replace(payloads.load("groth16"), env=env), [PLANTED["ours"]])
    files = unpacked(data)
    for text in files.values():
        assert not [name for name, secret in PLANTED.items() if secret in text]
    assert files["env.list"].splitlines()[0] == "PROVER_MODE=fast"
    assert "HF_TOKEN" not in files["env.list"]
    assert "DB_PASSWORD" not in files["env.list"]
    json.loads(files["capsule.json"])


def test_the_image_is_the_one_that_ran_and_without_one_the_program_itself_runs() -> None:
    run, instance, proofs = rows()
    instance.image_ran = ""
    assert image_of(instance) == instance.image_expected
    instance.image_expected = ""
    run.inputs = {"witnesses": ["w"]}
    readme = unpacked(capsule(run, instance, proofs, payloads.load("groth16"), []))["README.md"]
    assert "outside of an image" in readme
    assert "provefleet circuit" not in readme
