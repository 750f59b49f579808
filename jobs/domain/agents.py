"""What a rented machine may do to the truth: each call of the agent protocol, checked and written down.

All that comes in is hostile until checked. Every call is idempotent. The machine app is the only caller;
errors are `AgentRefused` (with its HTTP status), `logs.errors.StoreError` (answered 503: send it again).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from gpu.protocol import (
    Command,
    Lease,
    Leased,
    Progress,
    Pull,
    Pulled,
    Register,
    Registered,
    Result,
    Seal,
    Sealed,
    Task,
)
from jobs.domain import instances, relay
from jobs.domain.db import writing
from jobs.domain.models import Chunk, Instance, Proof, Run
from jobs.domain.spec import build_spec, witness_fetch
from jobs.domain.states import (
    BENCHMARKING,
    BILLABLE,
    DESTROYING,
    FETCHING,
    LOADING,
    PROVING,
    READY,
    SEALING,
    WORKING,
    transition,
)
from jobs.domain.work import record, transaction, wake
from jobs.market import specs

if TYPE_CHECKING:
    from jobs.context import Context

MAX_FACTS_BYTES = 64 * 1024
MAX_PROOF_BYTES = 64 * 1024
MAX_NOTE, MAX_ERROR = 500, 2000
MAX_TELEMETRY = 256
EMERGENCY_MARGIN_S = 600
NEXT_MIN_S, NEXT_MAX_S, INSTANCES_PER_S = 1.0, 30.0, 20


class AgentRefused(Exception):
    """The call is refused: HTTP `status`, a `code` for programs, and what happened, why and what to do."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def sha256_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def authenticated(session: Session, token: str, *, lock: bool = False) -> Instance:
    """The live instance that this bearer token belongs to. Raises `AgentRefused` 401 or 410."""
    query = select(Instance).where(Instance.token_sha256 == sha256_of(token))
    instance = session.scalar(query.with_for_update() if lock else query)
    if instance is None:
        raise AgentRefused(401, "unknown_token", "this token is not known; an instance gets its own from register")
    if instance.state not in BILLABLE:
        raise AgentRefused(410, "gone", f"the instance is {instance.state}; end now")
    return instance


def _text(value: str, limit: int) -> str:
    """At most `limit` characters that every database and page can hold: no NUL, no half of a surrogate pair."""
    return value.replace("\0", "").encode("utf-8", "replace").decode()[:limit]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value, len(value))
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _bounded(value: dict[str, Any], limit: int, what: str) -> dict[str, Any]:
    try:
        if len(json.dumps(value, allow_nan=False)) > limit:
            raise AgentRefused(413, "too_large", f"{what} must be under {limit} bytes of JSON")
        plain: dict[str, Any] = _plain(value)
    except (ValueError, RecursionError) as error:
        raise AgentRefused(400, "bad_message", f"{what} must be plain JSON: {error}") from error
    return plain


def register(context: Context, bootstrap_token: str, message: Register) -> Registered:
    """Swap the bootstrap token for the instance's own, which is never stored in clear; hand out the spec.

    Again, before any stage began: the answer was lost, and the newest token is the one that holds.
    """
    now, token = context.now_ms(), secrets.token_urlsafe(32)
    facts = _bounded(message.facts, MAX_FACTS_BYTES, "facts")
    with transaction(context) as session:
        instance = session.scalar(
            select(Instance).where(Instance.bootstrap_sha256 == sha256_of(bootstrap_token)).with_for_update()
        )
        if instance is None:
            raise AgentRefused(401, "unknown_token", "this bootstrap token is not known")
        if instance.state == "renting":
            raise AgentRefused(503, "not_yet", "the rental is not written down yet; register again in a second")
        if instance.state not in (LOADING, FETCHING):
            raise AgentRefused(409, "past_registering", f"the instance is {instance.state}; it registers only once")
        run = session.get(Run, instance.run_id)
        if run is None:
            raise AgentRefused(409, "no_run", "no run belongs to this instance; it will be sealed and destroyed")
        spec = build_spec(context, session, run, instance)
        deadline = now + int(spec.deadlines_s["params"] * 1000)
        values: dict[str, Any] = {
            "token_sha256": sha256_of(token),
            "facts": facts,
            "image_ran": _text(message.image_digest, 200),
            "stage": "params",
            "stage_ms": now,
            "stage_deadline_ms": deadline,
            "moved_ms": now,
            "heard_ms": now,
            "lease_expires_ms": now + run.lease_s * 1000,
        }
        if instance.state == LOADING:
            transition(
                session,
                instance,
                LOADING,
                FETCHING,
                reason="the agent registered",
                actor="agent",
                now_ms=now,
                values=values,
            )
        else:
            session.execute(update(Instance).where(Instance.id == instance.id).values(**values))
        specs.check(session, now, instance, facts)
        return Registered(token=token, spec=spec, lease_s=float(run.lease_s))


def _advance(context: Context, session: Session, instance: Instance, stage: str) -> None:
    """Follow the machine into its next stage: the only transitions that a machine can cause."""
    now = context.now_ms()
    run = session.get(Run, instance.run_id) if instance.run_id else None
    if run is None or stage != run.kind:
        return  # a stage that its spec does not have
    path = {
        (FETCHING, "benchmark"): [BENCHMARKING],
        (FETCHING, "prove"): [READY, PROVING],
        (READY, "prove"): [PROVING],
    }.get((instance.state, stage), [])
    for new in path:
        spec_deadline = min(run.max_duration_s, instances.stage_deadline_s(run.payload, stage))
        values = {
            "stage": stage,
            "stage_ms": now,
            "moved_ms": now,
            "stage_deadline_ms": now + int(spec_deadline * 1000),
        }
        reason = f"stage {stage} began" if new != READY else "parameters are here; no benchmark was asked for"
        if not transition(
            session, instance, instance.state, new, reason=reason, actor="agent", now_ms=now, values=values
        ):
            return


def _note_progress(context: Context, session: Session, instance: Instance, progress: Progress) -> None:
    new = progress.to_json()
    for name, limit in (("stage", 32), ("note", MAX_NOTE), ("error", MAX_ERROR), ("signal", 40)):
        new[name] = _text(new[name], limit)
    old = instance.progress or {}
    moved = any(old.get(name) != new[name] for name in ("stage", "round", "done", "failed", "note", "ended"))
    if moved:
        instance.moved_ms = context.now_ms()
    if new == old:
        return
    instance.progress = new
    if progress.ended and instance.state in (BENCHMARKING, PROVING):
        wake(session, instance, context.now_ms())
    elif progress.ended and progress.error and instance.state in (FETCHING, READY):
        instances.leave(context, session, instance, f"{new['stage']}: {new['error']}", "agent")


def _commands(instance: Instance) -> list[Command]:
    if instance.state == SEALING:
        return [Command("seal", reason=instance.reason)]
    if instance.state == DESTROYING:
        return [Command("exit", reason=instance.reason)]
    if instance.state == BENCHMARKING and instance.round > (instance.progress or {}).get("round", 1):
        return [
            Command("round", round=instance.round, reason="once more: the minimum lies inside the measured interval")
        ]
    return []


def lease(context: Context, token: str, message: Lease) -> Leased:
    """Renew the lease, note progress and telemetry, and answer with what is to be done now."""
    now = context.now_ms()
    with transaction(context) as session:
        instance = authenticated(session, token, lock=True)
        run = session.get(Run, instance.run_id)
        lease_s = run.lease_s if run else context.settings.lease_s
        instance.heard_ms, instance.lease_expires_ms = now, now + lease_s * 1000
        if len(message.telemetry) <= MAX_TELEMETRY:
            specs.check_under_load(session, now, instance, message.telemetry)
            instance.telemetry = _plain(message.telemetry)
        _advance(context, session, instance, message.progress.stage)
        if message.progress.round <= instance.round:
            _note_progress(context, session, instance, message.progress)
        live = session.scalar(select(func.count()).select_from(Instance).where(Instance.state.in_(BILLABLE))) or 0
        commands = _commands(instance)
    return Leased(
        lease_s=float(lease_s),
        next_s=min(NEXT_MAX_S, max(NEXT_MIN_S, live / INSTANCES_PER_S)),
        commands=commands,
        emergency=relay.emergency_upload(context, instance, lease_s + EMERGENCY_MARGIN_S),
        now_ms=now,
    )


def pull(context: Context, token: str, message: Pull) -> Pulled:
    """Hand out the round's tasks. Witnesses are shown here and not before: the controller's clock starts now."""
    now = context.now_ms()
    with writing(context.sessions) as session:
        instance = authenticated(session, token, lock=True)
        _advance(context, session, instance, message.stage)
        wanted = {"benchmark": BENCHMARKING, "prove": PROVING}.get(message.stage)
        if instance.state != wanted or message.round != instance.round:
            raise AgentRefused(
                409,
                "not_now",
                f"no tasks of {message.stage} round {message.round} now: the instance is {instance.state}, "
                f"round {instance.round}",
            )
        mine = (Proof.run_id == instance.run_id, Proof.round == message.round)
        session.execute(
            update(Proof).where(*mine, Proof.pulled_ms.is_(None)).values(pulled_ms=now, instance_id=instance.id)
        )
        proofs = list(
            session.scalars(select(Proof).where(*mine, Proof.instance_id == instance.id).order_by(Proof.index))
        )
    return Pulled([Task(proof.index, witness_fetch(context, instance, proof)) for proof in proofs])


def store_result(context: Context, token: str, message: Result) -> None:
    """Keep proof `index` of a round as it came, unverified; the first answer counts, later ones change nothing."""
    now = context.now_ms()
    if message.ok and (message.proof is None or message.public is None):
        raise AgentRefused(400, "bad_message", "a result that is ok carries proof and public")
    came = _bounded(
        {"proof": message.proof, "public": message.public, "timings": message.timings_ms}, MAX_PROOF_BYTES, "a result"
    )
    with transaction(context) as session:
        instance = authenticated(session, token, lock=True)
        proof = session.scalar(
            select(Proof).where(
                Proof.run_id == instance.run_id,
                Proof.round == message.round,
                Proof.index == message.index,
                Proof.instance_id == instance.id,
            )
        )
        if proof is None or proof.pulled_ms is None:
            raise AgentRefused(
                404, "no_task", f"proof {message.index} of round {message.round} was not given to this instance"
            )
        if proof.received_ms is not None or instance.state not in WORKING:
            return
        proof.received_ms, proof.machine_ms, proof.timings_ms = now, message.machine_ms, came["timings"]
        if message.ok:
            proof.proof, proof.public = came["proof"], came["public"]
        else:
            proof.verdict = "error"
            proof.reason = _text(message.error, MAX_ERROR) or "the machine gave no reason"
        instance.moved_ms = now
        wake(session, instance, now)


def seal(context: Context, token: str, message: Seal) -> Sealed:
    """The agent says that all is shipped. Refused, naming the streams, while chunks that it claims are not here."""
    now = context.now_ms()
    manifest = _bounded(message.to_json(), MAX_FACTS_BYTES, "the manifest")
    with transaction(context) as session:
        instance = authenticated(session, token, lock=True)
        have: dict[str, int] = {
            stream: int(top) + 1
            for stream, top in session.execute(
                select(Chunk.stream, func.max(Chunk.seq)).where(Chunk.instance_id == instance.id).group_by(Chunk.stream)
            )
        }
        missing = {name: have.get(name, 0) for name, end in message.streams.items() if have.get(name, 0) < end.chunks}
        if missing:
            return Sealed(accepted=False, missing=missing)
        if instance.agent_manifest is None:
            instance.agent_manifest = manifest
            record(session, now, "agent", "agent.sealed", run_id=instance.run_id, instance_id=instance.id)
        # An agent may seal by itself (it was told to end, or its time is up): then the work is over.
        if instance.state in WORKING:
            instances.leave(
                context,
                session,
                instance,
                f"the agent sealed by itself: {_text(message.reason, MAX_NOTE) or 'no reason given'}",
                "agent",
            )
        else:
            wake(session, instance, now)
    return Sealed(accepted=True)
