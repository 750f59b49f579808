"""compose.yaml as Compose itself reads it."""

from __future__ import annotations

import json

import pytest

from tests.images.compose import SECRETS, config

PARTS = {"site", "machine", "worker", "cron", "reconcile"}


@pytest.mark.parametrize("name", SECRETS)
def test_it_refuses_a_missing_secret(name: str) -> None:
    done = config({k: v for k, v in SECRETS.items() if k != name})
    assert done.returncode != 0
    assert "set it in .env" in done.stderr


def test_every_part_is_there_and_waits_for_the_schema(services: dict) -> None:
    assert set(services) == PARTS | {"postgres", "valkey", "seaweedfs", "migrate"}
    for part in PARTS:
        needs = services[part]["depends_on"]
        assert needs["migrate"]["condition"] == "service_completed_successfully", part
        for store in ("postgres", "valkey", "seaweedfs"):
            assert needs[store]["condition"] == "service_healthy", part


def test_every_part_has_a_health_check(services: dict) -> None:
    for name, service in services.items():
        if name not in ("migrate", "cron"):
            assert service["healthcheck"]["test"], name


def test_only_loopback_is_published(services: dict) -> None:
    published = {name: service["ports"] for name, service in services.items() if service.get("ports")}
    assert set(published) == {"site", "machine"}
    for ports in published.values():
        assert all("127.0.0.1" in json.dumps(port) for port in ports)


def test_parts_may_do_little(services: dict) -> None:
    for part in PARTS | {"migrate"}:
        assert services[part]["read_only"], part
        assert services[part]["cap_drop"] == ["ALL"], part


def test_reconcile_sees_the_worker_s_processes(services: dict) -> None:
    assert services["reconcile"]["pid"] == "service:worker"


def test_settings_are_ones_that_the_product_reads(services: dict) -> None:
    from jobs.settings import PREFIX, Settings

    known = {PREFIX + name.upper() for name in Settings.model_fields}
    given = {name for name in services["site"]["environment"] if name.startswith(PREFIX)}
    assert given <= known
