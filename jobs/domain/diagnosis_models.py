"""The table of diagnoses. See `tables`."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from jobs.domain.models import Instance
from jobs.domain.tables import Base, Json


class Diagnosis(Base):
    """Why the run on one instance ended as it did (`jobs.diagnosis.report.Report`), by the rules of version `rules`.

    `cause` is the report's first answer ('' where nothing stands); failures of one `fingerprint` read alike.
    """

    __tablename__ = "diagnoses"
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    rules: Mapped[str] = mapped_column(String(16))
    stage: Mapped[str] = mapped_column(String(16))
    outcome: Mapped[str] = mapped_column(String(8))
    cause: Mapped[str] = mapped_column(String(40), index=True)
    fingerprint: Mapped[str] = mapped_column(String(64), index=True)
    report: Mapped[Json]
    created_ms: Mapped[int] = mapped_column(index=True)
    instance: Mapped[Instance] = relationship()
