"""What a bench tells while it runs and when it ends: lines, progress events, files, and the summary."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import click

from gpu.errors import DaemonFailed, Refused
from gpu.files import write_atomically, write_json


@dataclass(frozen=True)
class Options:
    """The command's options under their own names."""

    zkey: str
    wtns: list[str]
    proofs: int = 10
    concurrency: int = 1
    partition_workers: int = 1
    min_proofs_per_hour: float | None = None
    url: str | None = None
    out: str | None = None
    progress: str | None = None
    daemon_log: str | None = None
    warm_up: bool = True
    as_json: bool = False


@dataclass(frozen=True)
class Outcome:
    """One proof: its answer or its error, and its milliseconds as the client saw them."""

    index: int
    ms: float
    answer: dict[str, Any] | None
    error: str | None
    error_name: str = ""


@dataclass
class Report:
    """Where everything that happens is told: lines, progress events, files."""

    options: Options
    lines: TextIO
    progress: TextIO | None
    outcomes: list[Outcome] = field(default_factory=list)

    def event(self, name: str, **values: object) -> None:
        if self.progress is not None:
            self.progress.write(json.dumps({"event": name, **values}) + "\n")
            self.progress.flush()

    def line(self, text: str) -> None:
        click.echo(" ".join(text.split()), file=self.lines)
        self.lines.flush()

    def proof(self, outcome: Outcome) -> None:
        """Files first, then the event: whoever reads the event finds the files."""
        self.outcomes.append(outcome)
        done, total = len(self.outcomes), self.options.proofs
        if self.options.out is not None:
            _write_outcome(Path(self.options.out) / str(outcome.index), outcome)
        values: dict[str, Any] = {"index": outcome.index, "ok": outcome.answer is not None}
        values |= {"ms": round(outcome.ms, 3), "done": done, "total": total}
        if outcome.answer is not None:
            values["timings_ms"] = timings = outcome.answer["timings_ms"]
            phases = ", ".join(f"{name} {duration(ms)}" for name, ms in timings.items())
            self.line(f"[{done}/{total}] ok {outcome.ms / 1000:.2f} s ({phases})")
        else:
            values["error"] = outcome.error
            self.line(f"[{done}/{total}] failed proof {outcome.index}: {outcome.error}")
        self.event("proof", **values)


def summary_of(outcomes: list[Outcome], seconds: float, options: Options) -> dict[str, Any]:
    good = sorted(outcome.ms for outcome in outcomes if outcome.answer is not None)
    rate = round(len(good) * 3600 / seconds, 3) if seconds > 0 else 0.0
    phases: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, ms in (outcome.answer or {}).get("timings_ms", {}).items():
            phases.setdefault(name, []).append(ms)
    return {
        "total": options.proofs,
        "ok": len(good),
        "failed": options.proofs - len(good),
        "seconds": round(seconds, 3),
        "proofs_per_hour": rate,
        "median_ms": statistics.median(good) if good else None,
        "min_ms": good[0] if good else None,
        "max_ms": good[-1] if good else None,
        "phases_median_ms": {name: statistics.median(values) for name, values in phases.items()},
        "min_proofs_per_hour": options.min_proofs_per_hour,
        "slow": options.min_proofs_per_hour is not None and rate < options.min_proofs_per_hour,
    }


def finish(report: Report, summary: dict[str, Any]) -> None:
    if summary["ok"]:
        report.line(
            f"{summary['ok']} of {summary['total']} proofs ok in {summary['seconds']:.2f} s; median "
            f"{duration(summary['median_ms'])}, {duration(summary['min_ms'])} to {duration(summary['max_ms'])}; "
            f"{summary['proofs_per_hour']:.1f} proofs/hour"
        )
    if report.options.as_json:
        click.echo(json.dumps(summary))
    if summary["failed"]:
        first = next(outcome.error for outcome in report.outcomes if outcome.error)
        raise DaemonFailed(f"{summary['failed']} of {summary['total']} proofs failed; the first: {first}")
    if summary["slow"]:
        raise Refused(
            f"slow: {summary['proofs_per_hour']:.1f} proofs/hour, "
            f"under the minimum of {summary['min_proofs_per_hour']:.1f}"
        )


def _write_outcome(folder: Path, outcome: Outcome) -> None:
    """timings.json comes last: where it is, the other two are complete."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder}: cannot be made: {error.strerror or error}; check --out") from error
    if outcome.answer is None:
        write_atomically(folder / "error.txt", f"{outcome.error_name}: {outcome.error}\n".encode())
        return
    write_json(folder / "proof.json", outcome.answer["proof"])
    write_json(folder / "public.json", outcome.answer["public"])
    write_json(folder / "timings.json", {"ms": round(outcome.ms, 3), **outcome.answer["timings_ms"]})


def duration(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"
