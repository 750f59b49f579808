"""The tables of what the archive keeps, how, and for how long. See `tables`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from jobs.domain.tables import ID, Base


class Archive(Base):
    """What the archive holds of one instance. A row is made when its first byte comes, and locked by whatever adds.

    `manifest_ms`: its manifest was drawn up, and nothing more is taken; `compacted_ms`: its sealed streams are
    segments as far as they can be; `expired_ms`: its bytes were deleted but for pinned lines.
    """

    __tablename__ = "archives"
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    raw_bytes: Mapped[int] = mapped_column(default=0)
    artifact_bytes: Mapped[int] = mapped_column(default=0)
    manifest_ms: Mapped[int | None]
    compacted_ms: Mapped[int | None]
    expired_ms: Mapped[int | None]


class SegmentRow(Base):
    """One object with the frames of consecutive chunks (`logs.segments.Segment`), `frame_bytes` their lengths.

    A chunk that no segment holds has an object of its own.
    """

    __tablename__ = "segments"
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    stream: Mapped[str] = mapped_column(String(32), primary_key=True)
    first_seq: Mapped[int] = mapped_column(primary_key=True)
    last_seq: Mapped[int]
    mark: Mapped[str] = mapped_column(ID)
    frame_bytes: Mapped[Any] = mapped_column(JSON)
    created_ms: Mapped[int]


class Discard(Base):
    """An object that nothing refers to any more; it is deleted at `due_ms`, when whoever may still read it is done."""

    __tablename__ = "discards"
    object_key: Mapped[str] = mapped_column(String(400), primary_key=True)
    due_ms: Mapped[int] = mapped_column(index=True)


class Pin(Base):
    """Lines that never expire, because something cites them (`why`)."""

    __tablename__ = "pins"
    __table_args__ = (UniqueConstraint("instance_id", "stream", "first_line", "last_line", "why"),)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    stream: Mapped[str] = mapped_column(String(32))
    first_line: Mapped[int]
    last_line: Mapped[int]
    why: Mapped[str] = mapped_column(String(200))
    by: Mapped[str] = mapped_column(String(64))
    created_ms: Mapped[int]


class Keep(Base):
    """A run whose logs an operator keeps for ever."""

    __tablename__ = "keeps"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    by: Mapped[str] = mapped_column(String(64))
    reason: Mapped[str] = mapped_column(Text)
    created_ms: Mapped[int]
