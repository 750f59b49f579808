"""The one command `provefleet`: finds the rooms' commands by entry point and loads only the one that is called."""

from __future__ import annotations

import atexit
import os
import sys
from importlib.metadata import EntryPoint, entry_points

import click

GROUP = "provefleet.commands"
ROOMS = ("web", "jobs", "gpu", "logs")


def missing(command: str, error: ModuleNotFoundError) -> click.ClickException:
    """Says which package a command needs; a module of ours that is missing is a broken installation."""
    name = (error.name or str(error)).partition(".")[0]
    if name in ROOMS:
        text = (
            f"`provefleet {command}` is not part of this installation ({error.name} is missing); reinstall provefleet"
        )
    else:
        text = (
            f"`provefleet {command}` needs the Python package {name!r}, which is not installed here; "
            "install the control plane with: pip install 'provefleet[control]'"
        )
    return click.ClickException(text)


class LazyGroup(click.Group):
    """A click group whose subcommands are entry points, imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({point.name for point in entry_points(group=GROUP)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        point = next(iter(entry_points(group=GROUP, name=cmd_name)), None)
        return None if point is None else _load(point)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a command; a command that can't be imported here is listed with the reason."""
        rows = []
        for name in self.list_commands(ctx):
            try:
                command = self.get_command(ctx, name)
                rows.append((name, command.get_short_help_str(limit=90) if command else ""))
            except click.ClickException:
                rows.append((name, "(not installed here)"))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            # Commands import what they need only when they run.
            raise missing(ctx.invoked_subcommand or "", error) from error


def _load(point: EntryPoint) -> click.Command:
    try:
        return point.load()
    except ModuleNotFoundError as error:
        raise missing(point.name, error) from error
    except AttributeError as error:
        raise click.ClickException(f"`provefleet {point.name}` is not part of this installation: {error}") from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="provefleet")
def main() -> None:
    """Rent GPUs, prove on them, keep every log, leak no dollar."""


def program() -> None:
    """What the installed script runs: `main`, and then out at once where a compiler was loaded. Python takes 0.2 s to
    take LLVM apart, a fifth of a short proof; what must be closed, the command has closed.
    """
    try:
        main()
    except SystemExit as end:
        if "llvmlite" not in sys.modules or not (end.code is None or isinstance(end.code, int)):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code or 0)


if __name__ == "__main__":
    program()
