"""A fleet with something in every state, for tests of the pages and for their screenshots.

`seed(context)` fills an empty, migrated database; with `store` the archived streams have their bytes too.
Deterministic: the same clock gives the same rows.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.models import Artifact, Chunk, Event, Instance, Proof, Run
from logs.chunks import ChunkCutter
from logs.store import Store
from logs.wire import artifact_key, bundle_key, chunk_key
from tests.web import seed_vast
from tests.web.seed_diagnosis import diagnosed
from tests.web.seed_logs import known_of
from tests.web.seed_market import HOSTILE, HOUR, MINUTE, PASSWORD, Fleet, Market

__all__ = ["HOSTILE", "PASSWORD", "Fleet", "seed"]

RUN_STATES = ("queued", "active", "passed", "slow", "broken", "failed", "cancelled")
INSTANCE_STATES = (
    "renting", "loading", "fetching", "benchmarking", "ready", "proving", "serving", "sealing", "destroying",
    "destroyed", "not_rented",
)  # fmt: skip
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


class Seeder(Market):
    """And the runs, with their machines, proofs, streams and events."""

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
                "broken": "0 of 12 proofs valid; proof 0: no kernel image is available for execution on the device ",
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
        data: dict[str, Any] | None = None,
    ) -> None:
        session.add(
            Event(
                at_ms=at,
                actor=actor,
                kind=kind,
                reason=reason,
                old=old,
                new=new,
                data=data or {},
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
        for old, new in pairwise(path):
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
        seed_vast.account(self, session, row)
        self.event(
            session, began, "prepare", "instance.intended", "$0.412/h, $0.5300 reserved", run=run, instance=row,
            data=seed_vast.PASSED_OVER if row.provider == "vast" else {},
        )  # fmt: skip
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
        cutter, edge = ChunkCutter(name), b""
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
            session.add(known := known_of(instance.id, name, record, frame, edge))
            edge = known.edge
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
                    f"2026-11-30T11:{i % 60:02}:07Z  INFO msm window={16 + i % 4} "
                    f"bucket={self.random.randrange(1 << 20)} took {i % 90} ms"
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
            gaps = {"evidence": "gaps", "evidence_text": "bench: lines 479-565 missing"}
            vanished = {
                "evidence": "vanished",
                "vanished_ms": self.now - HOUR,
                "evidence_sha256": None,
                "evidence_text": "vanished at 11:31:08; the lines up to 11:31:06 are here",
            }
            instance = self.instance(session, run, "destroyed", **{"failed": vanished, "broken": gaps}.get(state, {}))
            self.fleet.instances.setdefault("destroyed", instance.id)
            if state == "broken":
                self.fleet.gaps = instance.id
                diagnosed(session, self.now, run, instance, self.lines(1400).decode("utf-8", "replace").splitlines())
            self.proofs(session, run, instance, verdicts)
            self.stream(session, instance, "setup", self.lines(60))
            self.stream(session, instance, "bench", self.lines(1400), lose=(11, 12) if state == "broken" else ())
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
            **seed_vast.hostile(),
        )
        self.fleet.hostile_instance = instance.id
        diagnosed(session, self.now, run, instance, [f"CUDA_ERROR_NO_BINARY_FOR_GPU {text}" for text in HOSTILE])
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
        seed_vast.fill(self, session)
        self.event(session, self.now - 4 * MINUTE, "scan", "offers.scanned", "20 offers")
        return self.fleet


def seed(context: Context, store: Store | None = None) -> Fleet:
    """Fill the empty, migrated database of `context`."""
    seeder = Seeder(context, store)
    with writing(context.sessions) as session:
        return seeder.fill(session)
