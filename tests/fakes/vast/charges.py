"""What the account is shown of its bill: by instance and day, rounded, and late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.fakes.vast.billing import DAY_MS, KINDS
from tests.fakes.vast.instances import Instance

NAMES = {"gpu": "GPU", "disk": "Storage", "bwd": "Download", "bwu": "Upload"}


def rows(
    instances: Iterable[Instance], begin_s: float, end_s: float, until_ms: int, skew_ms: int = 0
) -> list[dict[str, Any]]:
    """One row an instance and UTC day between two times, as far as the bill is written: `until_ms`.

    Days and times are those of Vast's clock, `skew_ms` ahead of everybody else's.

    A row's amount has three decimals, as Vast gives it; its items are what it is made of, to the millionth.
    """
    first_day, last_day = int(begin_s * 1000) // DAY_MS, int(end_s * 1000) // DAY_MS
    found: list[dict[str, Any]] = []
    for i in instances:
        found.extend(r for r in _days(i, until_ms, skew_ms) if first_day <= r["start"] * 1000 // DAY_MS <= last_day)
    return found


def _days(i: Instance, until_ms: int, skew_ms: int) -> Iterator[dict[str, Any]]:
    end_ms = until_ms if i.destroyed_ms is None else min(until_ms, i.destroyed_ms + 1)
    day_ms = (i.created_ms + skew_ms) // DAY_MS * DAY_MS - skew_ms
    while day_ms < end_ms:
        begin, end = max(day_ms, i.created_ms), min(day_ms + DAY_MS, end_ms)
        parts = {kind: i.meter.dollars(kind, begin, end) for kind in KINDS}
        if any(parts.values()):
            yield _row(i, begin + skew_ms, end + skew_ms, parts)
        day_ms += DAY_MS


def _row(i: Instance, begin_ms: int, end_ms: int, parts: dict[str, float]) -> dict[str, Any]:
    times = {"start": begin_ms // 1000, "end": end_ms // 1000}
    return {
        **times,
        "type": "instance",
        "source": f"instance-{i.id}",
        "description": f"{len(i.offer.gpus)}x {i.machine.gpu.name} on machine {i.machine.id}",
        "amount": round(sum(parts.values()), 3),
        "metadata": {"label": i.label, "template_id": None, "instance_id": i.id, "machine_id": i.machine.id},
        "items": [
            {
                **times,
                "type": kind,
                "source": None,
                "description": NAMES[kind],
                "amount": round(dollars, 6),
                "metadata": {},
                "items": [],
            }
            for kind, dollars in parts.items()
            if dollars
        ],
    }


def tree(flat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, one row an instance, its days inside."""
    found: dict[str, dict[str, Any]] = {}
    for row in flat:
        top = found.setdefault(row["source"], {**row, "amount": 0.0, "items": []})
        top["items"].append({**row, "type": "day"})
        top["amount"] = round(top["amount"] + row["amount"], 3)
        top["end"] = max(top["end"], row["end"])
    return list(found.values())
