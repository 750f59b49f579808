"""`GET /status`: the shape of cuzk's own status, so that panels made for it can read ours, and fields of ours
beside it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

from gpu.pipeline import Partition
from gpu.service import Job, Service

SHOWN_S = 30.0  # a finished job stays in the picture for as long


def status(service: Service) -> dict[str, Any]:
    """JSON-ready. Sizes in bytes, times in the unit that each name ends with."""
    keys, stages = service.engine.keys.facts(), service.pipeline.facts()
    used = sum(key["n_bytes"] for key in keys) + stages["reserved"]
    jobs = service.jobs()
    open_proofs = [one for job in jobs for one in job.partitions if one.state not in ("done", "failed")]
    completed, failed = Counter(service.completed), Counter(service.failed)
    uptime = time.monotonic() - service.started_at
    return {
        "uptime_secs": round(uptime, 3),
        "memory": {
            "total_bytes": service.memory_bytes,
            "used_bytes": used,
            "available_bytes": max(0, service.memory_bytes - used),
        },
        "synthesis": {"max_concurrent": service.partition_workers, "active": stages["synthesizing"]},
        "pipelines": _pipelines(jobs),
        "gpu_workers": service.engine.backend.workers(),
        "allocations": _allocations(keys),
        "counters": {
            "total_completed": completed.total(),
            "total_failed": failed.total(),
            "completed_by_kind": dict(sorted(completed.items())),
            "failed_by_kind": failed_by_kind(failed),
            "queue_depth": stages["waiting"],
        },
        "buffers": {
            "synth_in_flight": stages["synthesizing"] + stages["ready"],
            "provers_in_flight": stages["gpu"],
            "aux_in_flight": 0,
            "shells_in_flight": 0,
            "pending_handles": stages["made"] + stages["verifying"],
        },
        "state": "draining" if service.draining else "ready",
        "pid": os.getpid(),
        "uptime_s": round(uptime, 3),
        "backend": service.engine.backend.name,
        "threads": service.engine.threads,
        "partition_workers": service.partition_workers,
        "active": len(open_proofs),
        "done": completed.total(),
        "failed": failed.total(),
        "key_budget_bytes": service.engine.keys.budget,
        "work_budget_bytes": service.pipeline.work_budget,
        "keys": keys,
    }


def failed_by_kind(failed: Counter[tuple[str, str]]) -> dict[str, int]:
    """Failures by kind of proof, whatever their reason."""
    out: Counter[str] = Counter()
    for (kind, _), count in failed.items():
        out[kind] += count
    return dict(sorted(out.items()))


def _pipelines(jobs: list[Job]) -> list[dict[str, Any]]:
    """Jobs under way and those that ended within the last 30 s, in the order they came."""
    now = time.monotonic()
    return [
        {
            "job_id": job.request.request_id,
            "proof_kind": job.partitions[0].kind,
            "started_secs_ago": round(now - job.accepted_at, 3),
            "total_partitions": len(job.partitions),
            "partitions_done": sum(one.state == "done" for one in job.partitions),
            "partitions": [_partition(index, one) for index, one in enumerate(job.partitions)],
        }
        for job in sorted(jobs, key=lambda job: job.accepted_at)
        if job.finished_at is None or now - job.finished_at < SHOWN_S
    ]


def _partition(index: int, one: Partition) -> dict[str, Any]:
    return {
        "index": index,
        "state": one.state,
        "synth_ms": one.timings_ms.get("synthesis"),
        "gpu_ms": one.timings_ms.get("compute"),
    }


def _allocations(keys: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Of each key, the points as `srs` and the unpacked coefficients as `pce`: what they are in cuzk."""

    def entry(key: dict[str, Any], n_bytes: int) -> dict[str, Any]:
        return {
            "circuit_id": os.path.basename(key["path"]),
            "bytes": n_bytes,
            "last_used_secs_ago": key["last_used_s"],
            "evictable": key["in_use"] == 0,
        }

    coefficients = [40 * key["n_coefficients"] for key in keys]
    return {
        "srs": [entry(key, key["n_bytes"] - c) for key, c in zip(keys, coefficients, strict=True)],
        "pce": [entry(key, c) for key, c in zip(keys, coefficients, strict=True)],
    }
