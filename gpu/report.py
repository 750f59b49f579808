"""What a bench tells while it runs: lines, progress events, and a folder a proof."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import click

from gpu.errors import ProofRejected, Refused
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
    early_stop: bool = True
    deadline_s: float | None = None
    url: str | None = None
    out: str | None = None
    progress: str | None = None
    daemon_log: str | None = None
    warm_up: bool = True
    as_json: bool = False


@dataclass(frozen=True)
class Outcome:
    """One proof: its answer or its error, its milliseconds as the client saw them, and when it ended, in seconds
    after the first was asked for.
    """

    index: int
    ms: float
    ended_s: float
    answer: dict[str, Any] | None
    error: str | None
    error_name: str = ""


@dataclass
class Report:
    """Where everything that happens is told. Its clock starts with `start`, after any warm-up."""

    options: Options
    lines: TextIO
    progress: TextIO | None
    outcomes: list[Outcome] = field(default_factory=list)
    started: float = 0.0
    warm_up_ms: float | None = None

    def start(self) -> None:
        self.started = time.perf_counter()

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
        self._write(outcome)
        values: dict[str, Any] = {"index": outcome.index, "ok": outcome.answer is not None}
        values |= {"ms": round(outcome.ms, 3), "done": done, "total": total}
        if outcome.answer is not None:
            values["timings_ms"] = timings = outcome.answer["timings_ms"]
            phases = ", ".join(f"{name} {duration(ms)}" for name, ms in timings.items())
            rate = len(self.good_ends()) * 3600 / max(outcome.ended_s, 1e-9)
            self.line(f"[{done}/{total}] ok {outcome.ms / 1000:.2f} s ({phases}); {rate:.1f} proofs/hour so far")
        else:
            values["error"] = outcome.error
            self.line(f"[{done}/{total}] failed proof {outcome.index}: {outcome.error}")
        self.event("proof", **values)

    def good_ends(self) -> list[float]:
        """When each good proof ended, in order."""
        return [outcome.ended_s for outcome in self.outcomes if outcome.answer is not None]

    def reject(self, verdicts: dict[int, ProofRejected]) -> None:
        """Turns answers into failures: of these proofs, by index, which did not verify here."""
        for position, outcome in enumerate(self.outcomes):
            if (verdict := verdicts.get(outcome.index)) is None:
                continue
            told = f"the daemon's proof is rejected: {verdict}"
            bad = replace(outcome, answer=None, error=told, error_name=verdict.name)
            self.outcomes[position] = bad
            self._write(bad)
            self.line(f"rejected proof {outcome.index}: {verdict}")
            self.event("rejected", index=outcome.index, error=told)

    def _write(self, outcome: Outcome) -> None:
        """`timings.json` comes last: where it is, the other two are complete. A failed proof has `error.txt`
        instead.
        """
        if self.options.out is None:
            return
        folder = Path(self.options.out) / str(outcome.index)
        with _writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if outcome.answer is None:
                for name in ("timings.json", "proof.json", "public.json"):
                    with suppress(FileNotFoundError):
                        (folder / name).unlink()
        if outcome.answer is None:
            write_atomically(folder / "error.txt", f"{outcome.error_name}: {outcome.error}\n".encode())
            return
        write_json(folder / "proof.json", outcome.answer["proof"])
        write_json(folder / "public.json", outcome.answer["public"])
        write_json(folder / "timings.json", {"ms": round(outcome.ms, 3), **outcome.answer["timings_ms"]})


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(f"{folder}: cannot be written: {error.strerror or error}; check --out") from error


def duration(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"
