"""`provefleet diagnose`: no database, no network, no configuration."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jobs.diagnosis.report import Hypothesis, Report


@click.command()
@click.argument("case", metavar="DIR|BUNDLE.zip", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def diagnose(case: Path, as_json: bool) -> None:
    """Say why a run failed: ranked causes with the lines that support them, and the tempting ones refuted."""
    from jobs.diagnosis.case import BadCase
    from jobs.diagnosis.engine import diagnose as run
    from jobs.diagnosis.load import load_case

    try:
        report = run(load_case(case))
    except BadCase as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False) if as_json else _text(report))


def _text(report: Report) -> str:
    out = [f"{'Ended well' if report.outcome == 'ok' else 'Failed'} in stage {report.stage}: {report.symptom}", ""]
    number = 0
    for h in report.hypotheses:
        number += not h.refuted
        out += _paragraph(h, f"{number}" if not h.refuted else "x")
    out += [f"Image: {report.image}."]
    if report.missing:
        out += [f"Not here: {', '.join(report.missing)}."]
    return "\n".join([*out, f"Next: {report.next_step}"])


def _paragraph(h: Hypothesis, mark: str) -> list[str]:
    verdict = "refuted" if h.refuted else f"{h.word} ({h.likelihood:.0%})"
    out = [f"{mark:>2}  {h.title} [{h.cause}]: {verdict}", f"      {h.why}"]
    out += [f"      {e.file}:{e.line}  {e.text[:160]}" for e in h.evidence[: 2 if h.refuted else 5]]
    if h.test and not h.refuted:
        out.append(f"      would refute it: {h.test}")
    return [*out, ""]
