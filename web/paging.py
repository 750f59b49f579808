"""Lists whose filter, order and page are in the address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from flask import request
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

Row = TypeVar("Row")

PER_PAGE = 50
# Far pages are read by skipping rows, and totals by counting them: beyond this, filter instead.
MOST_COUNTED = 10_000
MAX_PAGE = MOST_COUNTED // PER_PAGE


@dataclass(frozen=True)
class Order:
    """How a list is sorted: `?sort=created` up, `?sort=-created` down."""

    key: str
    down: bool

    def next(self, key: str) -> str:
        """The order that a click on the heading `key` asks for: down first, then up."""
        return key if key == self.key and self.down else f"-{key}"

    def apply(self, columns: dict[str, Any]) -> Any:
        column = columns[self.key]
        return column.desc() if self.down else column.asc()


@dataclass(frozen=True)
class Page(Generic[Row]):
    rows: Sequence[Row]
    number: int
    more: bool
    total: int | None
    per_page: int = PER_PAGE

    @property
    def first(self) -> int:
        return (self.number - 1) * self.per_page + 1

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1


def order(columns: dict[str, Any], default: str) -> Order:
    """The order that the address asks for; `default` (as in the address) when it names none that we know."""
    asked = request.args.get("sort", default)
    if asked.removeprefix("-") not in columns:
        asked = default
    return Order(asked.removeprefix("-"), asked.startswith("-"))


def number() -> int:
    asked = request.args.get("page", "1")
    return min(max(1, int(asked)), MAX_PAGE) if asked.isascii() and asked.isdigit() and len(asked) < 8 else 1


def page(rows: Sequence[Row], total: int | None = None, per_page: int = PER_PAGE) -> Page[Row]:
    """A page from up to `per_page` + 1 rows; the one too many says that there is another page."""
    return Page(rows[:per_page], number(), len(rows) > per_page, total, per_page)


def count(session: Session, rows: Select[Any]) -> int:
    """How many rows a query has; `MOST_COUNTED` + 1 stands for "more than that"."""
    return session.scalar(select(func.count()).select_from(rows.limit(MOST_COUNTED + 1).subquery())) or 0


def skip(per_page: int = PER_PAGE) -> int:
    return (number() - 1) * per_page


def arg(name: str, most: int = 100) -> str:
    """A filter from the address, stripped and cut: what is longer is nothing we store."""
    return request.args.get(name, "").strip()[:most]


def date_ms(name: str) -> int | None:
    """A date in the address (`2026-11-30`, UTC) as milliseconds; None when it is empty or no date."""
    try:
        return int(datetime.strptime(arg(name, 10), "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return None
