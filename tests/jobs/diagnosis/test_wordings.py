"""One line each of many programs: what it names when nothing else is known, and what it does not spoil in a run that
ended well. Signatures were written from them, so they measure nothing; `make test-diagnosis` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.diagnosis.case import Case
from jobs.diagnosis.engine import diagnose

HERE = Path(__file__).parent
STAGE = {"setup": "params", "bench": "benchmark", "daemon": "benchmark", "kernel": "benchmark", "service": "serve"}
AT_HOME = {"image_pull_stuck": "loading", "registry_auth": "loading", "tunnel_down": "tunnels"}
WORDINGS = [row.split("\t") for row in (HERE / "wordings.tsv").read_text(encoding="utf-8").splitlines()]
HARMLESS = (HERE / "harmless.txt").read_text(encoding="utf-8").splitlines()
ENDS = ("12/12 proofs verified, 231 proofs/hour, exit 0", "all 12 receipts verified; done", "snarkJS: OK!")


@pytest.mark.parametrize("cause", sorted({cause for cause, _, _ in WORDINGS}))
def test_a_line_names_its_cause_first(cause: str) -> None:
    missed = []
    for named, stream, line in WORDINGS:
        if named == cause:
            stage = AT_HOME.get(cause, STAGE[stream])
            streams = {"setup.log": ["entrypoint: starting"], "bench.log": [], f"{stream}.log": ["starting", line]}
            facts = {"run": {"outcome": "failed", "stage_reached": stage}}
            top = diagnose(Case({name: lines for name, lines in streams.items() if lines}, facts)).top
            if top is None or top.cause != cause:
                missed.append((line, top and top.cause))
    assert missed == []


@pytest.mark.parametrize("line", HARMLESS)
def test_a_run_that_ended_well_is_not_spoilt(line: str) -> None:
    proofs = [f"proof {n} of 12 ok in 11.{n} s" for n in range(1, 13)]
    for end in ENDS:
        report = diagnose(Case({"bench.log": ["starting", "proof 1 of 12 started", line, *proofs, end]}, {}))
        assert (report.outcome, report.top and report.top.cause) == ("ok", "none"), end
