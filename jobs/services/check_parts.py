"""Checks of the running parts: supervised programs, the two web apps, workers, the leader."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

from jobs.market import reach
from jobs.services import control, ready, state
from jobs.services.check_stores import missing_file
from jobs.services.finding import Finding, fail, ok, warn
from jobs.settings import Settings, given_settings

START = "Start the stack: provefleet up"
TIMEOUT_S = 3.0


def supervised(settings: Settings) -> Iterator[Finding]:
    """`up` runs here, and each of its programs."""
    holder = state.running(settings.state_dir)
    if holder is None:
        given = given_settings()
        elsewhere = given.redis_url.get_secret_value() and given.s3_endpoint
        text = f"`provefleet up` does not run on {settings.state_dir}"
        yield (
            warn("up", text, "Fine when containers run the parts; else: provefleet up")
            if elsewhere
            else fail("up", text, START)
        )
        return
    yield ok("up", f"pid {holder.pid}, {holder.site_url}")
    try:
        processes = control.Control(settings.sockets_dir).processes()
    except control.Unreachable as error:
        yield fail("supervisord", f"it does not answer: {error}", "Stop `provefleet up` and start it again")
        return
    for process in sorted(processes, key=lambda p: (p.group, p.name)):
        name = f"process {process.name}"
        log = settings.state_dir / "log" / f"{process.name}.log"
        if process.state == "RUNNING":
            yield ok(name, f"{process.note}")
        elif process.state == "STARTING":
            yield warn(name, "it is starting", "Wait a few seconds and ask again")
        else:
            yield fail(name, f"{process.state.lower()}: {process.note or 'no reason given'}", f"See {log}")


def site(settings: Settings) -> Iterator[Finding]:
    yield _web("site", settings.site_bind, settings)


def machine_app(settings: Settings) -> Iterator[Finding]:
    """It answers, and rented machines could reach it, and the archive."""
    yield _web("machine app", settings.agent_bind, settings)
    same_host = reach.on_this_host(settings)
    why = reach.trouble(settings.public_url, same_host=same_host)
    if not why:
        yield ok("reach", f"machines that are rented call {settings.public_url}")
        relayed = reach.trouble(settings.s3_public_endpoint, same_host=same_host)
        if relayed:
            yield ok("reach of S3", f"the machine app relays: PROVEFLEET_S3_PUBLIC_ENDPOINT {relayed}")
    elif settings.vast_api_key.get_secret_value():
        fix = "Set it to the https address of the machine app: docs/operations.md, Machines elsewhere"
        yield fail("reach", f"nothing can be rented elsewhere: PROVEFLEET_PUBLIC_URL {why}", fix)
    else:
        yield ok("reach", f"for this machine only: PROVEFLEET_PUBLIC_URL {why}")


def _web(name: str, bind: str, settings: Settings) -> Finding:
    if not bind:
        return fail(name, "its address is not known: `up` never ran here", START)
    status, why = ready.get(bind, "/healthz", TIMEOUT_S)
    if status == 200:
        return ok(name, f"http://{bind}")
    log = settings.state_dir / "log" / ("site.log" if name == "site" else "machine.log")
    return fail(name, why, f"{START}; or see {log}" if status == 0 else f"See {log}")


def workers(settings: Settings) -> Iterator[Finding]:
    """As many workers as wanted, each seen lately."""
    from redis import Redis, RedisError
    from rq import Worker

    url = settings.redis_url.get_secret_value()
    try:
        with Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S) as client:
            count = sum(_alive(worker.hostname, worker.pid) for worker in Worker.all(connection=client))
    except (RedisError, ValueError, OSError) as error:
        yield fail("workers", f"Redis can't be asked: {error}", START)
        return
    if count == 0:
        yield fail("workers", "no RQ worker is alive: nothing is deployed or destroyed, except by reconcile", START)
    elif count < settings.workers:
        yield warn("workers", f"{count} of {settings.workers} are alive", "They are started again; see log/workers.log")
    else:
        yield ok("workers", f"{count} alive")


def _alive(host: str | None, pid: int | None) -> bool:
    """A killed worker stays in Redis for minutes: on our own machine its process tells; elsewhere Redis must do."""
    return host != socket.gethostname() or pid is None or Path(f"/proc/{pid}").exists()


def leader(settings: Settings) -> Iterator[Finding]:
    """One `reconcile` has renewed its row lately."""
    from sqlalchemy.exc import SQLAlchemyError

    from jobs.context import Context
    from jobs.domain.db import DatabaseUnavailable
    from jobs.domain.models import Leader

    if missing := missing_file(settings):
        yield fail("reconcile", f"there is no database: {missing}", START)
        return
    try:
        with Context(settings).sessions() as session:
            row = session.get(Leader, "reconcile")
    except (SQLAlchemyError, DatabaseUnavailable, OSError) as error:
        yield fail("reconcile", f"the database can't be asked: {str(error).splitlines()[0]}", START)
        return
    left_s = (row.expires_ms / 1000 - time.time()) if row else 0
    if row and left_s > 0:
        yield ok("reconcile", f"{row.holder} leads")
    else:
        why = "never ran" if row is None else f"has not been seen since {-left_s:.0f} s"
        yield fail("reconcile", f"it {why}: no deadline is enforced and no machine is found again", START)
