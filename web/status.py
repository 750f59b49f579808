"""What a state is called, how it is drawn and in which colour: the same three everywhere.

Tones: waiting, working, good, attention, bad, gone. The icon names are symbols in `templates/icons.svg`.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.domain.models import Instance, Run
from jobs.domain.states import ENDED


@dataclass(frozen=True)
class Status:
    word: str
    tone: str
    detail: str = ""

    @property
    def icon(self) -> str:
        return ICONS[self.tone]


ICONS = {
    "waiting": "clock",
    "working": "working",
    "good": "tick",
    "attention": "attention",
    "bad": "cross",
    "gone": "hollow",
}

RUN = {
    "queued": Status("Queued", "waiting"),
    "active": Status("Running", "working"),
    "passed": Status("Passed", "good"),
    "slow": Status("Slow", "attention"),
    "broken": Status("Broken", "bad"),
    "failed": Status("Failed", "bad"),
    "cancelled": Status("Cancelled", "gone"),
}
INSTANCE = {
    "renting": Status("Renting", "waiting"),
    "loading": Status("Loading", "working"),
    "fetching": Status("Fetching", "working"),
    "benchmarking": Status("Benchmarking", "working"),
    "ready": Status("Ready", "good"),
    "proving": Status("Proving", "working"),
    "serving": Status("Serving", "good"),
    "sealing": Status("Sealing", "working"),
    "destroying": Status("Destroying", "working"),
    "destroyed": Status("Destroyed", "gone"),
    "not_rented": Status("Not rented", "gone"),
}
INPUT = {
    "making": Status("Being made", "working"),
    "ready": Status("Ready", "good"),
    "refused": Status("Refused", "bad"),
}
PROOF = {
    "awaited": Status("Awaited", "waiting"),
    "": Status("Being checked", "working"),
    "valid": Status("Valid", "good"),
    "invalid": Status("Invalid", "bad"),
    "error": Status("Error", "bad"),
}
EVIDENCE = {
    "": Status("Not sealed yet", "waiting"),
    "complete": Status("Complete", "good"),
    "gaps": Status("Lines missing", "attention"),
    "vanished": Status("Machine vanished", "bad"),
    "empty": Status("Nothing came", "attention"),
}
MARK = {
    "": Status("Not measured", "waiting"),
    "good": Status("Good", "good"),
    "slow": Status("Slow", "attention"),
    "unstable": Status("Unstable", "attention"),
    "wrong_specs": Status("Wrong specs", "bad"),
    "broken": Status("Broken", "bad"),
}
OFFER = {"skipped": Status("Skipped", "gone")}
# What happened, in an operator's words; the kind itself is shown on hover, for whoever reads the code.
EVENTS = {
    "run.requested": "Asked for",
    "run.stage": "Preparing:",
    "run.tidied": "Tidied:",
    "instance.intended": "Machine chosen:",
    "instance.other_hardware": "Other hardware than advertised:",
    "instance.adopted": "Found and adopted:",
    "instance.forced": "Destroyed by force:",
    "agent.sealed": "The machine has shipped everything",
    "benchmark.again": "Measured once more:",
    "benchmark.early": "Stopped early:",
    "instance.stopped": "Stopped by the provider:",
    "instance.boot_failed": "Does not start:",
    "instance.wrong_kind": "Not what was asked for:",
    "instance.too_dear": "Dearer than asked for:",
    "instance.repriced": "Price changed:",
    "run.goes_on": "Goes on elsewhere:",
    "instance.running": "It runs:",
    "provider.unavailable": "The provider does not answer:",
    "provider.key_refused": "The provider refuses our key:",
    "provider.unheard_status": "Unknown status at the provider:",
    "machine.marked": "Machine marked:",
    "machine.failed": "The machine failed:",
    "mark.appealed": "Mark appealed:",
    "mark.withdrawn": "Mark withdrawn:",
    "cap.set": "Cap set:",
    "account.enough": "Credit is enough again:",
    "account.low": "Credit is low:",
    "account.exhausted": "No credit is left:",
    "account.unreadable": "The account can't be read:",
    "bill.complete": "The bill is complete:",
    "archive.unavailable": "The archive does not answer:",
    "archive.expired": "Expired:",
    "archive.kept": "Kept for ever:",
    "archive.let_go": "Expires again as others do",
    "emergency.adopted": "Emergency upload taken in:",
    "emergency.refused": "Emergency upload refused:",
    "input.stored": "Input stored:",
    "offers.scan_requested": "Scan asked for",
    "offers.scanned": "Scanned:",
    "offers.scan_failed": "Scan failed:",
    "run.diagnosis_requested": "Diagnosis asked for",
    "job.requeued": "Job put back on its queue",
    "user.added": "User added:",
    "user.role": "Role changed:",
    "user.disabled": "User disabled:",
    "user.enabled": "User enabled:",
}
TABLES = {
    "run": RUN,
    "instance": INSTANCE,
    "input": INPUT,
    "proof": PROOF,
    "evidence": EVIDENCE,
    "mark": MARK,
    "offer": OFFER,
}


def status(kind: str, state: str, detail: str = "") -> Status:
    """The status of `state`; a word we don't know is shown as it is, in amber."""
    known = TABLES[kind].get(state)
    if known is None:
        return Status(state or "Unknown", "attention", detail)
    return Status(known.word, known.tone, detail) if detail else known


def run_status(run: Run) -> Status:
    """A run's state; of a working one also what it is at: `benchmark 3 of 12`."""
    if run.state != "active":
        return status("run", run.state, run.stage if run.state == "queued" and run.stage != "waiting" else "")
    at = next((instance for instance in reversed(run.instances) if instance.state not in ENDED), None)
    return status("run", run.state, progress_words(at) if at else run.stage)


def instance_status(instance: Instance) -> Status:
    counted = instance.state in ("benchmarking", "proving", "fetching")
    return status("instance", instance.state, progress_words(instance) if counted else "")


def progress_words(instance: Instance) -> str:
    """`benchmark 3 of 12`: k of N only where the payload counts, and only of the stage that it is in."""
    progress = instance.progress or {}
    total = progress.get("total") or 0
    if total and progress.get("stage") == instance.stage:
        return f"{instance.stage} {progress.get('done', 0)} of {total}"
    return instance.stage


def event_words(kind: str) -> str:
    """What an event of this kind is called; one that has no words of its own is shown as it is."""
    return EVENTS.get(kind, kind)


def basis_words(why: str) -> str:
    """What a forecast rests on: of the sentence that says why an offer is ranked so, what no column shows."""
    clauses = [clause for clause in why.split("; ") if not clause.startswith(("expected ", "chance to "))]
    return "; ".join(clauses)
