"""N proofs, C at a time, by a daemon that checks each of them; all of them checked again here; live lines,
progress events, files, and a figure at the end.

A failed proof is counted and never hides the others. When the own daemon dies, what is left fails at once and
says how it died. A signal ends the bench with the figures so far.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from gpu.answers import check_answers
from gpu.child import OwnDaemon
from gpu.client import Client
from gpu.errors import BadFile, DaemonFailed, ProverError, Refused
from gpu.rates import Decision, RateTest
from gpu.report import Options, Outcome, Report, duration
from gpu.summary import finish, summary_of

_PATIENCE_S = 3600.0  # with a daemon that says nothing, where no deadline is given
_GRACE_S = 10.0  # beyond a proof's deadline, for the daemon to say that it has passed


def run_bench(options: Options) -> None:
    """Runs the bench. ProverError (exit code 1) when a proof failed, the rate is too low, or nothing
    could start. SystemExit with 128 and its number after a signal.
    """
    _check_files(options)
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(_open_progress(options.progress))
        report = Report(options, sys.stderr if options.as_json else sys.stdout, progress)
        report.event("start", total=options.proofs)
        signals = stack.enter_context(_Signals())
        own = None
        if options.url is None:
            own = stack.enter_context(OwnDaemon(options.partition_workers, options.daemon_log))
        client = Client(own.url if own else str(options.url))
        if options.warm_up:
            _warm_up(client, options, report)
        report.start()
        with signals.awaited():
            decision = _Run(client, own, report, signals).go()
        daemon = _status(client)
        report.reject(check_answers(options, report.outcomes))
        number = signals.caught
        summary = summary_of(report, decision, signal.Signals(number).name if number else "", daemon)
        report.event("end", **{name: summary[name] for name in ("ok", "failed", "proofs_per_hour", "slow")})
    finish(report, summary)
    if number:
        raise SystemExit(128 + number)


class _Run:
    """The proofs of one bench: C threads ask, the calling thread reports."""

    def __init__(self, client: Client, own: OwnDaemon | None, report: Report, signals: _Signals) -> None:
        self._client, self._own, self._report, self._signals = client, own, report, signals
        self._options = report.options
        self._session = secrets.token_hex(8)  # request ids must not meet those of another bench on the same daemon
        self._indices = iter(range(self._options.proofs))
        self._lock = threading.Lock()
        self._under_way: set[int] = set()
        self._stopped = threading.Event()
        self._results: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def go(self) -> Decision | None:
        """All proofs, or fewer after a signal or once the rate is decided: the decision, if there was one."""
        threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(self._options.concurrency)]
        for thread in threads:
            thread.start()
        try:
            return self._report_all()
        finally:
            self._stop()
            if self._own is not None:
                for thread in threads:
                    thread.join(_GRACE_S)

    def _report_all(self) -> Decision | None:
        minimum = self._options.min_proofs_per_hour
        test = RateTest(minimum, self._options.concurrency) if minimum and self._options.early_stop else None
        while len(self._report.outcomes) < self._options.proofs and not self._signals.caught:
            try:
                self._report.proof(self._results.get(timeout=0.1))
            except queue.Empty:
                continue
            # A failed proof decides the bench already; the others still show whether it is the only one.
            if test is not None and all(outcome.answer for outcome in self._report.outcomes):
                decision = test.look(self._report.good_ends())
                if decision is not None and len(self._report.outcomes) < self._options.proofs:
                    return decision
        return None

    def _stop(self) -> None:
        """No new proofs; those under way are cancelled, so that a daemon that is not ours is left idle."""
        with self._lock:
            self._stopped.set()
            under_way = list(self._under_way)
        for index in under_way:
            try:
                self._client.cancel(f"{self._session}-{index}")
            except DaemonFailed as error:
                if error.name == DaemonFailed.WORD:
                    return  # nobody is there to tell; a refusal of a daemon that is there has its own name

    def _ask(self) -> None:
        while True:
            with self._lock:
                index = None if self._stopped.is_set() else next(self._indices, None)
                if index is None:
                    return
                self._under_way.add(index)
            outcome = self._one(index)
            with self._lock:
                self._under_way.discard(index)
                if not self._stopped.is_set():
                    self._results.put(outcome)

    def _one(self, index: int) -> Outcome:
        options, begun = self._options, time.perf_counter()
        answer, error, name = None, None, ""
        try:
            died = self._own.death() if self._own else None
            if died:
                raise DaemonFailed(died)
            more = {} if options.deadline_s is None else {"deadline_s": options.deadline_s}
            patience = _PATIENCE_S if options.deadline_s is None else options.deadline_s + _GRACE_S
            wtns = options.wtns[index % len(options.wtns)]
            answer = self._client.prove(f"{self._session}-{index}", options.zkey, wtns, patience, **more)
        except ProverError as failure:
            # A connection that broke because the daemon died should say so; the kernel may need a moment to
            # tell.
            died = _death_within(self._own, 0.5)
            error, name = died or str(failure), DaemonFailed.WORD if died else failure.name
        ended = time.perf_counter()
        return Outcome(index, (ended - begun) * 1000, ended - self._report.started, answer, error, name)


def _death_within(own: OwnDaemon | None, seconds: float) -> str | None:
    deadline = time.monotonic() + seconds
    while own is not None:
        died = own.death()
        if died or time.monotonic() > deadline:
            return died
        # A refusal of the living daemon must not be held up, so a live status ends the wait.
        with contextlib.suppress(DaemonFailed):
            Client(own.url).status(timeout_s=1)
            return None
        time.sleep(0.02)
    return None


def _warm_up(client: Client, options: Options, report: Report) -> None:
    """One uncounted proof: compiles kernels and loads the key. Its failure is the first counted proof's
    to report.
    """
    begun = time.perf_counter()
    try:
        client.prove(f"warm-up-{secrets.token_hex(8)}", options.zkey, options.wtns[0])
    except ProverError as error:
        report.line(f"warm-up failed: {error}")
        return
    report.warm_up_ms = round((time.perf_counter() - begun) * 1000, 3)
    report.event("warm_up", ms=report.warm_up_ms)
    report.line(f"warm-up {duration(report.warm_up_ms)}")


def _status(client: Client) -> dict[str, Any]:
    """What the daemon says of itself, nothing when it is gone: its death is told by its proofs."""
    try:
        return client.status()
    except DaemonFailed:
        return {}


def _check_files(options: Options) -> None:
    for name in (options.zkey, *options.wtns):
        if not Path(name).is_file():
            raise BadFile(name, "file", "is not there", "check the path")


@contextlib.contextmanager
def _open_progress(path: str | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror or error}; check --progress") from error
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        yield file


class _Signals:
    """SIGINT and SIGTERM. While `awaited`, the first one ends the bench in good order, with its figures; any
    other ends it at once, and the own daemon on the way.
    """

    def __init__(self) -> None:
        self.caught = 0
        self._awaited = False

    def __enter__(self) -> _Signals:
        self._before = {signum: signal.signal(signum, self._note) for signum in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        self._awaited = True
        try:
            yield
        finally:
            self._awaited = False

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.caught or not self._awaited:
            raise SystemExit(128 + signum)
        self.caught = signum
