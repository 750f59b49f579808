"""A fleet with something in every state, for tests of the pages and for their screenshots.

`seed(context)` fills an empty, migrated database; with `store` the archived streams have their bytes too.
Deterministic: the same clock gives the same rows.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

from argon2 import PasswordHasher
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.models import Artifact, Chunk, Event, Input, Instance, Machine, Offer, Proof, Run, User
from logs.chunks import ChunkCutter
from logs.store import Store
from logs.wire import artifact_key, bundle_key, chunk_key

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
RUN_STATES = ("queued", "active", "passed", "slow", "broken", "failed", "cancelled")
INSTANCE_STATES = (
    "renting",
    "loading",
    "fetching",
    "benchmarking",
    "ready",
    "proving",
    "serving",
    "sealing",
    "destroying",
    "destroyed",
    "not_rented",
)
PATHS = {  # the states that an instance went through before the one it is in
    "renting": [],
    "loading": ["renting"],
    "fetching": ["renting", "loading"],
    "benchmarking": ["renting", "loading", "fetching"],
    "ready": ["renting", "loading", "fetching", "benchmarking"],
    "proving": ["renting", "loading", "fetching", "ready"],
    "serving": ["renting", "loading", "fetching", "ready"],
    "sealing": ["renting", "loading", "fetching", "benchmarking"],
    "destroying": ["renting", "loading", "fetching", "benchmarking", "sealing"],
    "destroyed": ["renting", "loading", "fetching", "benchmarking", "sealing", "destroying"],
    "not_rented": ["renting"],
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
    zkey: str = ""
    witness: str = ""


class Seeder:
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
            mark = ("", "", "slow", "broken", "unstable", "")[i % 6]
            session.add(
                Machine(
                    provider="local",
                    machine_id=offer.machine_id,
                    host_id=host,
                    mark=mark,
                    description=f"{offer.num_gpus}x {gpu}" if gpu else "AMD EPYC 9454P, no GPU",
                    mark_reason={
                        "slow": "12 of 12 proofs valid, 88.0 proofs/h, under the minimum of 120.0",
                        "broken": "0 of 12 proofs valid; proof 0: no kernel image is available for execution on the device",
                        "unstable": "only 11 of 12 proofs are valid; proof 4: the pairing check fails",
                    }.get(mark, ""),
                    mark_run_id=self.fleet.runs.get("passed") if i % 6 in (0, 2, 3, 4) else None,
                    proofs_per_hour=None if i % 6 in (1, 5) else 40.0 + 13 * i,
                    measured_ms=None if i % 6 in (1, 5) else self.now - i * HOUR,
                    first_seen_ms=self.now - 30 * DAY,
                    last_seen_ms=self.now - 4 * MINUTE - i * 1000,
                )
            )
        for i, text in enumerate(HOSTILE):
            session.add(
                Machine(
                    provider="local",
                    machine_id=f"66{i}",
                    host_id=text[:64],
                    description=text[:300],
                    mark="broken",
                    mark_reason=text,
                    mark_run_id=None,
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

    def run(self, session: Session, state: str, ago_ms: int, **changes: Any) -> Run:
        rate = 240 + self.random.randrange(180)
        measured = {
            "proofs": 12,
            "verified": 12,
            "invalid": 0,
            "errors": 0,
            "proofs_per_hour": rate,
            "proofs_per_hour_low": rate * 0.91,
            "proofs_per_hour_high": rate * 1.09,
            "window_s": 12 / rate * 3600,
            "machine_ms_mean": 8123.4,
            "dollars_per_proof": 0.00541,
        }
        values: dict[str, Any] = {
            "id": self.new_id(),
            "kind": "benchmark",
            "payload": "groth16",
            "state": state,
            "stage": "waiting" if state == "queued" else "",
            "inputs": {"circuit": "chain/4096/bls12381"},
            "provider": "local",
            "max_dollars_per_hour": 0.9,
            "max_dollars": 4.0,
            "max_duration_s": 3600,
            "min_proofs_per_hour": 300.0,
            "proofs": 12,
            "concurrency": 3,
            "partition_workers": 2,
            "lease_s": 900,
            "result": measured if state in ("passed", "slow") else {},
            "created_by": "operator",
            "created_ms": self.now - ago_ms,
            "started_ms": self.now - ago_ms + 9000 if state != "queued" else None,
            "ended_ms": self.now - max(ago_ms - 14 * MINUTE, 1000) if state not in ("queued", "active") else None,
            "rentals": 1,
            "reason": {
                "passed": f"12 of 12 proofs valid, {rate:,.1f} proofs/h",
                "slow": f"12 of 12 proofs valid, {rate:,.1f} proofs/h, under the minimum of 600.0",
                "broken": "0 of 12 proofs valid; proof 0: no kernel image is available for execution on the device (sm_120)",
                "failed": "the prover was killed by SIGKILL after 3 of 12 proofs; no answer came",
                "cancelled": "wrong circuit, started by mistake",
            }.get(state, ""),
        }
        run = Run(**{**values, **changes})
        session.add(run)
        session.flush()
        self.event(session, run.created_ms, "operator", "run.requested", run=run)
        if run.started_ms:
            self.event(
                session,
                run.started_ms,
                "prepare",
                "run.state",
                "offer offer-48801 chosen",
                run=run,
                old="queued",
                new="active",
            )
        if run.ended_ms:
            self.event(session, run.ended_ms, "benchmark", "run.state", run.reason, run=run, old="active", new=state)
        return run

    def event(
        self,
        session: Session,
        at: int,
        actor: str,
        kind: str,
        reason: str = "",
        *,
        run: Run | None = None,
        instance: Instance | None = None,
        old: str = "",
        new: str = "",
    ) -> None:
        session.add(
            Event(
                at_ms=at,
                actor=actor,
                kind=kind,
                reason=reason,
                old=old,
                new=new,
                run_id=run.id if run else None,
                instance_id=instance.id if instance else None,
            )
        )

    def instance(self, session: Session, run: Run, state: str, **changes: Any) -> Instance:
        began = run.created_ms + 8000
        path = [*PATHS[state], state]
        steps = {
            "renting": 4000,
            "loading": 41_000,
            "fetching": 229_000,
            "benchmarking": 420_000,
            "sealing": 6_000,
            "destroying": 21_000,
        }
        at, moves = began, []
        for old, new in zip(path, path[1:], strict=False):
            at = min(at + steps.get(old, 30_000), self.now - 500)
            moves.append((at, old, new))
        index = self.count % 20
        ended = state in ("destroyed", "not_rented")
        stage = {
            "fetching": "params",
            "benchmarking": "benchmark",
            "proving": "prove",
            "serving": "serve",
            "sealing": "sealing",
        }
        values: dict[str, Any] = {
            "id": self.new_id(),
            "run_id": run.id,
            "label": f"provefleet:0c0ffee0:{self.count}",
            "provider": "local",
            "offer_id": f"offer-{48_800 + index}",
            "machine_id": f"{27_100 + index}",
            "host_id": f"{4400 + index // 2}",
            "provider_id": f"{self.count:016x}",
            "provider_status": "" if ended else "running",
            "state": state,
            "state_ms": at,
            "stage": stage.get(state, "loading"),
            "stage_ms": at,
            "stage_deadline_ms": at + HOUR,
            "moved_ms": max(at, self.now - 7000),
            "progress": {
                "stage": stage.get(state, ""),
                "round": 1,
                "done": 5,
                "failed": 0,
                "total": 12,
                "note": "proof 5",
            }
            if state in ("benchmarking", "proving")
            else {},
            "dollars_per_hour": 0.412,
            "reserved_dollars": 0.53,
            "lease_expires_ms": self.now + 700_000,
            "heard_ms": self.now - 4000,
            "facts": {
                "cpu_model": "AMD EPYC 9454P",
                "cpu_cores": 16,
                "ram_bytes": 64 << 30,
                "kernel": "6.8.0-45-generic",
                "gpus": [{"name": "RTX 4090", "driver": "580.95.05", "ram_bytes": 24 << 30}],
            },
            "telemetry": {"gpu0_util_percent": 97.0, "gpu0_temperature_c": 66.0, "ram_available_bytes": 41.5e9}
            if not ended
            else {},
            "evidence": "complete" if state in ("destroyed", "destroying") else "",
            "evidence_text": "complete, 1,204 lines in 3 streams" if state in ("destroyed", "destroying") else "",
            "evidence_sha256": hashlib.sha256(b"bundle").hexdigest() if state in ("destroyed", "destroying") else None,
            "created_ms": began,
            "rented_ms": None if state in ("renting", "not_rented") else began + 4000,
            "ended_ms": at if ended else None,
            "reason": "" if state != "not_rented" else "the offer was gone",
        }
        row = Instance(**{**values, **changes})
        session.add(row)
        session.flush()
        self.event(
            session, began, "prepare", "instance.intended", "offer at $0.412/h, $0.5300 reserved", run=run, instance=row
        )
        for when, old, new in moves:
            self.event(
                session,
                when,
                "deploy",
                "instance.state",
                "" if new != "sealing" else run.reason,
                run=run,
                instance=row,
                old=old,
                new=new,
            )
        return row

    def proofs(self, session: Session, run: Run, instance: Instance, verdicts: list[tuple[str, str]]) -> None:
        pulled = (instance.rented_ms or run.created_ms) + 270_000
        for i, (verdict, reason) in enumerate(verdicts):
            came = verdict != ""
            session.add(
                Proof(
                    run_id=run.id,
                    instance_id=instance.id,
                    round=1,
                    index=i,
                    witness_key="inputs/x",
                    witness_sha256="0" * 64,
                    witness_bytes=900,
                    witness_name=f"chain-{i}",
                    expected_public=["1"],
                    pulled_ms=pulled if came else None,
                    received_ms=pulled + 9_100 * (i + 1) if came else None,
                    machine_ms=8_900.0 + 13 * i if came else None,
                    verdict=verdict,
                    reason=reason,
                )
            )

    def stream(
        self, session: Session, instance: Instance, name: str, data: bytes, *, lose: tuple[int, ...] = ()
    ) -> None:
        """Archive `data` as a stream; the chunks numbered in `lose` never arrived."""
        cutter = ChunkCutter(name)
        at = (instance.rented_ms or instance.created_ms) + 60_000
        for start in range(0, len(data), 3000):
            cutter.feed(data[start : start + 3000], at)
            at += 2500
            record, frame = cutter.cut(at) or (None, b"")
            if record is None or record.seq in lose:
                continue
            session.add(
                Chunk(instance_id=instance.id, stream=name, stored_bytes=len(frame), received_ms=at, **record.to_dict())
            )
            if self.store is not None:
                self.store.put_once(chunk_key(instance.run_id or "none", instance.id, name, record.seq), frame)

    def artifacts(self, session: Session, instance: Instance) -> None:
        for name in ("proofs.json", "timings.json", "rounds/1/proof_0.json"):
            data = f'{{"name": "{name}"}}'.encode()
            key = artifact_key(instance.run_id or "none", instance.id, name)
            session.add(
                Artifact(
                    instance_id=instance.id,
                    name=name,
                    size_bytes=len(data),
                    sha256=hashlib.sha256(data).hexdigest(),
                    object_key=key,
                    created_ms=self.now - HOUR,
                )
            )
            if self.store is not None:
                self.store.put(key, data)
        if self.store is not None:
            self.store.put(bundle_key(instance.run_id or "none", instance.id), b"PK not really a zip")

    def lines(self, count: int) -> bytes:
        text = []
        for i in range(count):
            if i % 97 == 41:
                text.append(f"2026-11-30T11:{i % 60:02}:07Z ERROR cudaErrorNoKernelImageForDevice: {HOSTILE[i % 7]}")
            else:
                text.append(
                    f"2026-11-30T11:{i % 60:02}:07Z  INFO msm g1 window={16 + i % 4} bucket={self.random.randrange(1 << 20)} took {i % 90} ms"
                )
        return ("\n".join(text) + "\n").encode("utf-8", "surrogatepass")

    def fill(self, session: Session) -> Fleet:
        self.users(session)
        self.inputs(session)
        session.flush()
        good = [("valid", "")] * 12
        ends = {
            "passed": good,
            "slow": good,
            "broken": [("error", "prover: no kernel image is available for execution on the device")] * 12,
            "failed": [*good[:3], *[("", "")] * 9],
            "cancelled": [*good[:2], *[("", "")] * 10],
        }
        for i, (state, verdicts) in enumerate(ends.items()):
            run = self.run(session, state, (3 + 2 * i) * HOUR)
            self.fleet.runs[state] = run.id
            vanished = {
                "evidence": "vanished",
                "vanished_ms": self.now - HOUR,
                "evidence_sha256": None,
                "evidence_text": "machine vanished at 11:31:08; lines up to 11:31:06 are here",
            }
            instance = self.instance(session, run, "destroyed", **(vanished if state == "failed" else {}))
            self.fleet.instances.setdefault("destroyed", instance.id)
            self.proofs(session, run, instance, verdicts)
            self.stream(session, instance, "setup", self.lines(60))
            self.stream(session, instance, "bench", self.lines(1400), lose=(7, 8) if state == "broken" else ())
            self.stream(session, instance, "daemon", self.lines(220))
            self.artifacts(session, instance)
        self.fleet.runs["queued"] = self.run(
            session, "queued", 40_000, inputs={}, zkey_id=self.fleet.zkey, kind="prove"
        ).id
        for i, state in enumerate(s for s in INSTANCE_STATES if s not in ("destroyed",)):
            run = self.run(session, "active" if state != "not_rented" else "failed", (i + 6) * MINUTE, reason="")
            instance = self.instance(session, run, state)
            self.fleet.instances[state] = instance.id
            if state == "benchmarking":
                self.fleet.runs["active"] = run.id
                self.proofs(session, run, instance, [*good[:5], *[("", "")] * 7])
                self.stream(session, instance, "bench", self.lines(90))
        run = self.run(session, "failed", 26 * HOUR, reason=HOSTILE[0] + "\n" + HOSTILE[4], created_by=HOSTILE[0][:64])
        self.fleet.hostile_run = run.id
        instance = self.instance(
            session,
            run,
            "destroyed",
            machine_id="661",
            host_id=HOSTILE[1][:64],
            reason=HOSTILE[1],
            evidence="gaps",
            evidence_text=HOSTILE[3],
            provider_status=HOSTILE[0],
            image_expected=HOSTILE[2],
            image_ran=HOSTILE[1],
            facts={HOSTILE[0]: {HOSTILE[1]: HOSTILE[4]}},
            telemetry={HOSTILE[1]: 1.0},
        )
        self.fleet.hostile_instance = instance.id
        self.proofs(session, run, instance, [("error", text) for text in HOSTILE])
        for text in HOSTILE:
            self.event(session, run.created_ms + 60_000, text[:64], text[:48], text, run=run, instance=instance)
        self.stream(
            session,
            instance,
            "bench",
            "\n".join(HOSTILE).encode("utf-8", "surrogatepass") + b"\xff\xfe bad utf-8\n" + b"x" * 20_000 + b"\n",
        )
        self.market(session)
        self.event(session, self.now - 4 * MINUTE, "scan", "offers.scanned", "20 offers")
        return self.fleet


def seed(context: Context, store: Store | None = None) -> Fleet:
    """Fill the empty, migrated database of `context`."""
    seeder = Seeder(context, store)
    with writing(context.sessions) as session:
        return seeder.fill(session)


def many_runs(context: Context, count: int) -> None:
    """`count` more ended runs with an instance each, in bulk, for measuring."""
    now = context.now_ms()
    names = ("passed", "slow", "broken", "failed", "cancelled")
    runs, instances = [], []
    for i in range(count):
        key = hashlib.sha256(f"bulk {i}".encode()).hexdigest()
        at = now - 3 * DAY - i * 60_000
        runs.append(
            {
                "id": key[:32],
                "kind": "benchmark",
                "payload": "groth16",
                "state": names[i % 5],
                "inputs": {"circuit": "chain/4096/bn254"},
                "provider": "local",
                "max_duration_s": 3600,
                "proofs": 12,
                "concurrency": 1,
                "partition_workers": 1,
                "lease_s": 900,
                "result": {"proofs_per_hour": 200.0 + i % 90, "verified": 12, "dollars_per_proof": 0.004},
                "created_by": "operator",
                "created_ms": at,
                "started_ms": at + 1000,
                "ended_ms": at + 900_000,
                "reason": "12 of 12 proofs valid",
            }
        )
        instances.append(
            {
                "id": key[32:],
                "run_id": key[:32],
                "label": f"bulk:{i}",
                "provider": "local",
                "offer_id": "o",
                "machine_id": f"{27_100 + i % 500}",
                "state": "destroyed",
                "state_ms": at + 800_000,
                "stage_ms": at,
                "stage_deadline_ms": at,
                "moved_ms": at,
                "dollars_per_hour": 0.3,
                "reserved_dollars": 0.4,
                "created_ms": at + 500,
                "rented_ms": at + 900,
                "ended_ms": at + 800_000,
                "evidence": "complete",
            }
        )
    with writing(context.sessions) as session:
        for start in range(0, count, 5000):
            session.bulk_insert_mappings(Run, runs[start : start + 5000])  # type: ignore[arg-type]
            session.bulk_insert_mappings(Instance, instances[start : start + 5000])  # type: ignore[arg-type]
