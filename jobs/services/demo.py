"""`provefleet demo`: the whole job from offer to destroyed instance, with real proofs, here or on a rented machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import click
from sqlalchemy.exc import SQLAlchemyError

from jobs.context import Context
from jobs.domain.runs import InvalidRequest, cancel_run, create_run, parse_request
from jobs.market import provider as market_of
from jobs.market import provider_names, reach
from jobs.services import foreground, state
from jobs.services.errors import ServiceError
from jobs.services.following import Bar, Snapshot, look
from jobs.services.up import Interrupted, Stack, Started, listen_for_the_end
from jobs.services.warming import Warming
from jobs.settings import given_settings, load_settings

CIRCUIT = "chain/4096/bls12381"
PROOFS, CONCURRENCY = 12, 3


@dataclass(frozen=True)
class Patience:
    """Seconds: `deadline_s` for all of it, then `call_off_s` for an instance that was called off to be destroyed."""

    deadline_s: float
    call_off_s: float


HERE, ELSEWHERE = Patience(150.0, 25.0), Patience(1800.0, 240.0)  # images are pulled there, and machines fail


class Failed(Exception):
    """The demo did not go as it should, and why."""


def run(*, once: bool, provider: str, max_dollars: float | None = None) -> int:
    """Runs the demo on the stack of the state folder, started here unless it runs. With `once` it stops what it
    started and prints a line of result; else it stays until Ctrl-C. 0 when all went well.

    `max_dollars` is what a rented machine may cost, its tail included; None where nothing is rented."""
    run_id = "none"
    stack: Stack | None = None
    warming: Warming | None = None
    outcome = ""
    try:
        given = given_settings()
        if provider not in provider_names(given):
            raise Failed(f"there is no account at {provider} to rent with; set PROVEFLEET_VAST_API_KEY")
        state_dir = given.state_dir
        state.prepare(state_dir)
        if provider == "local" or reach.on_this_host(given):
            warming = Warming(state_dir, CIRCUIT.rpartition("/")[2])
        stack, started = _stack()
        demo = Demo(started, provider, max_dollars)
        run_id = demo.run_id
        outcome = demo.follow(stack)
        demo.introduce()
    except (ServiceError, Failed, Interrupted, KeyboardInterrupt) as error:
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
    """One benchmark of a machine. Raises Failed, at once when the run can't even be asked for."""

    def __init__(self, started: Started, name: str, max_dollars: float | None) -> None:
        self._started = started
        self._context = Context(started.settings)
        self._chosen = ""
        market = market_of(self._context, name)
        self._patience = ELSEWHERE if market.remote else HERE
        if why := reach.refusal(started.settings, market):
            raise Failed(why)
        request = {"circuit": CIRCUIT, "proofs": PROOFS, "concurrency": CONCURRENCY, "provider": name}
        if max_dollars is not None:
            request["max_dollars"] = max_dollars
        try:
            self.run_id = create_run(self._context, parse_request(request), "demo")
        except (InvalidRequest, SQLAlchemyError) as error:
            raise Failed(f"the run can't be asked for: {error}") from error
        where = f"on a machine of {name}" if market.remote else "on this machine"
        foreground.tell(f"run {self.run_id}: {PROOFS} proofs of {CIRCUIT}, {CONCURRENCY} at a time, {where}")

    @property
    def url(self) -> str:
        return f"{self._started.site_url}/runs/{self.run_id}"

    def follow(self, stack: Stack | None) -> str:
        """Until the run is over: the line of result. Raises Failed, when it took too long as well."""
        bar = Bar(lambda text: click.echo(text, nl=False), sys.stdout.isatty())

        def show(now: Snapshot) -> None:
            if now.chosen != self._chosen and self._patience is ELSEWHERE:
                self._chosen = now.chosen
                bar.close()
                foreground.tell(f"chosen: {now.chosen}")
            bar.show(now)

        try:
            last = self._wait(stack, self._patience.deadline_s, show)
        except (Interrupted, KeyboardInterrupt):
            self._leave()
            raise
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

    def _leave(self) -> None:
        """The operator has enough: what was rented must not go on."""
        cancel_run(self._context, self.run_id, "demo", "stopped by the operator")
        if self._patience is ELSEWHERE:
            foreground.tell(
                "the run is called off; keep `provefleet up` running until its machine is destroyed, "
                "else that ends itself when its lease is over"
            )

    def _call_off(self, stack: Stack | None, last: Snapshot) -> None:
        late = f"not done after {self._patience.deadline_s:.0f} s"
        cancel_run(self._context, self.run_id, "demo", late)
        foreground.tell("the deadline has passed; the run is called off and its machine destroyed")
        after = self._wait(stack, self._patience.call_off_s, lambda _now: None)
        raise Failed(
            f"{late}: {last.verified} of {last.proofs} proofs verified, at {last.where}, "
            f"last event: {last.last_event}; instance is now {after.instance}; ask: provefleet doctor, and see "
            f"{self._started.settings.state_dir / 'log'}"
        )

    def introduce(self) -> None:
        """Where the run and its logs are, and how to sign in."""
        click.echo(f"\n  run and logs  {self.url}")
        click.echo(f"  archive       s3 bucket {self._started.settings.s3_bucket}, prefix runs/{self.run_id}/")
        foreground.introduce(self._started)
