"""`provefleet doctor`: every part is checked, on a broken set-up too; each fault comes with what to do."""

from __future__ import annotations

import click

from jobs.services import check_machine, check_parts, check_stores, known
from jobs.services.errors import ServiceError
from jobs.services.finding import Check, Finding, fail, findings, masked, ok
from jobs.settings import Settings, fill, given_settings

CHECK_TIMEOUT_S = 15.0
CHECKS: dict[str, Check] = {
    "packages": check_machine.packages,
    "state folder": check_machine.state_folder,
    "up": check_parts.supervised,
    "redis": check_stores.redis,
    "database": check_stores.database,
    "archive": check_stores.archive,
    "site": check_parts.site,
    "machine app": check_parts.machine_app,
    "workers": check_parts.workers,
    "reconcile": check_parts.leader,
    "gpu": check_machine.gpus,
    "prover": check_machine.prover,
}


def run() -> int:
    """Prints a line a finding; 1 when one is a FAIL. Raises nothing."""
    try:
        given = given_settings()
    except ServiceError as error:
        click.echo(fail("settings", f"{error.what}: {error.why}", error.fix).lines())
        click.echo("\nthe other checks need the settings; correct these first")
        return 1
    settings, first = _filled(given)
    worst: set[str] = set()
    for finding in [first, *findings(CHECKS, settings, CHECK_TIMEOUT_S)]:
        worst.add(finding.level)
        click.echo(masked(finding.lines(), settings))
    code = 1 if "FAIL" in worst else 0
    click.echo("\nsomething is wrong, see FAIL above" if code else "\nall parts work")
    return code


def _filled(given: Settings) -> tuple[Settings, Finding]:
    path = given.state_dir / known.FILE
    try:
        services = known.read(given.state_dir)
    except ServiceError as error:
        return fill(given, None), fail("services.json", f"{error.what}: {error.why}", error.fix)
    if services is None:
        missing = fail(
            "services.json", f"{path} is not there: `up` never ran on this folder", "Start it: provefleet up"
        )
        return fill(given, None), missing
    if path.stat().st_mode & 0o077:
        return fill(given, services), fail("services.json", f"others may read {path}", f"chmod 600 {path}")
    return fill(given, services), ok("services.json", str(path))
