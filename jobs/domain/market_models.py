"""The tables of the market: what can be rented, what was learned of it, our accounts and bills. See `tables`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from jobs.domain.tables import ID, Base, Json


class Snapshot(Base):
    """The newest complete list of a provider, as the one poller read it; everyone else reads this row.

    `begun_ms`, `ended_ms`: our clock around the read; what happened after `begun_ms` may be missing. `error` is why a
    later read failed, `failed_ms` when; '' once one succeeds. `poller` polls now, until `poller_until_ms`.
    `watched_ms` is the `begun_ms` of the list that `watch` acted on last: each one counts once.
    """

    __tablename__ = "snapshots"
    provider: Mapped[str] = mapped_column(String(16), primary_key=True)
    begun_ms: Mapped[int] = mapped_column(default=0)
    ended_ms: Mapped[int] = mapped_column(default=0)
    instances: Mapped[Any] = mapped_column(JSON, default=list)
    failed_ms: Mapped[int | None]
    error: Mapped[str] = mapped_column(Text, default="")
    poller: Mapped[str | None] = mapped_column(ID)
    poller_until_ms: Mapped[int | None]
    watched_ms: Mapped[int] = mapped_column(default=0)


class Scan(Base):
    """How the last searches of a provider's offers went. `scanned_ms`: the newest that worked. `error` is why a later
    one did not, '' once one does; none is tried again before `again_ms`."""

    __tablename__ = "scans"
    provider: Mapped[str] = mapped_column(String(16), primary_key=True)
    scanned_ms: Mapped[int] = mapped_column(default=0)
    offers: Mapped[int] = mapped_column(default=0)
    error: Mapped[str] = mapped_column(Text, default="")
    failed_ms: Mapped[int | None]
    again_ms: Mapped[int] = mapped_column(default=0)


class Account(Base):
    """What a provider says of our money there.

    `read_ms`: when the credit was read; `tried_ms`: when it was last asked for, and `error` what came instead.
    `charged_until_ms`, `charges_tried_ms` and `charges_error` are the same of its bill.
    """

    __tablename__ = "accounts"
    provider: Mapped[str] = mapped_column(String(16), primary_key=True)
    credit_dollars: Mapped[float | None]
    read_ms: Mapped[int | None]
    tried_ms: Mapped[int | None]
    error: Mapped[str] = mapped_column(Text, default="")
    charged_until_ms: Mapped[int | None]
    charges_tried_ms: Mapped[int | None]
    charges_error: Mapped[str] = mapped_column(Text, default="")


class Cap(Base):
    """A limit on spending that an operator set. `scope`: run | day | month | user:NAME (a month each)."""

    __tablename__ = "caps"
    scope: Mapped[str] = mapped_column(String(80), primary_key=True)
    dollars: Mapped[float]
    set_by: Mapped[str] = mapped_column(String(64))
    set_ms: Mapped[int]


class Charge(Base):
    """One line of a provider's bill. `kind`: gpu | disk | bwd | bwu, or the provider's own word."""

    __tablename__ = "charges"
    __table_args__ = (UniqueConstraint("provider", "provider_id", "kind", "begin_ms"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    provider: Mapped[str] = mapped_column(String(16))
    provider_id: Mapped[str] = mapped_column(String(64), index=True)
    label: Mapped[str] = mapped_column(String(300), default="")
    kind: Mapped[str] = mapped_column(String(16))
    begin_ms: Mapped[int] = mapped_column(index=True)
    end_ms: Mapped[int]
    dollars: Mapped[float]
    fetched_ms: Mapped[int]


class LedgerDay(Base):
    """What one rental cost on one UTC day: our own account of it, and the provider's bill once that is complete."""

    __tablename__ = "ledger"
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    day_ms: Mapped[int] = mapped_column(primary_key=True, index=True)
    gpu_dollars: Mapped[float] = mapped_column(default=0.0)
    disk_dollars: Mapped[float] = mapped_column(default=0.0)
    traffic_dollars: Mapped[float] = mapped_column(default=0.0)
    billed_dollars: Mapped[float | None]


class Mark(Base):
    """What a machine is remembered for. `kind`: slow | broken | unstable | wrong_specs.

    Keyed on the machine. It fades, and counts no more from `fades_ms` on; an appeal that was granted withdraws it.
    `instance_id` and `run_id` lead to the evidence; `by` is who made it (a job, or an operator's name).
    """

    __tablename__ = "marks"
    __table_args__ = (Index("ix_marks_provider_machine_id", "provider", "machine_id"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    provider: Mapped[str] = mapped_column(String(16))
    machine_id: Mapped[str] = mapped_column(String(64))
    host_id: Mapped[str] = mapped_column(String(64), default="")
    kind: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    run_id: Mapped[str | None] = mapped_column(ID)
    instance_id: Mapped[str | None] = mapped_column(ID)
    by: Mapped[str] = mapped_column(String(64))
    at_ms: Mapped[int]
    fades_ms: Mapped[int] = mapped_column(index=True)
    appeal: Mapped[str] = mapped_column(Text, default="")
    appealed_by: Mapped[str] = mapped_column(String(64), default="")
    appealed_ms: Mapped[int | None]
    withdrawn_ms: Mapped[int | None]
    withdrawn_by: Mapped[str] = mapped_column(String(64), default="")
    withdrawn_reason: Mapped[str] = mapped_column(Text, default="")


class Measurement(Base):
    """A rate that we measured on a machine, with the machine as it was; what forecasts are made from.

    `work` names what was proved, so that only like is compared with like: payload/curve/domain, e.g.
    `groth16/bls12381/4096`. `boot_s` and `params_s` were paid for before the first proof. `specs` is what the offer
    advertised, by the names of `OfferFacts.facts` (and `gpu_ram_bytes`, `key_bytes`), where it did.
    """

    __tablename__ = "measurements"
    __table_args__ = (Index("ix_measurements_work_gpu_model", "work", "gpu_model"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    provider: Mapped[str] = mapped_column(String(16))
    machine_id: Mapped[str] = mapped_column(String(64), index=True)
    host_id: Mapped[str] = mapped_column(String(64), default="")
    gpu_model: Mapped[str] = mapped_column(String(100))
    num_gpus: Mapped[int]
    cpu_model: Mapped[str] = mapped_column(String(200))
    cpu_cores: Mapped[int]
    ram_bytes: Mapped[int]
    specs: Mapped[Json] = mapped_column(default=dict)
    work: Mapped[str] = mapped_column(String(100))
    proofs_per_hour: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]
    proofs: Mapped[int]
    boot_s: Mapped[float | None]
    params_s: Mapped[float | None]
    dollars_per_hour: Mapped[float]
    run_id: Mapped[str | None] = mapped_column(ID)
    instance_id: Mapped[str | None] = mapped_column(ID, unique=True)
    at_ms: Mapped[int]


class Offer(Base):
    """What a provider would rent, as the last scan saw it. Rows of the newest complete scan have `gone_ms` NULL."""

    __tablename__ = "offers"
    provider: Mapped[str] = mapped_column(String(16), primary_key=True)
    offer_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    machine_id: Mapped[str] = mapped_column(String(64), index=True)
    host_id: Mapped[str] = mapped_column(String(64), default="")
    gpu_model: Mapped[str] = mapped_column(String(100), default="")
    num_gpus: Mapped[int] = mapped_column(default=0)
    gpu_ram_bytes: Mapped[int] = mapped_column(default=0)
    cpu_model: Mapped[str] = mapped_column(String(200), default="")
    cpu_cores: Mapped[int] = mapped_column(default=0)
    ram_bytes: Mapped[int] = mapped_column(default=0)
    disk_bytes: Mapped[int] = mapped_column(default=0)
    dollars_per_hour: Mapped[float]
    location: Mapped[str] = mapped_column(String(64), default="")
    facts: Mapped[Json] = mapped_column(default=dict)
    seen_ms: Mapped[int]
    gone_ms: Mapped[int | None]


class Machine(Base):
    """The physical machine, keyed as the provider numbers it; what we learned about it outlives every offer."""

    __tablename__ = "machines"
    provider: Mapped[str] = mapped_column(String(16), primary_key=True)
    machine_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    host_id: Mapped[str] = mapped_column(String(64), default="")
    description: Mapped[str] = mapped_column(String(300), default="")
    proofs_per_hour: Mapped[float | None]
    measured_ms: Mapped[int | None]
    first_seen_ms: Mapped[int]
    last_seen_ms: Mapped[int]
