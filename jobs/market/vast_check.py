"""`provefleet vast check`: does the key work, and what does the real Vast.ai do where its documents leave it open?

Reads only, unless `--spend` is given. Each open question is answered, or says what that would take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from jobs.context import Context
from jobs.market import provider
from jobs.market.providers.vast import VastProvider
from jobs.market.vast_look import QUESTIONS, TRIAL_LABEL, Look, Report
from jobs.market.vast_trial import Trial
from jobs.services.finding import Finding, masked


def run(context: Context, *, spend: bool, yes: bool, as_json: bool) -> int:
    """The command: prints what is found, and returns its exit code."""

    def tell(finding: Finding) -> None:
        if not as_json:
            click.echo(masked(finding.lines(), context.settings))

    def confirm(words: str) -> bool:
        return yes or click.prompt(f"Rent {words}? Type spend to go on", default="no", err=as_json) == "spend"

    vast = provider(context, "vast")
    assert isinstance(vast, VastProvider)
    look = Look(context, vast, tell)
    look.run()
    if spend:
        Trial(look, confirm, TRIAL_LABEL + context.new_id()).run()
    if as_json:
        click.echo(masked(json.dumps(look.report.to_json(), indent=2), context.settings))
    else:
        click.echo("\nOpen questions:")
        click.echo(masked("\n".join(lines(look.report)), context.settings))
    return int(any(finding.level == "FAIL" for finding in look.report.findings))


def lines(report: Report) -> Iterator[str]:
    """The open questions with their answers, for a person."""
    for name, text in QUESTIONS.items():
        yield f"  {text}\n      -> {report.answer(name)}"
