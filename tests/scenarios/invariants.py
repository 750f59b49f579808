"""What must hold after every scenario, whatever happened in it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from itertools import pairwise
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain.archive import places_of, records_of
from jobs.domain.models import Controller, Event, Instance, Run
from jobs.domain.states import DESTROYED, DESTROYING, INSTANCE_EDGES, RUN_EDGES
from logs.chunks import check_successor
from logs.frames import read_chunk
from logs.wire import bundle_key
from tests.scenarios.world import World

MAX_BUNDLE_BYTES = 64 << 20


def check(world: World) -> None:
    """All of them, over everything that ever ran in this world; every run has ended."""
    with world.context.sessions() as session:
        instances = list(session.scalars(select(Instance)))
        runs = list(session.scalars(select(Run)))
        for instance in instances:
            _evidence_before_destroy(world, instance)
            _events_tell(session, instance)
            _chain_is_whole(world, session, instance)
        for run in runs:
            _events_tell(session, run)
            _one_machine_at_a_time([i for i in instances if i.run_id == run.id])
        controller = session.scalars(select(Controller.id)).one()
    assert world.provider.list().instances == []
    assert carriers(f"provefleet:{controller}:") == []
    for label, machines in world.rentals.labels.items():
        assert len(machines) == 1, f"rented twice under {label}: {machines}"


def carriers(prefix: str) -> list[str]:
    """Every process whose environment carries a label of ours."""
    needle = f"PROVEFLEET_LABEL={prefix}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            carries = needle in Path(f"/proc/{pid}/environ").read_bytes()
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if carries:
            found.append(f"{pid} {words!r}")
    return found


def _evidence_before_destroy(world: World, instance: Instance) -> None:
    if instance.state not in (DESTROYING, DESTROYED):
        return
    assert instance.evidence_sha256 or instance.evidence_gap or instance.forced_by, instance.id
    if instance.evidence_sha256:
        data = bundle_of(world, instance)
        assert hashlib.sha256(data).hexdigest() == instance.evidence_sha256
    assert instance.delete_sent_ms is not None


def bundle_of(world: World, instance: Instance) -> bytes:
    return world.context.store.get(bundle_key(instance.run_id or "none", instance.id), MAX_BUNDLE_BYTES)


def bundle_checks(data: bytes) -> str:
    """What `sha256sum -c` says of the unpacked bundle; raises CalledProcessError when it is not content."""
    with tempfile.TemporaryDirectory(prefix="pf-bundle-") as folder:
        zip_file = Path(folder) / "evidence.zip"
        zip_file.write_bytes(data)
        with zipfile.ZipFile(zip_file) as archive:
            archive.extractall(folder)
        done = subprocess.run(
            ["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout


def _events_tell(session: Session, row: Instance | Run) -> None:
    """The events are the whole story: one row a transition, each from where the one before led, to where it is now."""
    kind, edges, mine = (
        ("instance.state", INSTANCE_EDGES, Event.instance_id)
        if isinstance(row, Instance)
        else ("run.state", RUN_EDGES, Event.run_id)
    )
    events = list(session.scalars(select(Event).where(mine == row.id, Event.kind == kind).order_by(Event.id)))
    steps = [(e.old, e.new) for e in events]
    assert all(step in edges for step in steps), steps
    assert all(before[1] == after[0] for before, after in pairwise(steps)), steps
    assert all(e.reason and e.actor for e in events), steps
    assert not steps or steps[-1][1] == row.state, steps
    assert steps or row.state in ("renting", "queued", "sealing"), f"{row.id} is {row.state} without an event"


def _one_machine_at_a_time(instances: list[Instance]) -> None:
    spans = sorted((i.rented_ms, i.ended_ms or 1 << 62) for i in instances if i.rented_ms is not None)
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans


def _chain_is_whole(world: World, session: Session, instance: Instance) -> None:
    """Each chunk follows the one before it, and the archive holds the very bytes that its record names."""
    places = places_of(session, instance.id)
    for stream, records in records_of(session, instance.id).items():
        for before, record in zip([None, *records[:-1]], records, strict=True):
            check_successor(before, record)
            chunk = read_chunk(
                world.context.store, instance.run_id or "none", instance.id, stream, record, places[stream]
            )
            assert not chunk.damage, f"{stream}: {chunk.damage}"
