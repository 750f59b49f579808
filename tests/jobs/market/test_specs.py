"""Advertised against found: what is forgiven, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.domain.market_models import Machine, Offer
from jobs.market import reputation, specs
from tests.jobs.rows import NOW, new_instance
from tests.jobs.scene import Scene

GIB = 1 << 30
OFFER = Offer(
    provider="vast", offer_id="1", machine_id="7", gpu_model="RTX 4090", num_gpus=2, gpu_ram_bytes=24_564 << 20,
    cpu_cores=16, ram_bytes=64 * GIB, disk_bytes=100 * 10**9, dollars_per_hour=0.4, facts={}, seen_ms=NOW,
)  # fmt: skip


def found(**more: Any) -> dict[str, Any]:
    card = {"name": "NVIDIA GeForce RTX 4090", "ram_bytes": 24_080 << 20}
    return {"gpus": [card, card], "cpu_cores": 16, "cpu_quota": None, "ram_bytes": 62 * GIB,
            "disk_free_bytes": 31 * 10**9, **more}  # fmt: skip


def card(name: str = "NVIDIA GeForce RTX 4090", gib: float = 23.5) -> list[dict[str, Any]]:
    return [{"name": name, "ram_bytes": gib * GIB}] * 2


@pytest.mark.parametrize(
    ("more", "lacks"),
    [
        ({}, ""),
        ({"gpus": card()[:1]}, "GPUs: 2 advertised, 1 found"),
        ({"gpus": []}, "GPUs: 2 advertised, 0 found"),
        ({"gpus": card("NVIDIA GeForce RTX 3090")}, "RTX 4090 advertised, NVIDIA GeForce RTX 3090 found"),
        ({"gpus": card("NVIDIA GeForce RTX 4090 D")}, ""),
        ({"gpus": card(gib=22.0)}, ""),
        ({"gpus": card(gib=16.0)}, "GPU memory: 25.76 GB advertised, 17.18 GB found"),
        ({"cpu_quota": 8.0}, "CPU cores: 16 advertised, 8 found"),
        ({"cpu_cores": 15}, ""),
        ({"ram_bytes": 32 * GIB}, "memory: 68.72 GB advertised"),
        ({"disk_free_bytes": 10 * 10**9}, "disk: 32 GB advertised, 10 GB found"),
        ({"gpus": "none", "cpu_cores": "many", "ram_bytes": -1, "disk_free_bytes": True}, ""),
    ],
)
def test_what_a_machine_lacks(more: dict[str, Any], lacks: str) -> None:
    said = "; ".join(specs.differences(OFFER, found(**more), 32))
    assert (lacks in said) if lacks else said == ""


def test_a_lack_is_a_mark_with_the_instance_as_its_evidence(scene: Scene) -> None:
    with scene.context.sessions() as session:
        session.merge(OFFER)
        session.add(Machine(provider="vast", machine_id="7", first_seen_ms=NOW, last_seen_ms=NOW))
        session.commit()
    instance = new_instance(scene.context, provider="vast", offer_id="1", machine_id="7", disk_gb=32)
    with scene.context.sessions() as session:
        assert specs.check(session, NOW, instance, found()) == []
        for _ in range(2):  # a registration may be sent again
            assert specs.check(session, NOW, instance, found(gpus=[]))
        (mark,) = reputation.marks_of(session, None, NOW)[("vast", "7")]
    assert (mark.kind, mark.instance_id, mark.by) == ("wrong_specs", instance.id, "agent")
    assert "2 advertised, 0 found" in mark.reason
