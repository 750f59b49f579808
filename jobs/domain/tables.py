"""What all tables have in common. Times are UTC milliseconds since the epoch (`*_ms`), money is dollars, ids are
lower-case hex.

Integers for time, because SQLite has no time type and both databases must compare alike.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Integer, MetaData, String
from sqlalchemy.orm import DeclarativeBase

Json = dict[str, Any]
ID = String(32)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar = {int: BigInteger().with_variant(Integer(), "sqlite"), Json: JSON}
