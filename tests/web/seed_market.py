"""The rows that stand still: users, inputs, offers and machines. See `seed`."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from argon2 import PasswordHasher
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.market_models import Machine, Offer
from jobs.domain.models import Input, User
from jobs.market import reputation
from logs.store import Store

PASSWORD = "correct horse battery"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} ${7*7}",
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "user\u202egnp.exe \u2066hidden\u2069 \u200bzero",
    "' OR 1=1 --",
    "javascript:alert(1)",
    "a" * 400,
)
MARKS = {
    2: ("slow", "12 of 12 proofs valid, 88.0 proofs/h, under the minimum of 120.0"),
    3: ("broken", "0 of 12 proofs valid; proof 0: no kernel image is available on the device"),
    4: ("unstable", "only 11 of 12 proofs are valid; proof 4: the pairing check fails"),
}
GPUS = (("RTX 4090", 24), ("RTX PRO 4000", 24), ("RTX 5090", 32), ("H200", 141), ("", 0))


@dataclass
class Fleet:
    """What was seeded, by what a test asks for."""

    users: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    hostile_run: str = ""
    hostile_instance: str = ""
    gaps: str = ""
    mark: int = 0
    zkey: str = ""
    witness: str = ""


class Market:
    """Fills what runs stand on; `runs.passed` must be known before the machines that point at it."""

    def __init__(self, context: Context, store: Store | None):
        self.now = context.now_ms()
        self.random = random.Random(7)
        self.store = store
        self.fleet = Fleet()
        self.count = 0

    def new_id(self) -> str:
        self.count += 1
        return hashlib.sha256(f"seed {self.count}".encode()).hexdigest()[:32]

    def users(self, session: Session) -> None:
        # Cheap on purpose: the hash stores its own parameters, and tests sign in often.
        hashed = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
        for role in ("viewer", "operator", "admin"):
            row = User(id=self.new_id(), name=role, password_hash=hashed, role=role, created_ms=self.now - 40 * DAY)
            session.add(row)
            self.fleet.users[role] = row.id
        session.add(
            User(
                id=self.new_id(),
                name="newcomer",
                password_hash=hashed,
                role="viewer",
                must_change_password=True,
                created_ms=self.now,
            )
        )
        session.add(
            User(
                id=self.new_id(),
                name="gone",
                password_hash=hashed,
                role="admin",
                disabled=True,
                created_ms=self.now - 90 * DAY,
            )
        )

    def inputs(self, session: Session) -> None:
        for kind, name, state, facts in (
            (
                "zkey",
                "withdraw_final.zkey",
                "ready",
                {"curve": "bn254", "n_vars": 28_212, "n_public": 6, "domain_size": 32_768},
            ),
            ("wtns", "withdraw_01.wtns", "ready", {"curve": "bn254", "n_witness": 28_212}),
            ("wtns", "withdraw_02.wtns", "ready", {"curve": "bn254", "n_witness": 28_212}),
            ("zkey", "chain", "making", {}),
        ):
            row = Input(
                id=self.new_id(),
                kind=kind,
                name=name,
                state=state,
                sha256=hashlib.sha256(name.encode()).hexdigest(),
                size_bytes=18_432_000 if kind == "zkey" else 902_000,
                object_key="inputs/x",
                facts=facts,
                created_by="operator",
                created_ms=self.now - 5 * DAY,
                circuit="chain/65536/bn254" if state == "making" else None,
            )
            session.add(row)
            if name.endswith("final.zkey"):
                self.fleet.zkey = row.id
            if name.endswith("01.wtns"):
                self.fleet.witness = row.id
        for i, text in enumerate(HOSTILE[:3]):
            session.add(
                Input(
                    id=self.new_id(),
                    kind="wtns",
                    name=text,
                    state="refused",
                    reason=f"{text}: not a witness",
                    created_by=text[:64],
                    created_ms=self.now - i,
                    facts={},
                )
            )

    def market(self, session: Session) -> None:
        for i in range(24):
            gpu, ram = GPUS[i % len(GPUS)]
            host = f"{4400 + i // 2}"
            offer = Offer(
                provider="local",
                offer_id=f"offer-{48_800 + i}",
                machine_id=f"{27_100 + i}",
                host_id=host,
                gpu_model=gpu,
                num_gpus=(1 + i % 3) if gpu else 0,
                gpu_ram_bytes=ram << 30,
                cpu_model="AMD EPYC 9454P 48-Core Processor",
                cpu_cores=8 + 4 * (i % 7),
                ram_bytes=(32 + 16 * (i % 5)) << 30,
                disk_bytes=(120 + 60 * (i % 6)) << 30,
                dollars_per_hour=round(0.12 + 0.083 * i, 3),
                location=("DE", "US", "")[i % 3],
                facts={"trusted": i % 5 == 4},
                seen_ms=self.now - 4 * MINUTE,
                gone_ms=None if i < 20 else self.now - HOUR,
            )
            session.add(offer)
            session.add(
                Machine(
                    provider="local",
                    machine_id=offer.machine_id,
                    host_id=host,
                    description=f"{offer.num_gpus}x {gpu}" if gpu else "AMD EPYC 9454P, no GPU",
                    proofs_per_hour=None if i % 6 in (1, 5) else 40.0 + 13 * i,
                    measured_ms=None if i % 6 in (1, 5) else self.now - i * HOUR,
                    first_seen_ms=self.now - 30 * DAY,
                    last_seen_ms=self.now - 4 * MINUTE - i * 1000,
                )
            )
            session.flush()
            if said := MARKS.get(i % 6):
                run_id = self.fleet.runs.get("passed")
                reputation.mark(session, self.now - DAY, "local", offer.machine_id, *said, "benchmark", run_id=run_id)
        for i, text in enumerate(HOSTILE):
            session.add(
                Machine(
                    provider="local",
                    machine_id=f"66{i}",
                    host_id=text[:64],
                    description=text[:300],
                    first_seen_ms=self.now - DAY,
                    last_seen_ms=self.now - 2 * HOUR - i,
                )
            )
        session.add(
            Offer(
                provider="local",
                offer_id=HOSTILE[0],
                machine_id="660",
                gpu_model=HOSTILE[1],
                num_gpus=1,
                gpu_ram_bytes=1 << 30,
                cpu_model=HOSTILE[4],
                cpu_cores=2,
                ram_bytes=1 << 30,
                disk_bytes=1 << 30,
                dollars_per_hour=9.0,
                facts={},
                location=HOSTILE[0],
                seen_ms=self.now,
            )
        )
