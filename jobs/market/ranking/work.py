"""What an offer is ranked for: the proofs that a run wants, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.domain.models import Input, Run


def work_of(run: Run, key: Input | None) -> str:
    """What is proved, by a name under which measurements can be compared: payload/curve/domain size."""
    facts = key.facts if key is not None else {}
    return f"{run.payload}/{facts.get('curve', 'unknown')}/{facts.get('domain_size', 0)}"


@dataclass(frozen=True)
class Work:
    """What one run wants. Seconds, dollars, bytes; `proofs` in one rental, `min_proofs_per_hour` None for any rate."""

    name: str
    proofs: int = 12
    min_proofs_per_hour: float | None = None
    max_dollars_per_hour: float | None = None
