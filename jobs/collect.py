"""`collect_logs`: seal the evidence of one instance, and only then let it be destroyed.

Waits for the agent to say that all is shipped, for proof that it can't any more (the machine is gone), or for
the evidence deadline. While the archive can't be reached, sealing waits up to the lease. The provider's own logs are
gone with the machine: they are asked for first (`provider_logs.py`).
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from jobs import payloads, provider_logs
from jobs.context import Context, current
from jobs.diagnose import BAD, facts_of, moves_of
from jobs.diagnosis.case import table_of
from jobs.domain import archive
from jobs.domain.agents import AgentRefused
from jobs.domain.db import writing
from jobs.domain.evidence import add_chunks
from jobs.domain.instances import listed
from jobs.domain.models import Artifact, Instance, Proof, Run
from jobs.domain.states import DESTROYING, SEALING, transition
from jobs.domain.work import Claim, record, take, transaction, wake
from jobs.market import listing
from jobs.market.providers.base import EXITED, OFFLINE, STOPPED, ProviderError
from jobs.provider_logs import Output
from jobs.story.joules import keep_joules
from logs import evidence
from logs.bundle import load_manifest, write_bundle
from logs.emergency import EmergencyRefused, unpack_emergency
from logs.errors import NoSuchObject, StoreError, TooLarge
from logs.wire import MAX_BATCH_CHUNKS, MAX_EMERGENCY_BYTES, ChunkRecord, WireError, artifact_key, emergency_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SINGLE_PROOF_FILES = 100
TIMINGS = ("round", "index", "verdict", "pulled_ms", "received_ms", "machine_ms", "timings_ms", "joules", "joules_why")


def collect_logs(instance_id: str, attempt: int) -> None:
    """The RQ job of an instance in `sealing`."""
    del attempt
    context = current()
    held = take(context, Instance, instance_id, (SEALING,))
    if held is None:
        return
    claim, instance = held
    with claim.released_on_error(), claim.kept_alive():
        try:
            provider_logs.ask(context, claim, instance)
            if not _ready(context, claim, instance):
                claim.release(wake_in_s=1)
                return
            outputs = provider_logs.fetch(context, instance)
            if outputs is None:
                claim.release(wake_in_s=2)
                return
            _seal(context, claim, instance, outputs)
        except StoreError as error:
            _without_archive(context, claim, instance, str(error))


def _ready(context: Context, claim: Claim, instance: Instance) -> bool:
    """True when nothing more will come, or nothing more is waited for."""
    if instance.agent_manifest is not None or instance.token_sha256 is None:
        return True
    if instance.vanished_ms is None and _is_gone(context, instance):
        with transaction(context) as session:
            mine = claim.mine(session)
            if isinstance(mine, Instance):
                mine.vanished_ms = context.now_ms()
        instance.vanished_ms = context.now_ms()
    late = instance.evidence_deadline_ms is not None and context.now_ms() > instance.evidence_deadline_ms
    if instance.vanished_ms is None and not late:
        return False
    _adopt_emergency(context, claim, instance)
    return True


def _is_gone(context: Context, instance: Instance) -> bool:
    """The provider lists it as ended. No answer is no proof, and neither is a list without it: it may still ship."""
    try:
        ours = listed(listing.read(context, instance.provider), instance)
    except ProviderError:
        return False
    return ours is not None and ours.status in (EXITED, STOPPED, OFFLINE)


def _adopt_emergency(context: Context, claim: Claim, instance: Instance) -> None:
    """Take in what the agent uploaded by itself when it could not reach us, if it did."""
    try:
        data = context.store.get(emergency_key(instance.run_id or "none", instance.id), MAX_EMERGENCY_BYTES)
    except NoSuchObject:
        return
    except TooLarge as error:
        _note(context, instance, "emergency.refused", str(error))
        return
    try:
        emergency = unpack_emergency(io.BytesIO(data))
        for stream, chunks in _batches(emergency.chunks):
            _add(context, instance, stream, chunks)
    except (EmergencyRefused, WireError, AgentRefused) as error:
        _note(context, instance, "emergency.refused", f"the emergency upload is not usable beyond this point: {error}")
        return
    with transaction(context) as session:
        mine = claim.mine(session)
        if isinstance(mine, Instance):
            mine.agent_manifest = emergency.manifest
    instance.agent_manifest = emergency.manifest
    _note(context, instance, "emergency.adopted", "the agent sealed by itself; its upload is in the archive")


def _batches(
    chunks: Iterable[tuple[str, ChunkRecord, bytes]],
) -> Iterator[tuple[str, list[tuple[ChunkRecord, bytes]]]]:
    """Chunks of one stream that are taken in at once. What came before a bad member is handed out before its error."""
    name = ""
    held: list[tuple[ChunkRecord, bytes]] = []
    try:
        for stream, record, frame in chunks:
            if held and (stream != name or len(held) == MAX_BATCH_CHUNKS):
                yield name, held
                held = []
            name = stream
            held.append((record, frame))
    except WireError:
        if held:
            yield name, held
        raise
    if held:
        yield name, held


def _add(context: Context, instance: Instance, stream: str, chunks: list[tuple[ChunkRecord, bytes]]) -> None:
    """All of them, or all before the first that is refused. Raises `AgentRefused`."""
    try:
        add_chunks(context, instance, stream, chunks)
    except AgentRefused:
        for chunk in chunks:
            add_chunks(context, instance, stream, [chunk])


def _note(context: Context, instance: Instance, kind: str, text: str) -> None:
    with transaction(context) as session:
        record(session, context.now_ms(), "collect_logs", kind, text, run_id=instance.run_id, instance_id=instance.id)


def _seal(context: Context, claim: Claim, instance: Instance, outputs: dict[str, Output]) -> None:
    try:
        # A worker before us wrote it and died: that one is the truth, the same bundle follows from it.
        manifest = load_manifest(context.store, instance.run_id or "none", instance.id)
    except NoSuchObject:
        keep_joules(context, instance)
        for name, data in [*_controller_artifacts(context, instance), *provider_logs.artifacts(outputs)]:
            _keep(context, instance, name, data)
        manifest = _manifest(context, instance)
    with context.sessions() as session:
        records, places = archive.records_of(session, instance.id), archive.places_of(session, instance.id)
    bundle = write_bundle(context.store, manifest, records, places)
    status, summary = evidence.evidence_status(manifest)
    _finish(context, claim, {"evidence": status, "evidence_text": summary, "evidence_sha256": bundle.sha256}, summary)


def _finish(context: Context, claim: Claim, values: dict[str, Any], reason: str) -> None:
    now = context.now_ms()
    badly = False
    with transaction(context) as session:
        instance = claim.mine(session)
        if not isinstance(instance, Instance):
            return
        for name, value in values.items():
            setattr(instance, name, value)
        if transition(
            session,
            instance,
            SEALING,
            DESTROYING,
            reason=f"evidence: {reason}",
            actor="collect_logs",
            now_ms=now,
            token=claim.token,
        ):
            wake(session, instance, now)
            run = session.get(Run, instance.run_id) if instance.run_id else None
            badly = run is not None and run.state in BAD
    if badly:
        context.enqueue("diagnose", claim.row_id, now)


def _without_archive(context: Context, claim: Claim, instance: Instance, error: str) -> None:
    """Wait for the archive up to the lease; then the gap is recorded and the machine let go."""
    with context.sessions() as session:
        run = session.get(Run, instance.run_id) if instance.run_id else None
    patience_ms = (run.lease_s if run else context.settings.lease_s) * 1000
    now = context.now_ms()
    if now - instance.state_ms < patience_ms:
        _note(context, instance, "archive.unavailable", error)
        with transaction(context) as session:
            mine = claim.mine(session)
            if isinstance(mine, Instance):
                # The machine could not ship either: once the archive is back it gets its time again.
                again = now + context.settings.evidence_deadline_s * 1000
                mine.evidence_deadline_ms = min(instance.state_ms + patience_ms, again)
        claim.release(wake_in_s=5)
        return
    gap = f"the archive could not be reached for {patience_ms // 1000} s: {error}"
    _finish(context, claim, {"evidence": "gaps", "evidence_text": gap, "evidence_gap": gap}, gap)


def _manifest(context: Context, instance: Instance) -> dict[str, Any]:
    """Drawn up once nothing more is taken in: what was acknowledged by then is in it, and what is not is refused."""
    with writing(context.sessions) as session:
        archive.locked(session, instance.id).manifest_ms = context.now_ms()
    with context.sessions() as session:
        records = archive.records_of(session, instance.id)
        run = session.get(Run, instance.run_id) if instance.run_id else None
        artifacts = list(session.scalars(select(Artifact).where(Artifact.instance_id == instance.id)))
        events = moves_of(session, instance.id)
        case = facts_of(instance, run, events) if run else None
    declared = payloads.load(run.payload).streams if run and instance.token_sha256 else []
    said = instance.agent_manifest or {}
    return evidence.build_manifest(
        run=instance.run_id or "none",
        instance=instance.id,
        streams={**{name: [] for name in declared}, **records},
        artifacts=[evidence.Artifact(a.name, a.size_bytes, a.sha256) for a in artifacts],
        exit_codes=table_of(said, "exit_codes"),
        stages=[{"at_ms": e.at_ms, "old": e.old, "new": e.new, "reason": e.reason} for e in events],
        hardware=instance.facts,
        telemetry=instance.telemetry,
        agent_manifest=instance.agent_manifest,
        vanished_at_ms=instance.vanished_ms,
        sealed_at_ms=context.now_ms(),
        reason=instance.reason,
        case=case,
    )


def _controller_artifacts(context: Context, instance: Instance) -> Iterator[tuple[str, bytes]]:
    """What the bundle holds of our own knowledge: the proofs, with our verdicts."""
    with context.sessions() as session:
        proofs = list(
            session.scalars(select(Proof).where(Proof.instance_id == instance.id).order_by(Proof.round, Proof.index))
        )
    told = [
        {
            "round": p.round,
            "index": p.index,
            "witness": p.witness_name,
            "witness_sha256": p.witness_sha256,
            "verdict": p.verdict,
            "reason": p.reason,
            "pulled_ms": p.pulled_ms,
            "received_ms": p.received_ms,
            "machine_ms": p.machine_ms,
            "timings_ms": p.timings_ms,
            "joules": p.joules,
            "joules_why": p.joules_why,
            "proof": p.proof,
            "public": p.public,
        }
        for p in proofs
    ]
    if told:
        yield "proofs.json", json.dumps(told, indent=1).encode()
        timings = [{name: row[name] for name in TIMINGS} for row in told]
        yield "timings.json", json.dumps(timings, indent=1).encode()
    if len(proofs) <= SINGLE_PROOF_FILES:
        for p in proofs:
            if p.verdict == "valid":
                yield f"proofs/{p.round}-{p.index}/proof.json", json.dumps(p.proof, indent=1).encode()
                yield f"proofs/{p.round}-{p.index}/public.json", json.dumps(p.public, indent=1).encode()


def _keep(context: Context, instance: Instance, name: str, data: bytes) -> None:
    """Write one of our own artifacts; doing it again replaces it, until the evidence is sealed."""
    key, sha256 = artifact_key(instance.run_id or "none", instance.id, name), hashlib.sha256(data).hexdigest()
    context.store.put(key, data)
    with transaction(context) as session:
        session.merge(
            Artifact(
                instance_id=instance.id,
                name=name,
                size_bytes=len(data),
                sha256=sha256,
                object_key=key,
                created_ms=context.now_ms(),
            )
        )
