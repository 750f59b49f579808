"""Very many ended runs, in bulk, for measuring."""

from __future__ import annotations

import hashlib

from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.market_models import LedgerDay
from jobs.domain.models import Instance, Run
from tests.web.seed_market import DAY


def many_runs(context: Context, count: int) -> None:
    """`count` more ended runs with an instance each, in bulk, for measuring."""
    now = context.now_ms()
    names = ("passed", "slow", "broken", "failed", "cancelled")
    runs, instances, ledger = [], [], []
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
                "spent_dollars": 0.0667,
                "accrued_ms": at + 800_000,
            }
        )
        ledger.append({"instance_id": key[32:], "day_ms": at - at % DAY, "gpu_dollars": 0.066, "disk_dollars": 0.0007})
    with writing(context.sessions) as session:
        for start in range(0, count, 5000):
            session.bulk_insert_mappings(Run, runs[start : start + 5000])  # type: ignore[arg-type]
            session.bulk_insert_mappings(Instance, instances[start : start + 5000])  # type: ignore[arg-type]
            session.bulk_insert_mappings(LedgerDay, ledger[start : start + 5000])  # type: ignore[arg-type]
