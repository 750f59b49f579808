"""The commands of the control plane. Heavy packages are imported only inside the command that needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def one_line_errors() -> Iterator[None]:
    """A ServiceError becomes one line on stderr and exit code 1."""
    from jobs.services.errors import ServiceError

    try:
        yield
    except ServiceError as error:
        raise click.ClickException(str(error)) from error


@click.command()
def up() -> None:
    """Start everything on this machine and stay in the foreground; Ctrl-C stops it in order."""
    from jobs.services.foreground import run

    with one_line_errors():
        raise SystemExit(run())


@click.command()
def worker() -> None:
    """Run the pool of job workers (a part of `up`)."""
    from jobs.queue import run_workers
    from jobs.settings import load_settings

    with one_line_errors():
        run_workers(load_settings())


@click.command()
def cron() -> None:
    """Enqueue what is due by the clock: scans and retention (a part of `up`)."""
    from jobs.cron import run_cron
    from jobs.settings import load_settings

    with one_line_errors():
        run_cron(load_settings())


@click.command()
def reconcile() -> None:
    """Make database, provider and bill agree, and enforce every deadline (a part of `up`)."""
    from jobs.reconcile import run
    from jobs.settings import load_settings

    with one_line_errors():
        run(load_settings())


@click.command()
def doctor() -> None:
    """Check every part and say how to fix what is wrong. Exit code 1 when something is."""
    from jobs.services.doctor import run

    raise SystemExit(run())


@click.command()
@click.option("--once", is_flag=True, help="Stop everything afterwards and end with one line of result.")
@click.option("--provider", type=click.Choice(["local", "vast"]), default="local", show_default=True)
@click.option("--max-dollars", type=click.FloatRange(min=0.01), default=0.5, show_default=True,
              help="What a rented machine may cost.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Rent without asking.")
def demo(once: bool, provider: str, max_dollars: float, yes: bool) -> None:
    """Benchmark a machine from end to end: scan, deploy, 12 proofs, collect, destroy. This machine costs nothing."""
    import sys

    from jobs.services.demo import run
    from jobs.settings import given_settings

    with one_line_errors():
        if provider != "local" and not yes:
            what = f"This rents a machine at {given_settings().vast_url} for at most ${max_dollars:.2f}."
            if not sys.stdin.isatty():
                raise click.UsageError(f"{what} Say so with --yes.")
            click.confirm(f"{what} It is destroyed afterwards. Go on?", abort=True)
        raise SystemExit(run(once=once, provider=provider, max_dollars=None if provider == "local" else max_dollars))


@click.group()
def user() -> None:
    """People who may sign in to the site."""


@user.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), required=True)
def user_add(name: str, role: str) -> None:
    """Add a person and print a password that works once, for choosing their own."""
    from sqlalchemy.exc import SQLAlchemyError

    from jobs.domain import users
    from jobs.domain.db import DatabaseUnavailable
    from jobs.settings import load_settings

    with one_line_errors():
        settings = load_settings()
        try:
            password = users.add(settings, name, role)
        except (DatabaseUnavailable, ValueError) as error:
            raise click.ClickException(str(error)) from error
        except SQLAlchemyError as error:
            why = str(getattr(error, "orig", None) or error).splitlines()[0]
            fix = "Make it with: provefleet up"
            raise click.ClickException(f"can't add {name}: the database can't be used ({why}). {fix}") from error
    click.echo(f"{name} ({role}) can sign in once with the password: {password}")


@click.group()
def vast() -> None:
    """The marketplace Vast.ai."""


@vast.command("check")
@click.option("--spend", is_flag=True, help="Rent a machine for less than $0.10 too, and destroy it.")
@click.option("--yes", is_flag=True, help="With --spend: don't ask first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document at the end instead of text.")
def vast_check(spend: bool, yes: bool, as_json: bool) -> None:
    """Does the account key work, and what does Vast.ai do where its documents leave it open? Takes about a minute.

    Reads only, unless --spend is given. Exit code 1 when something is wrong.
    """
    from jobs.context import Context
    from jobs.market import vast_check as check
    from jobs.settings import load_settings

    with one_line_errors():
        raise SystemExit(check.run(Context(load_settings()), spend=spend, yes=yes, as_json=as_json))


@vast.command("bill")
@click.option("--days", type=click.IntRange(1, 366), default=7, show_default=True, help="How far back, today included.")
def vast_bill(days: int) -> None:
    """What each rental cost on each day (UTC), by our own account and by the bill, and what is on it besides."""
    from sqlalchemy.exc import SQLAlchemyError

    from jobs.context import Context
    from jobs.market import ledger
    from jobs.settings import load_settings

    with one_line_errors():
        context = Context(load_settings())
        try:
            with context.sessions() as session:
                click.echo(ledger.text(ledger.recent(session, context.now_ms(), days)))
        except SQLAlchemyError as error:
            why = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise click.ClickException(f"the database can't be used ({why}). Make it with: provefleet up") from error
