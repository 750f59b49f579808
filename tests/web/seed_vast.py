"""A marketplace with a past, for the pages that show one: offers, machines that were measured and marked, rentals of
every kind, money. See `seed`; deterministic like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from jobs.domain.market_models import Account, Cap, Charge, LedgerDay, Machine, Mark, Measurement, Offer, Snapshot
from jobs.domain.models import Instance
from tests.web.seed_market import DAY, HOSTILE, HOUR, MINUTE

if TYPE_CHECKING:
    from tests.web.seed import Seeder

GIB = 1 << 30
WORK = "groth16/bls12381/8192"
# model, GB of VRAM, $/h of one, proofs/h of one at this work
CARDS = (
    ("RTX 4090", 24, 0.38, 620.0),
    ("RTX 3090", 24, 0.19, 330.0),
    ("RTX 5090", 32, 0.62, 880.0),
    ("RTX A5000", 24, 0.21, 300.0),
    ("L40S", 48, 0.74, 610.0),
    ("H100 SXM", 80, 2.05, 1040.0),
)
PLACES = ("Sweden, SE", "Utah, US", "Quebec, CA", "Germany, DE", "Japan, JP", "")
OFFERS = 72
BAD = {"broken": 7, "slow": 3, "unstable": 11, "wrong_specs": 14}
"""Which of the offers stand on a machine with an active mark of that kind."""


PASSED_OVER = {
    "passed_over": 19,
    "passed_over_first": [
        ["48807", "marked broken 12 h ago: 0 of 12 proofs valid"],
        ["48802", "costs $1.103/h, over the limit of $0.6/h"],
        ["48866", HOSTILE[1]],
    ],
}


def machine_id(index: int) -> str:
    return str(48_800 + index)


def offers(seeder: Seeder, session: Session) -> None:
    for i in range(OFFERS):
        model, vram, price, _ = CARDS[i % len(CARDS)]
        count = (1, 1, 2, 1, 4)[i % 5]
        gpu = round(price * count * (0.85 + 0.3 * seeder.random.random()), 4)
        disk = 0.15 * 32 / 720
        session.add(
            Offer(
                provider="vast",
                offer_id=str(9_400_000 + 37 * i),
                machine_id=machine_id(i),
                host_id=str(4400 + i // 3),
                gpu_model=model,
                num_gpus=count,
                gpu_ram_bytes=vram * GIB,
                cpu_model=("AMD EPYC 7763 64-Core Processor", "Xeon Gold 6338", "AMD Ryzen 9 7950X")[i % 3],
                cpu_cores=8 * count * (1 + i % 2),
                ram_bytes=(32 + 32 * (i % 4)) * count * GIB,
                disk_bytes=(60 + 40 * (i % 7)) * GIB,
                dollars_per_hour=round(gpu + disk, 4),
                location=PLACES[i % len(PLACES)],
                facts={
                    "disk_gb": 32,
                    "gpu_dollars_per_hour": gpu,
                    "disk_dollars_per_gb_month": 0.15,
                    "min_bid_dollars_per_hour": round(gpu * 0.55, 4),
                    "inet_down_mbps": 900 - 9 * i,
                    "inet_up_mbps": 600 - 6 * i,
                    "dollars_per_gb_down": 0.004,
                    "dollars_per_gb_up": 0.006,
                    "reliability": 0.995 - 0.001 * (i % 9),
                    "verification": "verified" if i % 8 else "unverified",
                    "duration_s": (2 + i % 20) * DAY // 1000,
                    "cuda": 12.8 if i % 9 == 8 else 13.0,
                    "driver": "580.95.05",
                    "compute_capability": 8.9,
                    "direct_ports": 100,
                    "datacenter": i % 6 == 5,
                },
                seen_ms=seeder.now - MINUTE,
            )
        )
        session.add(
            Machine(
                provider="vast",
                machine_id=machine_id(i),
                host_id=str(4400 + i // 3),
                description=f"{count} x {model}",
                proofs_per_hour=None,
                measured_ms=None,
                first_seen_ms=seeder.now - 30 * DAY,
                last_seen_ms=seeder.now - MINUTE - i,
            )
        )
    first = session.get_one(Offer, ("vast", str(9_400_000)))
    columns = {c.key: getattr(first, c.key) for c in Offer.__table__.columns}
    wrong: dict[str, Any] = {
        "offer_id": HOSTILE[1][:64],
        "machine_id": "666",
        "host_id": HOSTILE[0],
        "gpu_model": HOSTILE[0],
    }
    wrong |= {
        "cpu_model": HOSTILE[4],
        "location": HOSTILE[1][:64],
        "facts": {"disk_gb": "lots", HOSTILE[0]: HOSTILE[1]},
    }
    session.add(Offer(**{**columns, **wrong}))
    seen_then = {"first_seen_ms": seeder.now - DAY, "last_seen_ms": seeder.now - MINUTE}
    session.add(Machine(provider="vast", machine_id="666", host_id=HOSTILE[0], description=HOSTILE[1], **seen_then))
    session.flush()


def measurements(seeder: Seeder, session: Session) -> None:
    """Every third machine was measured, once to four times, most recently hours ago."""
    for i in range(0, OFFERS, 3):
        model, _, price, rate = CARDS[i % len(CARDS)]
        count = (1, 1, 2, 1, 4)[i % 5]
        machine = session.get_one(Machine, ("vast", machine_id(i)))
        for k in range(1 + i % 4):
            measured = round(rate * count * (0.75 + 0.5 * seeder.random.random()), 1)
            at = seeder.now - 5 * HOUR - k * 3 * DAY - i * MINUTE
            session.add(
                Measurement(
                    provider="vast",
                    machine_id=machine_id(i),
                    host_id=str(4400 + i // 3),
                    gpu_model=model,
                    num_gpus=count,
                    cpu_model="AMD EPYC 7763 64-Core Processor",
                    cpu_cores=8 * count,
                    ram_bytes=64 * GIB,
                    work=WORK,
                    proofs_per_hour=measured,
                    low=measured * 0.93,
                    high=measured * 1.08,
                    proofs=12,
                    boot_s=70.0 + i,
                    params_s=31.0,
                    dollars_per_hour=price * count,
                    run_id=seeder.fleet.runs["passed"],
                    instance_id=None,
                    at_ms=at,
                )
            )
            if k == 0:
                machine.proofs_per_hour, machine.measured_ms = measured, at


def marks(seeder: Seeder, session: Session) -> None:
    reasons = {
        "broken": "0 of 12 proofs valid; proof 0: no kernel image is available for execution on the device",
        "slow": "12 of 12 proofs valid, 88.0 proofs/h, under the minimum of 300.0",
        "unstable": "only 11 of 12 proofs are valid; proof 4: the pairing check fails",
        "wrong_specs": "advertised RTX A5000 with 24 GiB, found RTX 3080 Ti with 12 GiB",
    }

    def add(index: int, kind: str, ago_ms: int, **more: Any) -> Mark:
        values: dict[str, Any] = {
            "provider": "vast",
            "machine_id": machine_id(index),
            "host_id": str(4400 + index // 3),
            "kind": kind,
            "reason": reasons[kind],
            "run_id": seeder.fleet.runs["broken"],
            "instance_id": seeder.fleet.gaps,
            "by": "benchmark",
            "at_ms": seeder.now - ago_ms,
            "fades_ms": seeder.now - ago_ms + 14 * DAY,
        }
        mark = Mark(**{**values, **more})
        session.add(mark)
        return mark

    for kind, index in BAD.items():
        add(index, kind, 5 * HOUR + index * HOUR)
    appealed = add(
        BAD["broken"],
        "slow",
        2 * DAY,
        by="operator",
        run_id=None,
        instance_id=None,
        reason="took 40 minutes to pull the image, twice",
        appeal="the host has moved to a faster line since",
        appealed_by="operator",
        appealed_ms=seeder.now - DAY,
    )
    add(BAD["broken"], "unstable", 40 * DAY, fades_ms=seeder.now - 12 * DAY)
    add(
        BAD["broken"],
        "slow",
        9 * DAY,
        withdrawn_ms=seeder.now - 8 * DAY,
        withdrawn_by="admin",
        withdrawn_reason="our own image was at fault",
    )
    add(0, "slow", 30 * DAY, fades_ms=seeder.now - 16 * DAY)
    for i, text in enumerate(HOSTILE):
        where = {"provider": "local", "machine_id": f"66{i}", "host_id": text[:64]}
        add(0, "broken", DAY, **where, reason=text, by=text[:64], appeal=text, appealed_by=text[:64])
    session.flush()
    seeder.fleet.mark = appealed.id


def seen(instance_id: str, **more: Any) -> dict[str, Any]:
    """A row of the provider's list, as `Instance.seen` keeps it."""
    facts = {
        "gpu_name": "RTX 4090",
        "num_gpus": 1,
        "disk_gb": 32.0,
        "ssh_direct": {"host": "88.21.4.7", "port": 20011},
        "ssh_proxy": {"host": "ssh5.vast.ai", "port": 31877},
        "intended": "running",
        "cur_state": "running",
        "min_bid": 0.24,
        "inet_down_mbps": 812.4,
        "location": "Sweden, SE",
        "driver": "580.95.05",
    }
    return {
        "provider_id": instance_id,
        "label": "",
        "status": "running",
        "detail": "success, running proof/agent",
        "dollars_per_hour": 0.2367,
        "interruptible": True,
        "boot_failed": "",
        "stopped_why": "",
        "facts": facts,
        **more,
    }


def forecast(rate: float, dollars: float) -> dict[str, Any]:
    return {
        "proofs_per_hour": rate,
        "low": rate * 0.8,
        "high": rate * 1.25,
        "dollars_per_proof": dollars,
        "dollars_low": dollars * 0.8,
        "dollars_high": dollars * 1.3,
        "chance": 0.83,
        "cost_to_find_out_dollars": 0.041,
        "all_in_dollars_per_hour": rate * dollars,
        "skipped": "",
        "why": f"expected {rate:.0f} proofs/h, ${dollars:.4f}/proof; measured twice on this machine",
    }


def hostile() -> dict[str, Any]:
    """What a marketplace may write of a machine, on an instance."""
    told = {"gpu_name": HOSTILE[1], "location": HOSTILE[4], "driver": HOSTILE[0], "intended": HOSTILE[2], "num_gpus": 1}
    told |= {"ssh_direct": {"host": HOSTILE[1], "port": HOSTILE[0]}}
    row = seen("1", status=HOSTILE[0], detail=HOSTILE[1], stopped_why=HOSTILE[2], boot_failed=HOSTILE[4], facts=told)
    return {"seen": row, "forecast": {**forecast(1.0, 1.0), "why": HOSTILE[1]}}


def rentals(seeder: Seeder, session: Session) -> None:
    """A bid that runs, one that pulls its image, one outbid and tried elsewhere, one billed higher than we thought."""
    vast = {"provider": "vast", "max_dollars": 2.0, "max_dollars_per_hour": 0.6}

    def rent(run: Any, state: str, index: int, **more: Any) -> Any:
        return seeder.instance(
            session,
            run,
            state,
            provider="vast",
            machine_id=machine_id(index),
            host_id=str(4400 + index // 3),
            offer_id=str(9_400_000 + 37 * index),
            provider_id=str(26_500_100 + index),
            disk_gb=32,
            image_expected="ghcr.io/provefleet/payload@sha256:" + "3f" * 32,
            forecast=forecast(598.0, 0.00064),
            price={
                "gpu_dollars_per_hour": 0.23,
                "disk_dollars_per_hour": 0.0067,
                "dollars_per_gb_down": 0.004,
                "dollars_per_gb_up": 0.006,
                "traffic_dollars": 0.0095,
            },
            **more,
        )

    bid = seeder.run(session, "active", 21 * MINUTE, reason="", interruptible=True, bid_dollars_per_hour=0.23, **vast)
    instance = rent(bid, "benchmarking", 6, bid_dollars_per_hour=0.23, dollars_per_hour=0.2367)
    instance.seen = seen(instance.provider_id)
    seeder.fleet.runs["bid"], seeder.fleet.instances["bid"] = bid.id, instance.id
    pulling = seeder.run(session, "active", 4 * MINUTE, reason="", **vast)
    instance = rent(pulling, "loading", 12, provider_status="loading")
    instance.seen = seen(
        instance.provider_id,
        status="loading",
        detail="a3ed95caeb02: Download complete; 6f28985ad184: Downloading 411MB/1.2GB <b>fast</b>",
        interruptible=False,
        facts={"intended": "running", "cur_state": "running", "gpu_name": HOSTILE[0], "num_gpus": 1},
    )
    seeder.fleet.instances["pulling"] = instance.id
    tried = seeder.run(session, "passed", 2 * HOUR, **vast)
    rent(tried, "destroyed", 9, reason="outbid: the provider stopped it", billed_dollars=0.0849)
    rent(tried, "destroyed", 15, billed_dollars=0.112)
    seeder.fleet.runs["tried"] = tried.id
    at = tried.created_ms
    for i, (kind, dollars) in enumerate((("gpu", 0.101), ("disk", 0.004), ("bwd", 0.006), ("bwu", 0.001))):
        session.add(
            Charge(
                provider="vast",
                provider_id=str(26_500_100 + 15),
                label="",
                kind=kind,
                begin_ms=at + i,
                end_ms=at + HOUR,
                dollars=dollars,
                fetched_ms=seeder.now - HOUR,
            )
        )


def money(seeder: Seeder, session: Session) -> None:
    session.add(
        Charge(
            provider="vast",
            provider_id="77",
            label=HOSTILE[1],
            kind=HOSTILE[0][:16],
            begin_ms=seeder.now - 2 * HOUR,
            end_ms=seeder.now - HOUR,
            dollars=3.2,
            fetched_ms=seeder.now - HOUR,
        )
    )
    session.add(
        Account(provider="vast", credit_dollars=14.2, read_ms=seeder.now - MINUTE, charged_until_ms=seeder.now - HOUR)
    )
    for scope, dollars in (("run", 5.0), ("day", 25.0), ("month", 400.0), ("user:operator", 120.0)):
        session.add(Cap(scope=scope, dollars=dollars, set_by="admin", set_ms=seeder.now - 3 * DAY))
    session.add(
        Snapshot(provider="vast", begun_ms=seeder.now - 4000, ended_ms=seeder.now - 3000, instances=[], error="")
    )


def account(seeder: Seeder, session: Session, row: Instance) -> None:
    """Our own account of a rental, up to now, as `jobs.market.accrual` keeps it."""
    if row.rented_ms is None:
        return
    end = row.ended_ms or seeder.now
    hours = (end - row.rented_ms) / HOUR
    gpu, disk, traffic = (row.dollars_per_hour - 0.007) * hours, 0.007 * hours, 0.004
    session.add(
        LedgerDay(
            instance_id=row.id,
            day_ms=row.rented_ms - row.rented_ms % DAY,
            gpu_dollars=gpu,
            disk_dollars=disk,
            traffic_dollars=traffic,
            billed_dollars=row.billed_dollars,
        )
    )
    row.spent_dollars, row.traffic_dollars, row.accrued_ms = gpu + disk + traffic, traffic, end
    session.flush()


def fill(seeder: Seeder, session: Session) -> None:
    """Everything of the marketplace; `seeder.fleet.runs` must be known."""
    offers(seeder, session)
    measurements(seeder, session)
    marks(seeder, session)
    rentals(seeder, session)
    money(seeder, session)
