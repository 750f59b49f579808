"""What is kept of machines that are not what was advertised."""

from __future__ import annotations

from typing import Any

from jobs.domain.market_models import Machine, Offer
from jobs.domain.models import Instance
from jobs.market import reputation, specs
from tests.jobs.rows import NOW, new_instance
from tests.jobs.scene import Scene

GIB = 1 << 30
OFFER = Offer(
    provider="vast", offer_id="1", machine_id="7", gpu_model="RTX 4090", num_gpus=2, gpu_ram_bytes=24_564 << 20,
    cpu_cores=16, ram_bytes=64 * GIB, disk_bytes=100 * 10**9, dollars_per_hour=0.4,
    facts={"pcie_gen": 4.0, "pcie_lanes": 16}, seen_ms=NOW,
)  # fmt: skip


def found(**more: Any) -> dict[str, Any]:
    card = {"name": "NVIDIA GeForce RTX 4090", "ram_bytes": 24_080 << 20}
    return {"gpus": [card, card], "cpu_cores": 16, "cpu_quota": None, "ram_bytes": 62 * GIB,
            "disk_free_bytes": 31 * 10**9, **more}  # fmt: skip


def rented(scene: Scene) -> Instance:
    with scene.context.sessions() as session:
        session.merge(OFFER)
        session.add(Machine(provider="vast", machine_id="7", first_seen_ms=NOW, last_seen_ms=NOW))
        session.commit()
    return new_instance(scene.context, provider="vast", offer_id="1", machine_id="7", disk_gb=32)


def test_a_lack_is_a_mark_with_the_instance_as_its_evidence(scene: Scene) -> None:
    instance = rented(scene)
    with scene.context.sessions() as session:
        assert specs.check(session, NOW, instance, found()) == []
        for _ in range(2):  # a registration may be sent again
            assert specs.check(session, NOW, instance, found(gpus=[]))
        (mark,) = reputation.marks_of(session, None, NOW)[("vast", "7")]
    assert (mark.kind, mark.instance_id, mark.by) == ("wrong_specs", instance.id, "agent")
    assert "2 advertised, 0 found" in mark.reason


def test_differences_are_noted_once(scene: Scene) -> None:
    instance = rented(scene)
    slow = {"gpu0_pcie_width_under_load": 8.0, "gpu0_pcie_gen_under_load": 3.0}
    with scene.context.sessions() as session:
        for _ in range(2):
            specs.check(session, NOW, instance, found(cpu_quota=8.0))
            specs.check_under_load(session, NOW, instance, {"load_1m": 2.0, "gpu0_util_percent": 99.0})
            specs.check_under_load(session, NOW, instance, slow)
        assert specs.noted(session, instance.id) == [
            "CPU cores: 16 advertised, 8 found",
            "PCIe 16x Gen4 advertised, 8x Gen3 under load",
        ]
        (mark,) = reputation.marks_of(session, None, NOW)[("vast", "7")]
    assert "PCIe" not in mark.reason, "a narrow link is a slow machine, no other one"
