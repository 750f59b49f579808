"""What is known of the text of each chunk: searches and the log viewer pass over the others by it. See `tables`."""

from __future__ import annotations

from sqlalchemy import ForeignKey, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from jobs.domain.tables import Base


class ChunkGrams(Base):
    """The trigrams of one chunk (`logs.grams.packed`), those over its edge with the chunk before included.

    `warnings`, `errors`: how many of its lines read so (`logs.levels.counts`).
    `edge`: its last two bytes where its last line goes on in the next chunk, else empty.
    """

    __tablename__ = "chunk_grams"
    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    stream: Mapped[str] = mapped_column(String(32), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    warnings: Mapped[int]
    errors: Mapped[int]
    edge: Mapped[bytes] = mapped_column(LargeBinary)
    bitmap: Mapped[bytes] = mapped_column(LargeBinary)
