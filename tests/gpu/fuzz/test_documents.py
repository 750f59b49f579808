"""Broken `vkey.json`, `proof.json`, `public.json` and inputs: refused by name in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu import cli
from gpu.errors import BadFile, ProofRejected
from tests.gpu.conftest import SNARKJS_FIXTURES
from tests.gpu.fuzz.documents import special, texts
from tests.gpu.fuzz.readers import light, refusal

pytestmark = pytest.mark.prover

FOLDER = SNARKJS_FIXTURES["bn254"]
GOOD = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("vkey", "proof", "public")}
GOOD["inputs"] = {"x": "3", "point.y": ["1", 2, [3, "0x4"]]}


@pytest.fixture(params=list(GOOD))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_faults_in_values_and_in_text(name: str, tmp_path: Path) -> None:
    reader, broken, outcomes = light()[name], tmp_path / "broken.json", {True: 0, False: 0}

    @settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(texts(GOOD[name]))
    def attempt(text: bytes) -> None:
        broken.write_bytes(text)
        outcomes[refusal(reader, broken) is None] += 1

    attempt()
    assert outcomes[False] > 100


def test_texts_that_trip_readers(name: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    for text in special(json.dumps(GOOD[name]).encode()):
        broken.write_bytes(text)
        refusal(light()[name], broken)


@pytest.mark.parametrize("text", [b"", b"[" * 10**6, b"\xff\xfe\x00", b"nul", b'{"pi_a": "\\ud800"}', b"1" * 10**6])
def test_the_command_refuses_in_one_line(text: bytes, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(text)
    good = {name: str(FOLDER / f"{name}.json") for name in ("vkey", "public", "proof")}
    for name in good:
        files = good | {name: str(broken)}
        done = CliRunner().invoke(cli.verify, [files["vkey"], files["public"], files["proof"]])
        assert done.exit_code == 1
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert str(broken) in done.stderr


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(st.binary(max_size=30))
def test_a_path_of_any_bytes_is_no_crash(raw: bytes) -> None:
    path = "/nowhere/" + raw.decode("utf-8", "surrogateescape")
    for reader in light().values():
        with pytest.raises((BadFile, ProofRejected)):
            reader(Path(path))
