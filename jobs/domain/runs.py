"""Runs: what an operator asked for, what it may cost, and how it is called off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from jobs import payloads
from jobs.domain import inputs, instances, quotes
from jobs.domain.models import Input, Instance, Run
from jobs.domain.states import ACTIVE, ENDED, QUEUED, conclude
from jobs.domain.work import record, transaction, wake

if TYPE_CHECKING:
    from jobs.context import Context

MAX_PROOFS = 10_000
CIRCUITS = ("chain", "merkle")
CURVES = ("bn254", "bls12381")
MAX_CIRCUIT_SIZE = 1 << 20


class InvalidRequest(ValueError):
    """The request can't be done as it is. `fields` maps a field name to what is wrong with it."""

    def __init__(self, fields: dict[str, str]):
        super().__init__("; ".join(f"{name}: {text}" for name, text in fields.items()))
        self.fields = fields


class RunRequest(BaseModel):
    """What the form, the API and the demo fill in; field names are those of the run and of the flags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["benchmark", "prove"] = "benchmark"
    payload: str = "groth16"
    circuit: str | None = None
    zkey_id: str | None = None
    witness_ids: list[str] = Field(default_factory=list, max_length=MAX_PROOFS)
    provider: str = Field("local", max_length=16)
    offer_id: str | None = None
    max_dollars_per_hour: float | None = Field(None, ge=0, le=10_000)
    max_dollars: float | None = Field(None, gt=0, le=1_000_000)
    interruptible: bool = False
    bid_dollars_per_hour: float | None = Field(None, gt=0, le=128)
    max_duration_s: int = Field(3600, ge=60, le=30 * 86400)
    min_proofs_per_hour: float | None = Field(None, ge=0, le=1e9)
    proofs: int = Field(12, ge=1, le=MAX_PROOFS)
    concurrency: int = Field(1, ge=1, le=256)
    partition_workers: int = Field(1, ge=1, le=256)
    lease_s: int | None = Field(None, ge=30, le=86400)
    request_id: str | None = Field(None, max_length=64)

    @field_validator("circuit", "zkey_id", "offer_id", "request_id", mode="before")
    @classmethod
    def empty_is_none(cls, value: object) -> object:
        return None if value == "" else value  # a form sends what was left open as ""

    @field_validator("circuit")
    @classmethod
    def known_circuit(cls, value: str | None) -> str | None:
        if value is not None:
            parse_circuit(value)
        return value


def parse_circuit(text: str) -> tuple[str, int, str]:
    """(name, size, curve) of e.g. `chain/4096/bls12381`. Raises ValueError saying what is possible."""
    parts = text.split("/")
    if (
        len(parts) != 3
        or parts[0] not in CIRCUITS
        or parts[2] not in CURVES
        or not parts[1].isascii()
        or not parts[1].isdigit()
    ):
        raise ValueError(
            f"a built-in circuit is {'|'.join(CIRCUITS)}/SIZE/{'|'.join(CURVES)}, e.g. chain/4096/bls12381"
        )
    if not 1 <= int(parts[1]) <= MAX_CIRCUIT_SIZE:
        raise ValueError(f"the circuit's size must be 1 to {MAX_CIRCUIT_SIZE:,} constraints")
    return parts[0], int(parts[1]), parts[2]


def parse_request(data: dict[str, Any]) -> RunRequest:
    """Raises `InvalidRequest` with a line for each wrong field."""
    try:
        return RunRequest(**data)
    except ValidationError as error:
        fields = {}
        for item in error.errors():
            name = str(item["loc"][0]) if item["loc"] else "request"
            fields[name] = item["msg"].removeprefix("Value error, ")
        raise InvalidRequest(fields) from error


def _check_inputs(session: Session, request: RunRequest) -> dict[str, str]:
    if request.circuit:
        if request.zkey_id or request.witness_ids:
            return {"circuit": "choose a built-in circuit or your own key and witnesses, not both"}
        return (
            {}
            if request.kind == "benchmark"
            else {"circuit": "a built-in circuit can only be benchmarked; to prove, upload a key"}
        )
    if not request.zkey_id:
        return {"zkey_id": "choose a built-in circuit, or upload a proving key (.zkey)"}
    key = session.get(Input, request.zkey_id)
    if key is None or key.kind != "zkey" or key.state != "ready":
        return {"zkey_id": "there is no such proving key; upload it first"}
    if not request.witness_ids:
        return {"witness_ids": "upload at least one witness (.wtns) of this key"}
    for witness_id in request.witness_ids:
        witness = session.get(Input, witness_id)
        if witness is None or witness.kind != "wtns" or witness.state != "ready":
            return {"witness_ids": "there is no such witness; upload it first"}
        if why := inputs.mismatch(key, witness):
            return {"witness_ids": why}
    return {}


def create_run(context: Context, request: RunRequest, actor: str) -> str:
    """Write down what is asked for and wake the first job; the id of the run.

    The same `request_id` twice is one run. Raises `InvalidRequest`.
    """
    now = context.now_ms()
    lease_s = request.lease_s or context.settings.lease_s
    try:
        with transaction(context) as session:
            if request.request_id and (
                found := session.scalar(select(Run.id).where(Run.request_id == request.request_id))
            ):
                return found
            if request.payload not in payloads.names():
                raise InvalidRequest({"payload": f"there is no such payload; there are: {', '.join(payloads.names())}"})
            if wrong := _check_inputs(session, request) or quotes.refused(context, session, request, actor):
                raise InvalidRequest(wrong)
            run = _new_run(context, request, actor, lease_s, now)
            session.add(run)
            record(session, now, actor, "run.requested", run_id=run.id, data=request.model_dump(exclude={"request_id"}))
            wake(session, run, now)
            return run.id
    except IntegrityError:
        # The same request twice at the same moment, on a database that lets both begin.
        with context.sessions() as session:
            return session.scalars(select(Run.id).where(Run.request_id == request.request_id)).one()


def _new_run(context: Context, request: RunRequest, actor: str, lease_s: int, now: int) -> Run:
    asked: dict[str, Any] = {"circuit": request.circuit} if request.circuit else {"witnesses": request.witness_ids}
    return Run(
        id=context.new_id(),
        kind=request.kind,
        payload=request.payload,
        state=QUEUED,
        stage="waiting",
        inputs=asked,
        zkey_id=request.zkey_id,
        provider=request.provider,
        offer_id=request.offer_id,
        max_dollars_per_hour=request.max_dollars_per_hour,
        max_dollars=request.max_dollars,
        interruptible=request.interruptible,
        bid_dollars_per_hour=request.bid_dollars_per_hour,
        max_duration_s=request.max_duration_s,
        min_proofs_per_hour=request.min_proofs_per_hour,
        proofs=len(request.witness_ids) if request.kind == "prove" else request.proofs,
        concurrency=request.concurrency,
        partition_workers=request.partition_workers,
        lease_s=lease_s,
        request_id=request.request_id,
        created_by=actor,
        created_ms=now,
        result={},
        rentals=0,
        job_attempt=0,
        reason="",
    )


def run_again(context: Context, run_id: str, actor: str) -> str:
    """A new run that asks for the same. Raises `InvalidRequest` where that is no longer possible."""
    with context.sessions() as session:
        run = session.get(Run, run_id)
        if run is None:
            raise InvalidRequest({"run": "there is no such run"})
        request = RunRequest.model_construct(
            kind=run.kind,
            payload=run.payload,
            circuit=run.inputs.get("circuit"),
            zkey_id=None if run.inputs.get("circuit") else run.zkey_id,
            witness_ids=run.inputs.get("witnesses", []),
            provider=run.provider,
            max_dollars_per_hour=run.max_dollars_per_hour,
            max_dollars=run.max_dollars,
            interruptible=run.interruptible,
            bid_dollars_per_hour=run.bid_dollars_per_hour,
            max_duration_s=run.max_duration_s,
            min_proofs_per_hour=run.min_proofs_per_hour,
            proofs=run.proofs,
            concurrency=run.concurrency,
            partition_workers=run.partition_workers,
            lease_s=run.lease_s,
        )
    return create_run(context, request, actor)


def cancel_run(context: Context, run_id: str, actor: str, reason: str) -> bool:
    """Call a run off; its machine is sealed and destroyed. False: it had ended already (a verdict is never changed)."""
    now = context.now_ms()
    with transaction(context) as session:
        live = select(Instance).where(Instance.run_id == run_id, Instance.state.not_in(ENDED))
        # Everybody locks an instance before its run; the other way round, two would wait for each other.
        session.scalars(live.with_for_update()).all()
        run = session.get(Run, run_id, with_for_update=True)
        if run is None or run.state not in (QUEUED, ACTIVE):
            return False
        if not conclude(session, run, run.state, "cancelled", reason=reason or "cancelled", actor=actor, now_ms=now):
            return False
        for instance in session.scalars(live):  # also one that was placed meanwhile
            instances.to_sealing(context, session, instance, f"run cancelled: {reason or 'no reason given'}", actor)
        return True
