"""`GET /metrics` in Prometheus' text format 0.0.4: cuzk's names where they mean the same, ours for the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from gpu.service import Service
from gpu.status import failed_by_kind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_QUANTILES = (0.5, 0.9, 0.99)

Sample = tuple[Mapping[str, str], float]


def metrics(service: Service) -> str:
    """All families, each with its HELP and TYPE, samples in a fixed order."""
    completed, failed = Counter(service.completed), Counter(service.failed)
    stages, keys = service.pipeline.facts(), service.engine.keys.facts()
    workers = service.engine.backend.workers()
    jobs = [job for job in service.jobs() if not job.finished.is_set()]
    families: list[tuple[str, str, str, list[Sample]]] = [
        ("cuzk_uptime_seconds", "gauge", "Time since the daemon started.", _one(time.monotonic() - service.started_at)),
        ("cuzk_proofs_completed_total", "counter", "Proofs made and verified.", _one(completed.total())),
        ("cuzk_proofs_failed_total", "counter", "Proofs that were not made.", _one(failed.total())),
        ("cuzk_proofs_completed", "counter", "Proofs made, by kind.", _by("proof_kind", completed)),
        ("cuzk_proofs_failed", "counter", "Proofs not made, by kind.", _by("proof_kind", failed_by_kind(failed))),
        ("cuzk_queue_depth", "gauge", "Proofs that wait for a partition worker.", _one(stages["waiting"])),
        ("cuzk_running_jobs", "gauge", "Jobs that have not ended.", _one(len(jobs))),
        ("cuzk_gpu_workers", "gauge", "Processors that prove: GPUs, or one for the CPU.", _one(len(workers))),
        (
            "provefleet_failures_total",
            "counter",
            "Proofs not made, by kind and reason.",
            [({"proof_kind": kind, "reason": reason}, n) for (kind, reason), n in sorted(failed.items())],
        ),
        (
            "provefleet_proofs_in_stage",
            "gauge",
            "Proofs in each stage.",
            [({"stage": stage}, n) for stage, n in sorted(stages.items()) if stage != "reserved"],
        ),
        (
            "provefleet_workers_proving",
            "gauge",
            "Processors that prove now.",
            _one(sum(worker["state"] == "proving" for worker in workers)),
        ),
        ("provefleet_partition_workers", "gauge", "Threads that synthesise.", _one(service.partition_workers)),
        ("provefleet_keys_resident", "gauge", "Keys in memory.", _one(len(keys))),
        ("provefleet_key_bytes", "gauge", "Memory of resident keys.", _one(sum(key["n_bytes"] for key in keys))),
        ("provefleet_key_budget_bytes", "gauge", "Memory that keys may use.", _one(service.engine.keys.budget)),
        ("provefleet_work_bytes", "gauge", "Memory reserved for proofs under way.", _one(stages["reserved"])),
        ("provefleet_work_budget_bytes", "gauge", "Memory for proofs under way.", _one(service.pipeline.work_budget)),
        ("provefleet_draining", "gauge", "1 once the daemon takes no new jobs.", _one(service.draining)),
        (
            "provefleet_backend_info",
            "gauge",
            "The back end that proves.",
            [({"backend": service.engine.backend.name}, 1)],
        ),
    ]
    lines = [line for name, kind, text, samples in families for line in _family(name, kind, text, samples)]
    return "\n".join([*lines, *_durations(service), ""])


def _one(value: float) -> list[Sample]:
    return [({}, value)]


def _by(label: str, counts: Mapping[str, int]) -> list[Sample]:
    return [({label: name}, count) for name, count in sorted(counts.items())]


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(_line(name, *sample) for sample in samples)]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{'{' + inside + '}' if inside else ''} {int(value) if value == int(value) else float(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _durations(service: Service) -> list[str]:
    """Acceptance to answer of the proofs made; the quantiles are those of the last 1024."""
    name, recent = "cuzk_proof_duration_seconds", sorted(service.durations_s)
    quantiles = [
        ({"quantile": f"{q:g}"}, recent[min(len(recent) - 1, int(q * len(recent)))]) for q in _QUANTILES if recent
    ]
    return [
        *_family(name, "summary", "Time from acceptance to the checked proof.", quantiles),
        _line(f"{name}_sum", {}, service.duration_sum_s),
        _line(f"{name}_count", {}, Counter(service.completed).total()),
    ]
