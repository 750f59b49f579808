"""The tables of runs and of what they use: instances, proofs, chunks, inputs, people, events. See `tables`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from jobs.domain.tables import ID, Base, Json

LIVE_ELSEWHERE = (
    "provider <> 'local' AND machine_id <> '' AND run_id IS NOT NULL AND state NOT IN ('destroyed', 'not_rented')"
)


class Claimed:
    """Columns of a row that jobs work on: one job at a time holds `claim_token` until `claim_until_ms`;
    `wake_at_ms` is when reconcile enqueues the next step, whatever became of Redis."""

    claim_token: Mapped[str | None] = mapped_column(ID)
    claim_until_ms: Mapped[int | None]
    wake_at_ms: Mapped[int | None] = mapped_column(index=True)
    job_attempt: Mapped[int] = mapped_column(default=0)

    id: Any
    state: Any


class Controller(Base):
    """One row: who we are to the marketplace. The id is part of every label."""

    __tablename__ = "controller"
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    created_ms: Mapped[int]


class Leader(Base):
    """A named role that one process holds at a time."""

    __tablename__ = "leaders"
    role: Mapped[str] = mapped_column(String(32), primary_key=True)
    holder: Mapped[str] = mapped_column(String(128))
    expires_ms: Mapped[int]


class User(Base):
    __tablename__ = "users"
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    password_hash: Mapped[str] = mapped_column(String(256))
    role: Mapped[str] = mapped_column(String(16))
    must_change_password: Mapped[bool] = mapped_column(default=False)
    disabled: Mapped[bool] = mapped_column(default=False)
    created_ms: Mapped[int]


class UserSession(Base):
    """A signed-in browser. Only the hash of its token is kept."""

    __tablename__ = "user_sessions"
    token_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    created_ms: Mapped[int]
    seen_ms: Mapped[int]
    user: Mapped[User] = relationship()


class Input(Base):
    """A proving key or witness: uploaded, or made here from a built-in circuit.

    `state`: making | ready | refused. `facts` come from the file itself (curve, n_public, n_vars, domain).
    `circuit` is set, and unique, for what we make ourselves, e.g. `chain/4096/bls12381`.
    """

    __tablename__ = "inputs"
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    sha256: Mapped[str] = mapped_column(String(64), default="", index=True)
    size_bytes: Mapped[int] = mapped_column(default=0)
    object_key: Mapped[str] = mapped_column(String(300), default="")
    circuit: Mapped[str | None] = mapped_column(String(100), unique=True)
    facts: Mapped[Json] = mapped_column(default=dict)
    vkey: Mapped[Json | None]
    created_by: Mapped[str] = mapped_column(String(64))
    created_ms: Mapped[int] = mapped_column(index=True)


class Run(Claimed, Base):
    """What an operator asked for. `inputs`: {"circuit": "chain/4096/bls12381"} or {"witnesses": [input ids]}.

    `result`: rate and interval on the controller's clock, the machine's own figures beside them.
    """

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    payload: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(16), index=True)
    stage: Mapped[str] = mapped_column(String(200), default="")
    reason: Mapped[str] = mapped_column(Text, default="")
    inputs: Mapped[Json] = mapped_column(default=dict)
    zkey_id: Mapped[str | None] = mapped_column(ForeignKey("inputs.id"))
    provider: Mapped[str] = mapped_column(String(16))
    offer_id: Mapped[str | None] = mapped_column(String(64))
    max_dollars_per_hour: Mapped[float | None]
    max_dollars: Mapped[float | None]
    interruptible: Mapped[bool] = mapped_column(default=False)
    bid_dollars_per_hour: Mapped[float | None]
    max_duration_s: Mapped[int]
    min_proofs_per_hour: Mapped[float | None]
    proofs: Mapped[int]
    concurrency: Mapped[int]
    partition_workers: Mapped[int]
    lease_s: Mapped[int]
    result: Mapped[Json] = mapped_column(default=dict)
    rentals: Mapped[int] = mapped_column(default=0)
    request_id: Mapped[str | None] = mapped_column(String(64), unique=True)
    created_by: Mapped[str] = mapped_column(String(64))
    created_ms: Mapped[int] = mapped_column(index=True)
    started_ms: Mapped[int | None]
    ended_ms: Mapped[int | None] = mapped_column(index=True)
    zkey: Mapped[Input | None] = relationship()
    instances: Mapped[list[Instance]] = relationship(back_populates="run", order_by="Instance.created_ms")


class Instance(Claimed, Base):
    """One rental: from the intent, committed before the provider is called, to the proof that it is gone.

    `stage_deadline_ms` bounds the stage; `moved_ms` is when the payload last advanced (our clock).
    `evidence` is '' until sealing ends, then complete | gaps | vanished | empty; `evidence_sha256` is the sealed
    bundle's; `evidence_gap` says what could not be sealed, and why; `forced_by` is the operator who forced a destroy.
    `seen` is its row in the newest list (`base.ProviderInstance`); `missed_lists` of them in a row, since `missed_ms`,
    showed it in trouble or not at all. `bid_dollars_per_hour` is set exactly for an
    interruptible rental. `log_ticket` is what the provider gave for its own logs. `forecast` is why it was chosen.
    `price` is `jobs.market.prices.Price`; `spent_dollars` is our own account up to `accrued_ms`, `traffic_dollars` the
    part of it for bytes, `meter` what ran then; `billed_dollars` is the provider's bill once that is complete.
    """

    __tablename__ = "instances"
    __table_args__ = (
        # No two live rentals of one offer, whatever races: the reservation of the offer itself.
        Index(
            "uq_instances_live_offer",
            "provider",
            "offer_id",
            unique=True,
            sqlite_where=text("state NOT IN ('destroyed', 'not_rented')"),
            postgresql_where=text("state NOT IN ('destroyed', 'not_rented')"),
        ),
        # Nor of one machine elsewhere under two offers: the second would never start. Orphans are as they are.
        Index(
            "uq_instances_live_machine",
            "provider",
            "machine_id",
            unique=True,
            sqlite_where=text(LIVE_ELSEWHERE),
            postgresql_where=text(LIVE_ELSEWHERE),
        ),
    )
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"), index=True)
    label: Mapped[str] = mapped_column(String(100), unique=True)
    provider: Mapped[str] = mapped_column(String(16))
    offer_id: Mapped[str] = mapped_column(String(64))
    machine_id: Mapped[str] = mapped_column(String(64), default="", index=True)
    host_id: Mapped[str] = mapped_column(String(64), default="")
    provider_id: Mapped[str | None] = mapped_column(String(64))
    provider_status: Mapped[str] = mapped_column(String(64), default="")
    seen: Mapped[Json] = mapped_column(default=dict)
    bid_dollars_per_hour: Mapped[float | None]
    disk_gb: Mapped[int] = mapped_column(default=0)
    log_ticket: Mapped[Json | None]
    forecast: Mapped[Json] = mapped_column(default=dict)
    missed_lists: Mapped[int] = mapped_column(default=0)
    missed_ms: Mapped[int | None]
    state: Mapped[str] = mapped_column(String(16), index=True)
    state_ms: Mapped[int]
    reason: Mapped[str] = mapped_column(Text, default="")
    stage: Mapped[str] = mapped_column(String(16), default="loading")
    stage_ms: Mapped[int]
    stage_deadline_ms: Mapped[int]
    moved_ms: Mapped[int]
    progress: Mapped[Json] = mapped_column(default=dict)
    round: Mapped[int] = mapped_column(default=1)
    dollars_per_hour: Mapped[float]
    price: Mapped[Json] = mapped_column(default=dict)
    reserved_dollars: Mapped[float]
    spent_dollars: Mapped[float] = mapped_column(default=0.0)
    traffic_dollars: Mapped[float] = mapped_column(default=0.0)
    accrued_ms: Mapped[int | None]
    meter: Mapped[str] = mapped_column(String(16), default="")
    billed_dollars: Mapped[float | None]
    bootstrap_sha256: Mapped[str] = mapped_column(String(64), default="")
    token_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    lease_expires_ms: Mapped[int | None]
    heard_ms: Mapped[int | None]
    facts: Mapped[Json] = mapped_column(default=dict)
    telemetry: Mapped[Json] = mapped_column(default=dict)
    image_expected: Mapped[str] = mapped_column(String(200), default="")
    image_ran: Mapped[str] = mapped_column(String(200), default="")
    agent_manifest: Mapped[Json | None]
    vanished_ms: Mapped[int | None]
    evidence: Mapped[str] = mapped_column(String(16), default="")
    evidence_text: Mapped[str] = mapped_column(Text, default="")
    evidence_sha256: Mapped[str | None] = mapped_column(String(64))
    evidence_gap: Mapped[str | None] = mapped_column(Text)
    evidence_deadline_ms: Mapped[int | None]
    forced_by: Mapped[str | None] = mapped_column(String(64))
    rent_sent_ms: Mapped[int | None]
    delete_sent_ms: Mapped[int | None]
    absent_lists: Mapped[int] = mapped_column(default=0)
    absent_ms: Mapped[int | None]
    created_ms: Mapped[int] = mapped_column(index=True)
    rented_ms: Mapped[int | None]
    ended_ms: Mapped[int | None]
    run: Mapped[Run | None] = relationship(back_populates="instances")

    @property
    def gpu_names(self) -> list[str]:
        """Its GPUs, as the machine itself names them. A stranger wrote that: what is no GPU is left out."""
        cards = self.facts.get("gpus")
        return (
            [str(card.get("name", "")) for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
        )


class Chunk(Base):
    """One archived chunk of one stream (`logs.wire.ChunkRecord`); its bytes are in S3."""

    __tablename__ = "chunks"
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    stream: Mapped[str] = mapped_column(String(32), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    first_line: Mapped[int]
    lines: Mapped[int]
    t_first_ms: Mapped[int]
    t_last_ms: Mapped[int]
    raw_bytes: Mapped[int]
    raw_sha256: Mapped[str] = mapped_column(String(64))
    prev_sha256: Mapped[str] = mapped_column(String(64))
    stored_bytes: Mapped[int]
    received_ms: Mapped[int]


class Artifact(Base):
    __tablename__ = "artifacts"
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    size_bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64))
    object_key: Mapped[str] = mapped_column(String(400))
    created_ms: Mapped[int]


class Proof(Base):
    """Proof `index` of a run in one round: what was asked, what came, whether it holds.

    `pulled_ms` and `received_ms` are the controller's clock, `machine_ms` the machine's own figure.
    `verdict`: '' (not looked at) | valid | invalid | error. `joules`: see `jobs.story.energy`, known once the logs are
    complete; `joules_why` says why they are not known.
    """

    __tablename__ = "proofs"
    __table_args__ = (
        UniqueConstraint("run_id", "round", "index"),
        Index("ix_proofs_instance_id_verdict", "instance_id", "verdict"),
    )
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    instance_id: Mapped[str | None] = mapped_column(ForeignKey("instances.id"))
    round: Mapped[int]
    index: Mapped[int]
    witness_key: Mapped[str] = mapped_column(String(300))
    witness_sha256: Mapped[str] = mapped_column(String(64))
    witness_bytes: Mapped[int]
    witness_name: Mapped[str] = mapped_column(String(200), default="")
    expected_public: Mapped[Any] = mapped_column(JSON)
    pulled_ms: Mapped[int | None]
    received_ms: Mapped[int | None]
    machine_ms: Mapped[float | None]
    timings_ms: Mapped[Json] = mapped_column(default=dict)
    proof: Mapped[Json | None]
    public: Mapped[Any | None] = mapped_column(JSON)
    verdict: Mapped[str] = mapped_column(String(16), default="")
    reason: Mapped[str] = mapped_column(Text, default="")
    joules: Mapped[float | None]
    joules_why: Mapped[str] = mapped_column(String(200), default="", server_default="")


class Event(Base):
    """One thing that happened: a transition, a decision, an operator's act. Appended, never changed."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_run_id_id", "run_id", "id"),
        Index("ix_events_instance_id_id", "instance_id", "id"),
    )
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at_ms: Mapped[int] = mapped_column(index=True)
    run_id: Mapped[str | None] = mapped_column(ID)
    instance_id: Mapped[str | None] = mapped_column(ID)
    actor: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(48))
    old: Mapped[str] = mapped_column(String(16), default="")
    new: Mapped[str] = mapped_column(String(16), default="")
    reason: Mapped[str] = mapped_column(Text, default="")
    data: Mapped[Json] = mapped_column(default=dict)
