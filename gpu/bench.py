"""N proofs, C at a time, by a daemon that checks each of them; live lines, progress events, files, and a
figure at the end.

A failed proof is counted and never hides the others. When the daemon dies, what is left fails at once and
says how it died.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import TextIO

from gpu.child import OwnDaemon
from gpu.client import Client
from gpu.errors import BadFile, DaemonFailed, ProverError, Refused
from gpu.report import Options, Outcome, Report, duration, finish, summary_of


def run_bench(options: Options) -> None:
    """Runs the bench. ProverError (exit code 1) when a proof failed, the rate is too low, or nothing
    could start.
    """
    _check_files(options)
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(_open_progress(options.progress))
        report = Report(options, sys.stderr if options.as_json else sys.stdout, progress)
        report.event("start", total=options.proofs)
        stack.enter_context(_ending_on_sigterm())
        own = None
        if options.url is None:
            own = stack.enter_context(OwnDaemon(options.partition_workers, options.daemon_log))
        client = Client(own.url if own else str(options.url))
        if options.warm_up:
            _warm_up(client, options, report)
        begun = time.perf_counter()
        _prove_all(client, own, options, report)
        summary = summary_of(report.outcomes, time.perf_counter() - begun, options)
        report.event("end", **{name: summary[name] for name in ("ok", "failed", "proofs_per_hour", "slow")})
    finish(report, summary)


def _prove_all(client: Client, own: OwnDaemon | None, options: Options, report: Report) -> None:
    session = secrets.token_hex(8)  # request ids must not meet those of another bench on the same daemon
    abandon = threading.Event()

    def one(index: int) -> Outcome:
        begun = time.perf_counter()
        answer, error, name = None, None, ""
        if abandon.is_set():
            return Outcome(index, 0.0, None, "the bench was stopped", "stopped")
        try:
            died = own.death() if own else None
            if died:
                raise DaemonFailed(died)
            answer = client.prove(f"{session}-{index}", options.zkey, options.wtns[index % len(options.wtns)])
        except ProverError as failure:
            # A connection that broke because the daemon died should say so; the kernel may need a moment to
            # tell.
            died = _death_within(own, 0.5)
            error, name = died or str(failure), DaemonFailed.WORD if died else failure.name
        return Outcome(index, (time.perf_counter() - begun) * 1000, answer, error, name)

    pool = ThreadPoolExecutor(options.concurrency, "bench")
    try:
        waiting: set[Future[Outcome]] = {pool.submit(one, index) for index in range(options.proofs)}
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for outcome in sorted((future.result() for future in finished), key=lambda done: done.index):
                report.proof(outcome)
    finally:
        abandon.set()
        if own is not None and waiting:
            own.stop()  # interrupted: the requests under way end with their daemon
        pool.shutdown(wait=own is not None, cancel_futures=True)


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
    ms = round((time.perf_counter() - begun) * 1000, 3)
    report.event("warm_up", ms=ms)
    report.line(f"warm-up {duration(ms)}")


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


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so that the own daemon is stopped on the way."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
