"""What a state is called, how it is drawn and in which colour: the same three everywhere.

Tones: waiting, working, good, attention, bad, gone. The icon names are symbols in `templates/icons.svg`.
"""

from __future__ import annotations

from dataclasses import dataclass


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
INPUT = {"making": Status("Being made", "working"), "ready": Status("Ready", "good"), "refused": Status("Refused", "bad")}
PROOF = {
    "": Status("Not checked", "waiting"),
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
    "passed": Status("Good", "good"),
    "slow": Status("Slow", "attention"),
    "broken": Status("Broken", "bad"),
}
TABLES = {"run": RUN, "instance": INSTANCE, "input": INPUT, "proof": PROOF, "evidence": EVIDENCE, "mark": MARK}


def status(kind: str, state: str, detail: str = "") -> Status:
    """The status of `state`; a word we don't know is shown as it is, in amber."""
    known = TABLES[kind].get(state)
    if known is None:
        return Status(state or "Unknown", "attention", detail)
    return Status(known.word, known.tone, detail) if detail else known


def run_detail(stage: str, done: int, total: int) -> str:
    """What a working run is at: `benchmark 3 of 12`."""
    return f"{stage} {done} of {total}" if total else stage
