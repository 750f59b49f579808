"""`provefleet demo`: the whole job on this machine, from offer to destroyed instance, with real proofs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click
from sqlalchemy.exc import SQLAlchemyError

from jobs.context import Context
from jobs.domain.runs import InvalidRequest, cancel_run, create_run, parse_request
from jobs.services import foreground, state
from jobs.services.errors import ServiceError
from jobs.services.following import Bar, Snapshot, look
from jobs.services.up import Interrupted, Stack, Started, listen_for_the_end
from jobs.services.warming import Warming
from jobs.settings import given_settings, load_settings

CIRCUIT = "chain/4096/bls12381"
PROOFS, CONCURRENCY = 12, 3
DEADLINE_S = 150.0
# After that: time for an instance that was called off to be sealed and destroyed.
CALL_OFF_S = 25.0


class Failed(Exception):
    """The demo did not go as it should, and why."""


def run(*, once: bool, provider: str) -> int:
    """Runs the demo on the stack of the state folder, started here unless it runs. With `once` it stops what it
    started and prints a line of result; else it stays until Ctrl-C. 0 when all went well."""
    run_id = "none"
    stack: Stack | None = None
    warming: Warming | None = None
    outcome = ""
    try:
        state_dir = given_settings().state_dir
        state.prepare(state_dir)
        warming = Warming(state_dir, CIRCUIT.rpartition("/")[2])
        stack, started = _stack()
        demo = Demo(started, provider)
        run_id = demo.run_id
        outcome = demo.follow(stack)
        demo.introduce()
    except (ServiceError, Failed, Interrupted) as error:
        reason = str(error) or "stopped by the operator"
        outcome = f"demo: failed run={run_id} {' '.join(reason.split())}"
    finally:
        if warming:
            warming.stop()
    well = outcome.startswith("demo: ok")
    if stack and not once and well:
        return foreground.watch_and_stop(stack)
    if stack and not foreground.stop(stack) and well:
        well, outcome = False, f"demo: failed run={run_id} the services did not stop in time and were killed"
    click.echo(outcome)
    return 0 if well else 1


def _stack() -> tuple[Stack | None, Started]:
    """A stack that we started, or None and the one that runs."""
    if holder := state.running(given_settings().state_dir):
        foreground.tell(f"using the stack that runs already (pid {holder.pid})")
        return None, Started(load_settings(), None)
    stack = Stack(foreground.tell)
    listen_for_the_end(stack)
    foreground.tell("starting the services")
    return stack, stack.start()


class Demo:
    """One benchmark of this machine. Raises Failed, at once when the run can't even be asked for."""

    def __init__(self, started: Started, provider: str) -> None:
        self._started = started
        self._context = Context(started.settings)
        request = {"circuit": CIRCUIT, "proofs": PROOFS, "concurrency": CONCURRENCY, "provider": provider}
        try:
            self.run_id = create_run(self._context, parse_request(request), "demo")
        except (InvalidRequest, SQLAlchemyError) as error:
            raise Failed(f"the run can't be asked for: {error}") from error
        foreground.tell(f"run {self.run_id}: {PROOFS} proofs of {CIRCUIT}, {CONCURRENCY} at a time, on this machine")

    @property
    def url(self) -> str:
        return f"{self._started.site_url}/runs/{self.run_id}"

    def follow(self, stack: Stack | None) -> str:
        """Until the run is over: the line of result. Raises Failed, when it took too long as well."""
        bar = Bar(lambda text: click.echo(text, nl=False), sys.stdout.isatty())
        last = self._wait(stack, DEADLINE_S, bar.show)
        bar.close()
        if not last.over:
            self._call_off(stack, last)
        if why := last.why_not_well():
            raise Failed(f"{why}; see {self.url}")
        rate = float(last.result.get("proofs_per_hour") or 0)
        low, high = last.result.get("proofs_per_hour_low"), last.result.get("proofs_per_hour_high")
        interval = f" (90 %: {low:,.0f} to {high:,.0f})" if low is not None and high is not None else ""
        foreground.tell(f"{last.verified} proofs verified: {rate:,.0f} proofs/hour{interval}")
        return (
            f"demo: ok run={self.run_id} proofs={last.proofs} verified={last.verified} proofs_per_hour={rate:.0f} "
            f"chunks={last.chunks} evidence={last.evidence} instance={last.instance}"
        )

    def _wait(self, stack: Stack | None, seconds: float, show: Callable[[Snapshot], None]) -> Snapshot:
        """The snapshot when the run is over or the time is up, whichever comes first."""
        until = time.monotonic() + seconds
        last = self._look()

        def each() -> bool:
            nonlocal last
            last = self._look()
            show(last)
            return not last.over and time.monotonic() < until

        if stack:
            stack.watch(each)
            if stack.asked_to_stop:
                raise Interrupted
        else:
            while each():
                time.sleep(1)
        return last

    def _look(self) -> Snapshot:
        try:
            return look(self._context, self.run_id)
        except SQLAlchemyError as error:
            raise Failed(f"the database can't be asked: {str(error).splitlines()[0]}") from error

    def _call_off(self, stack: Stack | None, last: Snapshot) -> None:
        cancel_run(self._context, self.run_id, "demo", f"not done after {DEADLINE_S:.0f} s")
        foreground.tell("the deadline has passed; the run is called off and its machine destroyed")
        after = self._wait(stack, CALL_OFF_S, lambda _now: None)
        raise Failed(
            f"not done after {DEADLINE_S:.0f} s: {last.verified} of {last.proofs} proofs verified, at {last.where}, "
            f"last event: {last.last_event}; instance is now {after.instance}; ask: provefleet doctor, and see "
            f"{self._started.settings.state_dir / 'log'}"
        )

    def introduce(self) -> None:
        """Where the run and its logs are, and how to sign in."""
        click.echo(f"\n  run and logs  {self.url}")
        click.echo(f"  archive       s3 bucket {self._started.settings.s3_bucket}, prefix runs/{self.run_id}/")
        foreground.introduce(self._started)
