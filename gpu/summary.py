"""The figures of a bench, as JSON, as lines, and as an exit code. docs/daemon.md describes each field."""

from __future__ import annotations

import json
import statistics
from typing import Any

import click

from gpu.errors import DaemonFailed, Refused
from gpu.rates import ERROR, Decision, interval
from gpu.report import Outcome, Report, duration


def summary_of(report: Report, decision: Decision | None, signal_name: str, daemon: dict[str, Any]) -> dict[str, Any]:
    """`daemon`: what its /status said. The rate counts good proofs, up to the last one that came."""
    options, outcomes = report.options, report.outcomes
    good = sorted(outcome.ms for outcome in outcomes if outcome.answer is not None)
    seconds = max((outcome.ended_s for outcome in outcomes), default=0.0)
    rate = round(len(good) * 3600 / seconds, 3) if seconds > 0 else 0.0
    around = interval(report.good_ends(), options.concurrency)
    minimum = options.min_proofs_per_hour
    return {
        "total": options.proofs,
        "ok": len(good),
        "failed": len(outcomes) - len(good),
        "left": options.proofs - len(outcomes),
        "seconds": round(seconds, 3),
        "proofs_per_hour": rate,
        "proofs_per_hour_90": None if around is None else [round(end, 3) for end in around],
        "median_ms": statistics.median(good) if good else None,
        "quartiles_ms": statistics.quantiles(good, method="inclusive")[::2] if len(good) > 1 else None,
        "min_ms": good[0] if good else None,
        "max_ms": good[-1] if good else None,
        "phases_median_ms": _phases(outcomes),
        "warm_up_ms": report.warm_up_ms,
        "min_proofs_per_hour": minimum,
        "slow": not decision.passed if decision else minimum is not None and rate < minimum,
        "stopped_early": None if decision is None else _told(decision, minimum or 0.0),
        "interrupted": signal_name or None,
        "concurrency": options.concurrency,
        "backend": daemon.get("backend"),
        "threads": daemon.get("threads"),
        "partition_workers": daemon.get("partition_workers"),
        "gpu_workers": len(daemon.get("gpu_workers") or []),
    }


def _phases(outcomes: list[Outcome]) -> dict[str, float]:
    phases: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, ms in (outcome.answer or {}).get("timings_ms", {}).items():
            phases.setdefault(name, []).append(ms)
    return {name: statistics.median(values) for name, values in phases.items()}


def _told(decision: Decision, minimum: float) -> dict[str, Any]:
    side = "above" if decision.passed else "below"
    return {
        "passed": decision.passed,
        "after": decision.after,
        "interval": [round(decision.low, 3), round(decision.high, 3)],
        "error": ERROR,
        "why": f"the rate is {side} the minimum of {minimum:.1f} proofs/hour, wrong with a chance under {ERROR:.0%}",
    }


def finish(report: Report, summary: dict[str, Any]) -> None:
    """Prints the summary. DaemonFailed when a proof failed, Refused when it was too slow: exit code 1."""
    for line in _lines(summary):
        report.line(line)
    if report.options.as_json:
        click.echo(json.dumps(summary))
    if summary["failed"]:
        first = next(outcome.error for outcome in report.outcomes if outcome.error)
        raise DaemonFailed(f"{summary['failed']} of {summary['total']} proofs failed; the first: {first}")
    if summary["slow"] and not summary["interrupted"]:
        raise Refused(
            f"slow: {summary['proofs_per_hour']:.1f} proofs/hour, "
            f"under the minimum of {summary['min_proofs_per_hour']:.1f}"
        )


def _lines(summary: dict[str, Any]) -> list[str]:
    lines = []
    if summary["interrupted"]:
        lines.append(f"{summary['interrupted']}: stopped with {summary['left']} proofs not made")
    if (early := summary["stopped_early"]) is not None:
        low, high = early["interval"]
        lines.append(f"stopped early, after {early['after']} proofs ({low:.1f} to {high:.1f}): {early['why']}")
    if not summary["ok"]:
        return lines
    around = summary["proofs_per_hour_90"]
    lines.append(
        f"{summary['ok']} of {summary['total']} proofs ok in {summary['seconds']:.2f} s; "
        f"{summary['proofs_per_hour']:.1f} proofs/hour"
        + (f" (90 %: {around[0]:.1f} to {around[1]:.1f})" if around else "")
    )
    quartiles = summary["quartiles_ms"]
    middle = f", quartiles {duration(quartiles[0])} to {duration(quartiles[1])}" if quartiles else ""
    lines.append(
        f"a proof: median {duration(summary['median_ms'])}{middle}, "
        f"{duration(summary['min_ms'])} to {duration(summary['max_ms'])}"
    )
    phases = ", ".join(f"{name} {duration(ms)}" for name, ms in summary["phases_median_ms"].items())
    lines.append(f"phases, median: {phases}")
    return lines
