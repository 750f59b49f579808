"""How a run ended, as its logs and its facts say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from jobs.diagnosis.case import Case
from jobs.diagnosis.clues import cite
from jobs.diagnosis.concepts import neutral, words_of
from jobs.diagnosis.facts import asked_for, ends, rates
from jobs.diagnosis.report import Evidence
from jobs.diagnosis.signatures import expression

NEAR_END = 60
"""A good word that more lines than these follow is no ending."""
BEFORE_SERVING = ("loading", "tunnels", "params", "benchmark")
"""Stages for which a rate that was reached says that all is well; one that serves may still break later."""
_THINGS = (
    r"(?:proofs?|receipts?|jobs?|tasks?|requests?|submissions?|snarks?|segments?|tests?|"
    r"items?|results?|blocks?|batch(?:es)?)"
)
_GOOD = (
    r"(?:verified|verif(?:y|ies)|valid|accepted|passed|pass|ok|check(?:s|ed)? out|"
    r"succeeded|successful\w*|complete[d]?|done|good|proved|finished|returned|delivered)"
)
_WELL = expression(
    [
        r"(?:\ball\b|\bevery\b|\beach\b|\b\d+ ?(?:/|of|out of) ?\d+)[^\n]{0,60}\b" + _GOOD + r"\b",
        r"(?:benchmark|bench|run|batch|result|summary)[^\n]{0,30}(?:finished|complete[d]?|"
        r"pass(?:ed)?\b|success|succeeded|: ok|done)",
        r"benchmark result: [1-9][\d.]* proofs",
        r"\b[1-9][\d.]* proofs?(?:/| per )h(?:our)?\b|throughput[^\n]{0,20}[1-9]",
        r"(?:exit\w*|ended|finished|return\w*|rc)[^\n]{0,30}(?:code|status|rc)?[ :=]*\b0$|"
        r"exit\w*[ :=]*(?:code |status )?[ :=]*0\b",
        r"snarkjs: ok!|proof (?:is )?(?:valid|verified|ok)\b|successfully (?:verified|proved|"
        r"generated|finished|completed)|^success\b|\bsuccess!",
        r"verification[^\n]{0,10}(?:ok|pass\w*|succeeded|true)|evidence sealed|sealed: complete|all good",
        r"ran to completion",
        r"(?:exit\w*|finish\w*|end\w*|shut\w* down|stopp\w*|quit\w*)[^\n]{0,12} (?:normally|cleanly)",
        r"(?-i:\bPASS(?:ED)?\b)|final (?:proof|receipt|snark)[^\n]{0,40}(?:accepted|verif\w+|"
        r"ok\b|valid)|accepted on[- ]?chain|(?:written|saved|wrote)[^\n]{0,30}results?|"
        r"(?:mean|average|avg)[^\n]{0,12}\d ?(?:s|ms|min)? per proof",
        r"\b[1-9]\d* " + _THINGS + r"\b[^\n]{0,60}\b(?:verified|valid|accepted|proved)\b",
        _THINGS + r"[^\n]{0,20}[=: ][1-9]\d*\b[^\n]{0,40}(?:ok|success|passed)[\"=: ]+true",
    ]
)
# Said together with a count of what came out: nothing went wrong.
_NONE_BAD = expression(
    [
        r"\b(?:0|no|zero) (?:\w+ )?(?:failed|failures?|bad|errors?|lost|invalid|rejected|missing)\b",
        r"\b(?:failed|failures?|bad|errors?|lost|invalid|rejected)[\"\x27]?[ :=]+(?:0|none)\b",
    ]
)
_COUNT = expression(
    [
        r"\b[1-9]\d* ?" + _THINGS,
        _THINGS + r"[\"\x27]?[ :=]+[1-9]",
        r"\b(?:verified|proved|valid|ok|done|total|passed)[\"\x27]?[ :=]+[1-9]",
        r"\b[1-9]\d* (?:verified|proved|valid|ok|done|passed)\b",
    ]
)
_NOT_WELL = expression(
    [
        r"\b(?:0|no|not|none of the|zero) (?:proofs?|valid|verified)|\b0 ?(?:of|/) ?\d",
        r"\bnot\b|\bfail\w*|error[s]?[ :=]+[1-9]|\binvalid\b|abort|incomplete|timed out|"
        r"\bbefore\b|\bonly\b|\buntil\b|\bafter client\b|\breply\b",
        r"self[- ]?tests?\b|warm-?up|\bparam\w*|\bsrs\b|checksum|download|fetch|\btunnel|"
        r"handshake|driver|\bimage\b|\blayers?\b|integrity",
    ]
)
_ILL = expression(
    [
        r"benchmark failed|exited with error|result: 0 proofs|\b0 ?(?:/|of) ?[1-9]\d* proofs",
        r"fatal|panicked|core dumped|giving up|gave up|aborting|will be destroyed",
        r"exit(?:ed)?[^\n]{0,20}(?:code|status)[ :=]*[1-9]\d*|(?:run|batch|benchmark|job|stage)[^\n]{0,30}\bfailed\b",
    ]
)
_CAME_BACK = re.compile(
    r"\b([1-9]\d*) (?:requested|sent|submitted|asked)\b.{0,40}\b\1 (?:returned|verif\w+|"
    r"accepted|ok|valid|proved|done)\b",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\b(\d{1,7}) ?(?:/|of|out of) ?(\d{1,7})\b")


@dataclass
class Ending:
    """The last line of all files that says that it went well, and how many lines follow it in its file; the last that
    says that it did not, and the last of each file."""

    well: Evidence | None = None
    well_from_end: int = 0
    ill: Evidence | None = None
    ills: dict[str, Evidence] = field(default_factory=dict)

    def read(self, line: Evidence, from_end: int) -> None:
        """One more line, in the order of the file."""
        if _says_well(line.text):
            self.well, self.well_from_end = line, from_end
        if _ILL.search(line.text) and not neutral().search(words_of(line.text)) and not _NONE_BAD.search(line.text):
            self.ill = self.ills[line.file] = line

    def spoilt(self) -> Evidence | None:
        """The bad word that the good one does not outweigh: after it in its file, or of whoever drives the run."""
        if self.well is None:
            return self.ill
        for file, ill in self.ills.items():
            if file == self.well.file:
                if ill.line > self.well.line:
                    return ill
            elif not (_drives(self.well.file) and file.startswith("daemon") and self.well_from_end <= NEAR_END):
                return ill
        return None


def _drives(file: str) -> bool:
    return file.startswith(("bench", "client", "run"))


def _says_well(line: str) -> bool:
    if not _WELL.search(line) and not _NONE_BAD.search(line) and not _CAME_BACK.search(line):
        return False
    rest = _NONE_BAD.sub(" ", line)
    if _NOT_WELL.search(rest) or any(int(k) < int(n) for k, n in _COUNTED.findall(line)):
        return False
    return bool(_WELL.search(rest) or _CAME_BACK.search(rest)) or (rest != line and bool(_COUNT.search(rest)))


def ended_well(case: Case, ending: Ending, stage: str, unsettled: bool = False) -> tuple[bool, str, list[Evidence]]:
    """Whether the run came to a good end: (verdict, why, lines). `unsettled`: a grave line comes after."""
    said = case.text(r"run\.(?:outcome|result|verdict|status)", r"\boutcome\b").lower()
    if re.search(r"\b(?:ok|passed|success\w*|completed?|done)\b", said):
        return True, f"the run is recorded as {said}", cite(case, "outcome", "result", "verdict", "status")
    if re.search(r"fail|broken|slow|error|abort|timeout|killed", said):
        return False, case.text(r"run\.reason") or f"the run is recorded as {said}", []
    bad = [f"{name} ended with {signal or code}" for name, code, signal in ends(case) if _is_bad(name, code, signal)]
    if bad:
        return False, bad[0], []
    rate, least, proofs = rates(case)
    if (rate is not None and least is not None and rate < least) or rate == 0 or proofs == 0:
        return False, "the rate is under the minimum or nothing came out", []
    good = rate is not None and least is not None and rate >= least
    told = [name for name, code, _ in ends(case) if code == 0]
    ill = None if ending.well and any(_drives(f"{name}.") for name in told) else ending.spoilt()
    if ill is not None and not (good and stage in BEFORE_SERVING):
        return False, f"the log says: {ill.text}", [ill]
    well = [ending.well] if ending.well is not None else []
    if good and (stage in BEFORE_SERVING or (well and not unsettled)):
        return True, f"{rate:g} proofs/h, {least:g} asked", [*well, *cite(case, "rate")]
    asked = asked_for(case)
    if asked and proofs is not None and asked <= proofs and not unsettled:
        return True, f"{proofs:g} of {asked:g} came out", [*well, *cite(case, "proofs", "receipts", "jobs", "tasks")]
    if well and (told or (ending.well_from_end <= NEAR_END and not unsettled)):
        return True, f"the log says: {well[0].text}", well
    if told and not unsettled and any(_drives(f"{name}.") for name in told) and (rate or proofs):
        return True, f"{', '.join(told)} ended with 0, and there are results", cite(case, "exit")
    return False, "", []


def _is_bad(name: str, code: int | None, signal: str) -> bool:
    # A daemon is ended on purpose when the work is over.
    stopped = signal.upper().removeprefix("SIG") in ("TERM", "15", "INT", "2") or code in (143, 130)
    if stopped and re.search(r"daemon|serv", name):
        return False
    return bool(signal and signal.lower() not in ("", "0", "none")) or code not in (0, None)
