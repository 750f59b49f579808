"""Reads compose.yaml with Compose itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

import pytest

from tests.images.builder import REPO

SECRETS = {
    "POSTGRES_PASSWORD": "secret-p",
    "VALKEY_PASSWORD": "secret-v",
    "S3_ACCESS_KEY_ID": "secret-i",
    "S3_SECRET_ACCESS_KEY": "secret-s",
}


def _run(argv: list[str], environ: dict[str, str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(argv, env=environ, input=given, capture_output=True, text=True, timeout=60, check=False)


def config(secrets: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`config` as JSON, by Compose 2 or Debian 12's own Compose 1."""
    with tempfile.NamedTemporaryFile(suffix=".env") as nothing:  # a developer's own .env must not decide here
        flags = ["--env-file", nothing.name, "-f", str(REPO / "compose.yaml"), "config"]
        if shutil.which("docker") and _run(["docker", "compose", "version"], {}).returncode == 0:
            return _run(["docker", "compose", *flags, "--format", "json"], secrets)
        if not shutil.which("docker-compose"):
            pytest.skip("no Compose here (on Debian: apt-get install docker-compose)")
        done = _run(["docker-compose", *flags], secrets)
    if done.returncode:
        return done
    # Compose 1 writes YAML only, and brings what reads it.
    turn = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"
    return _run(["/usr/bin/python3", "-c", turn], {}, done.stdout)
