"""`provefleet up` as the operator sees it: what is printed, in which order, and the exit code."""

from __future__ import annotations

import time

import click

from jobs.services.up import Interrupted, Stack, Started, listen_for_the_end


def tell(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {text}")


def run(stack: Stack | None = None) -> int:
    """Runs until Ctrl-C or SIGTERM. 0 when everything stopped in order, 1 when something had to be killed.
    Raises ServiceError when it can't start."""
    stack = stack or Stack(tell)
    listen_for_the_end(stack)
    tell("starting the services")
    began = time.monotonic()
    try:
        started = stack.start()
    except Interrupted:
        tell("stopped before everything ran")
        return 1
    tell(f"everything runs, after {time.monotonic() - began:.1f} s")
    introduce(started)
    return watch_and_stop(stack)


def introduce(started: Started) -> None:
    """Where things are, and how to sign in the first time."""
    settings = started.settings
    click.echo(f"\n  site         {started.site_url}")
    click.echo(f"  machine app  {settings.public_url}")
    click.echo(f"  state        {settings.state_dir}")
    if started.first_password:
        click.echo(f"  sign in      admin, one-time password: {started.first_password}")
    click.echo("\n  Ctrl-C stops everything; what runs on rented machines goes on.\n")


def watch_and_stop(stack: Stack) -> int:
    """Stays until the end is asked for, then ends everything."""
    try:
        stack.watch()
    finally:
        clean = stop(stack)
    return 0 if clean else 1


def stop(stack: Stack) -> bool:
    """Stops in order and says how it went."""
    tell("stopping: first the site and the jobs, then the stores; this takes up to 30 s")
    began = time.monotonic()
    clean = stack.stop()
    seconds = time.monotonic() - began
    tell(f"everything has stopped, after {seconds:.1f} s" if clean else f"killed what still ran after {seconds:.0f} s")
    return clean
