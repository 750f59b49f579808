"""Settings: the environment first, the rest from services.json, and docs that name them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.services import known
from jobs.services.errors import ServiceError
from jobs.settings import Settings, given_settings, load_settings

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PROVEFLEET_{name.upper()}", raising=False)
    monkeypatch.setenv("PROVEFLEET_STATE_DIR", str(tmp_path))


def test_docs_explain_every_setting_and_no_other() -> None:
    explained = re.findall(r"^\| `PROVEFLEET_([A-Z0-9_]+)`", DOCS.read_text(), re.MULTILINE)
    assert sorted(explained) == sorted(name.upper() for name in Settings.model_fields)


def test_docs_state_the_defaults() -> None:
    rows = dict(re.findall(r"^\| `PROVEFLEET_([A-Z0-9_]+)` \| `?([\w.:/-]+)`?[^|]*\|", DOCS.read_text(), re.MULTILINE))
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float):
            assert float(rows[name.upper()]) == field.default


def test_before_the_first_up() -> None:
    settings = load_settings()
    assert settings.site_bind == settings.s3_endpoint == ""
    assert "valkey.sock" in settings.redis_url.get_secret_value()


def test_the_rest_comes_from_the_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = known.generate().with_ports(
        site="127.0.0.1:21000", agent="127.0.0.1:21001", s3={name: 22000 + n for n, name in enumerate(known.S3_PORTS)}
    )
    known.write(tmp_path, services)
    monkeypatch.setenv("PROVEFLEET_AGENT_BIND", "127.0.0.1:9")
    settings = load_settings()
    assert settings.site_bind == "127.0.0.1:21000"
    assert (settings.agent_bind, settings.public_url) == ("127.0.0.1:9", "http://127.0.0.1:9")
    assert settings.s3_endpoint == settings.s3_public_endpoint == "http://127.0.0.1:22000"
    assert settings.s3_secret_access_key.get_secret_value() == services.s3_secret_access_key
    assert services.s3_secret_access_key not in repr(settings) + repr(services)


def test_a_store_of_ones_own_needs_no_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known.write(tmp_path, known.generate())
    for name, value in {"ENDPOINT": "https://s3.example", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"PROVEFLEET_S3_{name}", value)
    settings = load_settings()
    assert (settings.s3_endpoint, settings.s3_access_key_id) == ("https://s3.example", "a")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SITE_BIND", "8000", "HOST:PORT"),
        ("AGENT_BIND", "127.0.0.1:70000", "HOST:PORT"),
        ("PUBLIC_URL", "fleet.example", "https://"),
        ("WORKERS", "0", "PROVEFLEET_WORKERS"),
        ("PROVER_BACKEND", "magic", "'auto'"),
        ("S3_ENDPOINT", "https://s3.example", "PROVEFLEET_S3_ACCESS_KEY_ID and PROVEFLEET_S3_SECRET_ACCESS_KEY"),
    ],
)
def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    monkeypatch.setenv(f"PROVEFLEET_{name}", value)
    with pytest.raises(ServiceError) as error:
        given_settings()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_secret_is_not_quoted_in_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVEFLEET_VAST_API_KEY", "hunter2")
    monkeypatch.setenv("PROVEFLEET_WORKERS", "many")
    with pytest.raises(ServiceError) as error:
        given_settings()
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', "\x00"])
def test_a_damaged_file_is_an_error_that_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / known.FILE).write_text(text)
    with pytest.raises(ServiceError, match="is damaged"):
        load_settings()
