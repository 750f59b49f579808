"""The success that a failure is best compared with: the same payload and circuit, then GPU model, then machine."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import Session, defer, joinedload

from jobs.domain.archive_models import Archive
from jobs.domain.models import Chunk, Instance, Run
from jobs.market.ranking.likeness import plain

LOOKED_AT = 100
"""How many successes, the newest first, are weighed."""


@dataclass(frozen=True)
class Near:
    """A machine of a run that passed, with its logs. `same`: what it shares with the failure, in words."""

    instance: Instance
    run: Run
    same: tuple[str, ...]


def nearest_success(session: Session, instance: Instance, run: Run) -> Near | None:
    """None where no run of this payload and circuit has passed and still has its logs."""
    what = _same_circuit(run)
    if what is None:
        return None
    expired = exists().where(Archive.instance_id == Instance.id, Archive.expired_ms.is_not(None))
    query = (
        select(Instance)
        .join(Run, Run.id == Instance.run_id)
        .options(defer(Instance.agent_manifest), joinedload(Instance.run))
        .where(Run.state == "passed", Run.payload == run.payload, Run.id != run.id, what)
        .where(exists().where(Chunk.instance_id == Instance.id), ~expired, Instance.evidence != "")
        .order_by(Run.created_ms.desc())
        .limit(LOOKED_AT)
    )
    found = [_near(instance, other, other.run) for other in session.scalars(query) if other.run is not None]
    return max(found, key=lambda near: _rank(near, run), default=None)


def _same_circuit(run: Run) -> ColumnElement[bool] | None:
    if circuit := run.inputs.get("circuit"):
        return Run.inputs["circuit"].as_string() == str(circuit)
    return Run.zkey_id == run.zkey_id if run.zkey_id else None


def _near(failed: Instance, other: Instance, run: Run) -> Near:
    same = ["payload and circuit"]
    if failed.gpu_names and _models(failed) == _models(other):
        same.append("GPU model")
    if failed.machine_id and (failed.provider, failed.machine_id) == (other.provider, other.machine_id):
        same.append("machine")
    return Near(other, run, tuple(same))


def _models(instance: Instance) -> list[str]:
    return sorted(plain(name) for name in instance.gpu_names)


def _rank(near: Near, run: Run) -> tuple[bool, bool, int]:
    """GPU model before machine; then the one that was asked for at the nearest time."""
    return "GPU model" in near.same, "machine" in near.same, -abs(near.run.created_ms - run.created_ms)
