"""Failures that read alike: the cause, and its decisive line without what differs from run to run."""

from __future__ import annotations

import hashlib
import re

from jobs.diagnosis.report import Report

# Times, addresses, hashes and ids, paths' numbers, then any other number.
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,}(?:-[0-9a-f]{4,})*\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)


def masked(line: str) -> str:
    """A line without times, ids and numbers."""
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return " ".join(line.split()).lower()[:300]


def fingerprint(report: Report) -> str:
    """32 hex digits; the same for reports whose first cause and decisive line are alike."""
    top = report.top
    cause = top.cause if top else "unknown"
    line = masked(top.evidence[0].text) if top and top.evidence else masked(report.symptom)
    return hashlib.sha256(f"{cause}\0{report.stage}\0{line}".encode()).hexdigest()[:32]
