"""The one command `provefleet`: finds the rooms' commands by entry point and loads only the one that is called."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import click

GROUP = "provefleet.commands"


class LazyGroup(click.Group):
    """A click group whose subcommands are entry points, imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(point.name for point in entry_points(group=GROUP))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for point in entry_points(group=GROUP, name=cmd_name):
            try:
                return point.load()
            except ModuleNotFoundError as error:
                raise click.ClickException(
                    f"`provefleet {cmd_name}` needs the Python package {error.name!r}, which is not installed here; "
                    "install the control plane with: pip install 'provefleet[control]'"
                ) from error
        return None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="provefleet")
def main() -> None:
    """Rent GPUs, prove on them, keep every log, leak no dollar."""


if __name__ == "__main__":
    sys.exit(main())
