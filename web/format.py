"""Numbers, money and times as a person weighs them, and hostile text made harmless to look at."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from markupsafe import Markup

from logs.ansi import visible


def finalize(value: object) -> object:
    """What Jinja shows of an expression: None as nothing, strings visible. Markup is ours, and passes."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def significant(value: float, digits: int = 2) -> str:
    """`value` with `digits` significant figures, never in scientific notation, thousands separated."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "?"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def money(value: float | None) -> str:
    """$11.40, $0.074, $0.0054: cents from a dollar on, two significant figures below."""
    if value is None:
        return "\u2013"
    if value == 0 or abs(value) >= 0.995:
        return f"{'-' if value < 0 else ''}${abs(value):,.2f}"
    if abs(value) < 0.00001:
        return "< $0.00001"
    text = significant(abs(value))
    return f"{'-' if value < 0 else ''}${text if len(text) >= 4 else text + '0'}"


def cents(dollars: float) -> str:
    """0.31 \u00a2, 12.4 \u00a2: hundredths of a dollar, three significant figures below 100."""
    value = 100 * dollars
    if 0 < abs(value) < 0.001:
        return "< 0.001 \u00a2"
    return f"{value:,.1f} \u00a2" if abs(value) >= 100 else f"{significant(value, 3)} \u00a2"


def number(value: float | None) -> str:
    """A count or a rate: three significant figures from 0.01 to 1,000, whole above."""
    if value is None:
        return "\u2013"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return significant(value, 3).rstrip("0").rstrip(".") if value else "0"


def percent(share: float | None) -> str:
    """58 %; what is all but certain is not called certain: < 1 %, > 99 %."""
    if share is None or not math.isfinite(share):
        return "\u2013"
    if 0 < share < 0.01 or 0.99 < share < 1:
        return "< 1 %" if share < 0.5 else "> 99 %"
    return f"{100 * share:.0f} %"


def plus_minus(value: float | None, low: float | None, high: float | None) -> str:
    """31 ± 6: the larger half of the interval, rounded to what is known of it; 31 (9–120) where that is most of it."""
    if value is None:
        return "\u2013"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return number(value)
    half = max(value - low, high - value)
    if half <= 0:
        return number(value)
    if half >= value > 0:
        return f"{number(value)} ({number(low)}\u2013{number(high)})"  # a plus-minus would reach below nothing
    decimals = max(0, -math.floor(math.log10(half)))
    return f"{value:,.{decimals}f} \u00b1 {half:,.{decimals}f}"


def duration(ms: float | None) -> str:
    """850 ms, 4.2 s, 41 s, 3 min 49 s, 2 h 10 min, 3 d 4 h."""
    if ms is None:
        return "\u2013"
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, next_size, next_unit in ((60, "min", 1, "s"), (3600, "h", 60, "min"), (86400, "d", 3600, "h")):
        if whole < size * (60 if size == 60 else 24 if size == 3600 else 10**6):
            rest = whole % size // next_size
            return f"{whole // size} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{whole} s"


def size(count: int | None) -> str:
    """812 B, 64 KiB, 1.2 GiB."""
    if count is None:
        return "\u2013"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 9.95 else f"{value:.1f} {unit}"


def utc(ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(ms, 0), 253402300799000) / 1000, UTC)


def absolute(ms: int | None) -> str:
    return "\u2013" if ms is None else utc(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def day(ms: int | None) -> str:
    return "\u2013" if ms is None else utc(ms).strftime("%a %Y-%m-%d")


def clock(ms: int | None) -> str:
    """The time of day, for lines that come by the second."""
    return "\u2013" if ms is None else utc(ms).strftime("%H:%M:%S")


def relative(ms: int, now_ms: int) -> str:
    """just now, 40 s ago, 3 min ago, 5 h ago, 12 d ago, in 2 min."""
    gap = now_ms - ms
    seconds = abs(gap) // 1000
    if seconds < 5:
        return "just now"
    scales = ((60, 1, "s"), (3600, 60, "min"), (48 * 3600, 3600, "h"), (math.inf, 86400, "d"))
    unit, word = next((unit, word) for limit, unit, word in scales if seconds < limit)
    text = f"{seconds // unit} {word}"
    return f"{text} ago" if gap > 0 else f"in {text}"


def short_id(value: str | None) -> str:
    """The first eight figures of an id: enough to tell two apart on one page."""
    return (value or "")[:8]
