"""Every line of every stream against every signature, quickly: blocks first, then the lines of blocks with a hit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import re2

from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.concepts import load_concepts, neutral, words_of
from jobs.diagnosis.report import Evidence
from jobs.diagnosis.signatures import Signature, load_signatures

BLOCK = 200
HUGE, ENDS = 100_000, 20_000
"""In a file of more lines than this, concepts are looked for at its ends only in what its program thinks nothing of."""
KEPT_FIRST, KEPT_LAST = 6, 3
KEPT_CALM = 2
SHOWN = 300
CALM = re.compile(
    r"\b(?:INFO|DEBUG|TRACE|VERBOSE|NOTICE)\b|^\[?[IDT]\d{4} |\"level\":\"(?:info|debug|"
    r"trace)\"|level=(?:info|debug|trace)|\[(?:info|debug|trace)\]"
)
"""A line that its program thinks nothing of."""
_DENIED = re.compile(r"\b(?:not|never|no|0 of|incomplete|un\w+able)\b|fail|abort", re.IGNORECASE)
# Tables of the facts that hold no words about how this run failed.
_NO_WORDS = re.compile(r"fleet|notes?|stages?|minutes|image|hardware|offer|history_of|others?|payload|config|env")
_NOTE = re.compile(
    r"\s*(?:notes?|comments?|payload|stage\w*|label|gpu_?\w*|cpu_model|ref|name|others?\w*|same_\w+)\s*=", re.IGNORECASE
)
# What a kernel can tell of: its words about anything else are of something else.
_KERNELS = {
    "host_oom_cgroup",
    "host_oom_global",
    "bad_host_ram",
    "xid_error",
    "ecc_error",
    "disk_full",
    "daemon_crash",
    "illegal_instruction_cpu",
    "daemon_hang",
    "driver_lib_mismatch",
    "driver_too_old",
    "bad_host_network",
    "pcie_narrow",
    "thermal_throttle",
    "gpu_access_lost",
    "slow_cpu",
    "host_vanished",
}
_TABLE = re.compile(r"\s*\[+([^\[\]]+)\]+\s*(?:#.*)?$")


@dataclass
class Finding:
    """Lines of one file that match one signature: the first few, the newest few, and how many in all. `recovered`: the
    line that says that the trouble passed, when it comes after all of them."""

    signature: Signature
    file: str
    concept: bool = False
    first: list[Evidence] = field(default_factory=list)
    last: list[Evidence] = field(default_factory=list)
    count: int = 0
    recovered: Evidence | None = None

    @property
    def evidence(self) -> list[Evidence]:
        return self.first + [e for e in self.last if e not in self.first]

    def add(self, evidence: Evidence) -> None:
        self.count += 1
        self.recovered = None
        if self.concept and CALM.search(evidence.text) and len(self.first) >= KEPT_CALM:
            return  # leaves room for the lines of an error
        if len(self.first) < KEPT_FIRST:
            self.first.append(evidence)
        else:
            self.last = [*self.last, evidence][-KEPT_LAST:]


@cache
def _atoms(concepts: bool) -> tuple[re2.Filter, list[Signature]]:
    """RE2's own filter: which expressions could match a text, by the literals that they need; and whose they are."""
    options = re2.Options()
    options.case_sensitive = False
    every, owners = re2.Filter(), []
    for signature in load_concepts() if concepts else load_signatures():
        for pattern in signature.patterns:
            every.Add(pattern, options)
            owners.append(signature)
    every.Compile()
    return every, owners


def _possible(text: str, *, concepts: bool) -> list[Signature]:
    """Signatures, or concepts, that might match a line of `text`, each once, in their order."""
    every, owners = _atoms(concepts)
    hinted = dict.fromkeys(owners[i] for i in sorted(every.Match(text.lower(), True) or ()))
    return [signature for signature in hinted if signature.found.search(text)]


def scan(case: Case) -> list[Finding]:
    """All findings, in the order of files and lines."""
    findings: list[Finding] = []
    for name, lines in case.streams.items():
        findings += _scan_file(name, lines)
    for name in case.sources:
        findings += _scan_file(name, _told_lines(case.sources[name]))
    return findings


def _told_lines(lines: list[str]) -> list[str]:
    """The facts file with all but what was said about this run left empty, so that line numbers stay. What other
    machines did (`[fleet]`), what somebody noted, and bare figures are no words about it."""
    kept, table = [], "fleet"
    for line in lines:
        if header := _TABLE.match(line):
            table = header[1].strip().lower()
        says = '"' in line and not _NO_WORDS.match(table) and not _NOTE.match(line)
        kept.append(f"[{table}] {line}" if says or table.startswith("provider") else "")
    return kept


def _scan_file(name: str, lines: list[str]) -> list[Finding]:
    found: dict[str, Finding] = {}
    kernel = "kernel" in name or "dmesg" in name
    for start, block in _blocks(lines):
        text = "\n".join(block)
        inside = len(lines) > HUGE and ENDS < start < len(lines) - ENDS
        words = words_of("\n".join("" if _calm(line) else line for line in block) if inside else text)
        known, meant = _possible(text, concepts=False), _possible(words, concepts=True)
        waiting = [f for f in found.values() if f.signature.recovered is not None]
        if not known and not meant and not waiting:
            continue
        for offset, (line, its_words) in enumerate(zip(block, words.split("\n"), strict=True)):
            hits = [s for s in known if s.matches(line)]
            about = [s for s in meant if (not kernel or s.cause in _KERNELS) and s.matches(its_words)]
            if about and not neutral().search(its_words):
                hits += about
            for signature in hits:
                finding = found.setdefault(signature.id, Finding(signature, name, signature in meant))
                finding.add(Evidence(name, start + offset, line.strip()[:SHOWN]))
                if signature.recovered is not None and finding not in waiting:
                    waiting.append(finding)
            for finding in waiting:
                if finding.recovered is None and _passed(finding.signature, line):
                    finding.recovered = Evidence(name, start + offset, line.strip()[:SHOWN])
    return list(found.values())


def _calm(line: str) -> bool:
    """As `CALM`, but for the commonest forms alone: quick."""
    return (
        " INFO " in line or " DEBUG " in line or "level=info" in line or '"level":"info"' in line or " TRACE " in line
    )


def _passed(signature: Signature, line: str) -> bool:
    """The line says that the signature's trouble is over, and does not deny it."""
    return bool(signature.recovered.search(line)) and not (signature.matches(line) or _DENIED.search(line))


def _blocks(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of each block."""
    for start in range(0, len(lines), BLOCK):
        yield start + 1, [plain(line) for line in lines[start : start + BLOCK]]
