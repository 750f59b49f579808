"""Charts as SVG that the server draws: no script, no inline style; colours are in `parts.css`, for both themes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from web import format as f


@dataclass(frozen=True)
class Span:
    """One stretch of a waterfall: `start_ms` and `ms` on one clock; `now` while it still goes on."""

    name: str
    start_ms: int
    ms: int
    dollars: float
    now: bool = False
    idle: bool = False


def span_bar(span: Span, spans: Sequence[Span]) -> Markup:
    """The bar of one row of a waterfall, in percent of the whole."""
    first = min(s.start_ms for s in spans)
    whole = max(max(s.start_ms + s.ms for s in spans) - first, 1)
    left = 100 * (span.start_ms - first) / whole
    width = max(100 * span.ms / whole, 0.4)
    kind = "now" if span.now else "rest" if span.idle else ""
    return Markup(
        '<svg aria-hidden="true"><rect class="{}" x="{}%" y="1" width="{}%" height="10" rx="1.5"/></svg>'
    ).format(kind, f"{left:.2f}", f"{min(width, 100 - left):.2f}")


def stretch_bar(spans: Sequence[tuple[int, int]], first_ms: int, whole_ms: int, kind: str) -> Markup:
    """One row of a waterfall that comes back: (start, milliseconds) of each stretch, in percent of the whole."""
    whole = max(whole_ms, 1)
    bar = Markup('<rect class="{}" x="{}%" y="1" width="{}%" height="10" rx="1.5"/>')
    parts = []
    for start_ms, ms in spans:
        left = 100 * (start_ms - first_ms) / whole
        parts.append(bar.format(kind, f"{min(left, 99.6):.2f}", f"{min(max(100 * ms / whole, 0.4), 100 - left):.2f}"))
    return Markup('<svg aria-hidden="true">{}</svg>').format(Markup("").join(parts))


def interval_bar(
    value: float | None, low: float | None, high: float | None, most: float, limit: float | None = None
) -> Markup:
    """A point with its interval on a scale from 0 to `most`; `limit` is a mark that it is held against."""
    if value is None or most <= 0:
        return Markup("")

    def at(number: float) -> str:
        return f"{min(max(number / most, 0), 1) * 96 + 2:.1f}%"

    parts = [Markup('<line class="axis" x1="2%" x2="98%" y1="8" y2="8"/>')]
    if low is not None and high is not None:
        parts.append(Markup('<line class="interval" x1="{}" x2="{}" y1="8" y2="8"/>').format(at(low), at(high)))
    if limit is not None:
        parts.append(Markup('<line class="limit" x1="{0}" x2="{0}" y1="1" y2="15"/>').format(at(limit)))
    parts.append(Markup('<circle class="point" cx="{}" cy="8" r="3"/>').format(at(value)))
    label = f"{f.plus_minus(value, low, high)}" + (f", minimum {f.number(limit)}" if limit is not None else "")
    return Markup('<svg class="bar-chart chart" role="img" aria-label="{}">{}</svg>').format(
        label, Markup("").join(parts)
    )


def hourly(counts: Sequence[int], labels: Sequence[str], unit: str) -> Markup:
    """Bars of one count an hour, oldest first, with the highest one named. As wide as its place, 96 px high."""
    base, most = 76, max([*counts, 1])
    step = 100 / max(len(counts), 1)
    parts = [Markup('<line class="axis" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(base)]
    bar = Markup('<rect class="fill" x="{}%" y="{}" width="{}%" height="{}" rx="1"><title>{}: {} {}</title></rect>')
    for i, count in enumerate(counts):
        tall = max((base - 18) * count / most, 1.5)
        if count:
            place = (f"{i * step + 0.15:.2f}", f"{base - tall:.1f}", f"{step - 0.3:.2f}", f"{tall:.1f}")
            parts.append(bar.format(*place, labels[i], count, unit))
    top = max(range(len(counts)), key=counts.__getitem__) if counts else 0
    if counts and counts[top]:
        name = Markup('<text x="{}%" y="12" text-anchor="middle">{}</text>')
        parts.append(name.format(f"{min(max((top + 0.5) * step, 2), 98):.2f}", f.number(counts[top])))
    label = Markup('<text x="{}%" y="92">{}</text>')
    parts += [label.format(f"{i * step:.2f}", labels[i]) for i in range(0, len(labels), 6)]
    return Markup('<svg class="hours" role="img" aria-label="{}">{}</svg>').format(
        f"{sum(counts)} {unit} in {len(counts)} hours", Markup("").join(parts)
    )


Point = tuple[int, float, float | None, float | None]


def over_time(points: Sequence[Point], unit: str) -> Markup:
    """Values with their intervals by time, oldest first: (ms, value, low, high). As wide as its place, 120 px high."""
    if not points:
        return Markup("")
    base, roof = 96, 14
    most = max(max(value, high or 0.0) for _, value, _, high in points) or 1.0
    first, last = points[0][0], points[-1][0]

    def x(at_ms: int) -> str:
        return f"{3 + 94 * ((at_ms - first) / (last - first) if last > first else 0.5):.2f}%"

    def y(value: float) -> str:
        return f"{base - (base - roof) * value / most:.1f}"

    parts = [Markup('<line class="axis" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(base)]
    interval = Markup('<line class="interval" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>')
    dot = Markup('<circle class="point" cx="{}" cy="{}" r="3.5"><title>{}: {} {}</title></circle>')
    for at, value, low, high in points:
        if low is not None and high is not None:
            parts.append(interval.format(x(at), y(low), y(high)))
        parts.append(dot.format(x(at), y(value), f.absolute(at), f.plus_minus(value, low, high), unit))
    name = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    parts.append(name.format("0", 10, "start", f"{f.number(most)} {unit}"))
    ends = [(first, "start", "0"), (last, "end", "100%")] if last > first else [(first, "middle", "50%")]
    parts += [name.format(at_x, 114, anchor, f.utc(at).strftime("%Y-%m-%d")) for at, anchor, at_x in ends]
    label = f"{len(points)} measurements, the newest {f.plus_minus(*points[-1][1:])} {unit}"
    return Markup('<svg class="times" role="img" aria-label="{}">{}</svg>').format(label, Markup("").join(parts))


def meter(value: float, most: float, held: float = 0.0) -> Markup:
    """How much of the limit `most` is used: `value`, then `held`, lighter; other colours near and over it."""
    kind = "over" if value >= most else "near" if value + held >= 0.9 * most else "part"
    return _bar(value, most, held, kind)


def share_bar(value: float, most: float) -> Markup:
    """`value` against the largest of its kind."""
    return _bar(value, most, 0.0, "part")


def _bar(value: float, most: float, held: float, kind: str) -> Markup:
    share = max(0.0, min(value / most, 1.0)) if most > 0 else 1.0
    more = max(0.0, min((value + held) / most, 1.0) - share) if most > 0 else 0.0
    bar = Markup('<rect class="{}" x="{}%" width="{}%" y="0" height="8"/>')
    parts = [bar.format(kind, "0", f"{100 * share:.2f}"), bar.format("held", f"{100 * share:.2f}", f"{100 * more:.2f}")]
    whole = Markup('<rect class="whole" width="100%" height="8"/>')
    return Markup('<svg class="meter" aria-hidden="true">{}</svg>').format(whole + Markup("").join(parts))
