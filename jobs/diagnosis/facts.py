"""Figures that authors name in many ways, asked for by meaning: ends, rates, versions, what was promised and found."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.diagnosis.case import Case, as_number

_WORD = re.compile(r"[a-z]+|\d+")
_RATE = {"rate", "rates", "throughput", "pph"}
_LEAST = {"min", "minimum", "required", "threshold", "floor", "target", "needed", "least", "asked", "wanted", "want"}
_NO_RATE = {
    "bid",
    "price",
    "dollars",
    "bit",
    "sample",
    "hash",
    "error",
    "util",
    "clock",
    "frame",
    "refresh",
    "max",
    "pcie",
}
_THINGS = {"proofs", "receipts", "jobs", "tasks", "segments", "snarks", "requests", "proof"}
_OUT = {
    "reported",
    "done",
    "valid",
    "ok",
    "completed",
    "verified",
    "accepted",
    "passed",
    "proved",
    "finished",
    "delivered",
}
_ASKED = {"requested", "total", "expected", "wanted", "submitted", "planned", "asked", "sent"}
_ELSEWHERE = ("hardware", "provider", "fleet", "minutes", "image", "offer", "stages")
_PROMISED = {
    "offer",
    "offered",
    "advertised",
    "listed",
    "promised",
    "contract",
    "catalog",
    "expected",
    "nominal",
    "spec",
}
_FOUND = {
    "found",
    "measured",
    "actual",
    "real",
    "delivered",
    "seen",
    "effective",
    "detected",
    "got",
    "visible",
    "hardware",
}
_FILLER = {"num", "count", "total", "the", "of", "run", "host", "effective", "telemetry", "provider", "model", "name"}


def words(key: str) -> list[str]:
    """The words of a dotted key."""
    return _WORD.findall(key.lower())


def ends(case: Case) -> list[tuple[str, int | None, str]]:
    """(process or stream, exit code, signal) of each that the facts tell."""
    told: dict[str, tuple[int | None, str]] = {}
    for key, value in case.flat:
        if re.match(r"(?:fleet|provider|notes?)\b", key):
            continue
        named = re.search(r"\b(?:exit_?codes?|exits?|exit_?status(?:es)?|return_?codes?|rcs?)\.([^.]+)$", key)
        named = named or re.search(r"\b([a-z0-9-]+?)_(?:exit(?:_?code|_?status)?|rc|return_?code)$", key)
        if named or re.search(r"run\.(?:exit(?:_?code|_?status)?|rc|return_?code)$", key):
            name = named[1] if named else "run"
            code = as_number(value)
            signal = told.get(name, (None, ""))[1] or (
                str(value) if re.search(r"(?i)sig(?:nal|[a-z]{3,4}\b)", str(value)) else ""
            )
            told[name] = (None if code is None or signal == str(value) else int(code), signal)
        elif found := re.search(r"\bsignals?\.([^.]+)$|\b([a-z0-9-]+)_signal$|run\.(signal)$", key):
            name = found[1] or found[2] or "run"
            told[name] = (told.get(name, (None, ""))[0], str(value).strip())
    return [(name, code, signal) for name, (code, signal) in told.items()]


def rates(case: Case) -> tuple[float | None, float | None, float | None]:
    """(rate reported, minimum rate, proofs that came out); None where not told."""
    rate = least = proofs = None
    for key, value in case.flat:
        if key.split(".")[0] in _ELSEWHERE or (number := as_number(value)) is None:
            continue
        said = set(words(key))
        if (said & _RATE or {"per", "hour"} <= said or {"per", "h"} <= said) and not said & _NO_RATE:
            if said & _LEAST:
                least = number if least is None else least
            else:
                rate = number if rate is None else rate
        elif said & _THINGS and said & _OUT:
            proofs = number if proofs is None else proofs
    return rate, least, proofs


def asked_for(case: Case) -> float | None:
    """How many proofs were asked for; None where not told."""
    for key, value in case.flat:
        said = set(words(key))
        if key.split(".")[0] not in _ELSEWHERE and said & _THINGS and said & _ASKED and (number := as_number(value)):
            return number
    return None


def credit(case: Case) -> tuple[str, float] | None:
    """(key, what the account holds); None where not told."""
    for key, value in case.flat:
        if {"credit", "credits", "balance", "funds", "wallet"} & set(words(key)) and (
            held := as_number(value)
        ) is not None:
            return key, held
    return None


def promises(case: Case) -> Iterator[tuple[str, str, str]]:
    """(what, as promised, as found) of each thing of which the facts tell both, in whatever order of a key's words."""
    promised: dict[frozenset[str], tuple[str, str]] = {}
    found: dict[frozenset[str], str] = {}
    for key, value in case.flat:
        said = set(words(key))
        what = frozenset(said - _PROMISED - _FOUND - _FILLER)
        if said & _PROMISED:
            promised.setdefault(what, (" ".join(w for w in words(key) if w in what), str(value)))
        elif said & _FOUND:
            found.setdefault(what, str(value))
    for what, (name, value) in promised.items():
        if what in found:
            yield name, value, found[what]


_MEANT = {
    "expected",
    "wanted",
    "meant",
    "deployed",
    "ordered",
    "requested",
    "pinned",
    "target",
    "want",
    "intended",
    "latest",
    "should",
    "expect",
    "current",
    "manifest",
}
_RAN = {
    "ran",
    "running",
    "actual",
    "used",
    "pulled",
    "got",
    "seen",
    "observed",
    "runs",
    "live",
    "cached",
    "deployed_was",
    "found",
}
# The first driver branch that supports a CUDA version (NVIDIA's table of minor-version support).
DRIVER_CUDA = (
    (580, "13.0"),
    (575, "12.9"),
    (570, "12.8"),
    (565, "12.7"),
    (560, "12.6"),
    (555, "12.5"),
    (550, "12.4"),
    (545, "12.3"),
    (535, "12.2"),
    (530, "12.1"),
    (525, "12.0"),
    (520, "11.8"),
    (515, "11.7"),
    (510, "11.6"),
    (495, "11.5"),
    (470, "11.4"),
    (450, "11.0"),
)
_HAS = {"driver", "max", "supported", "supports", "host", "good", "nvidia", "smi"}
_NEEDS = {"image", "toolkit", "runtime", "container", "built", "build", "needs", "required", "binary", "payload"}


def digests(case: Case) -> tuple[str, str]:
    """(image digest expected, digest that ran), "" where the facts don't say."""
    expected = ran = ""
    for key, value in case.flat:
        said = set(words(key))
        if (
            key.split(".")[0] in ("fleet", "notes")
            or not said & {"digest", "digests", "image"}
            or not isinstance(value, str)
        ):
            continue
        if not re.search(r"[0-9a-f]{2}", value) or not (said & {"digest", "digests"} or "sha256" in value):
            continue
        if said & _MEANT and not said & _RAN:
            expected = expected or value.strip()
        else:
            ran = ran or value.strip()
    return expected, ran


def cuda_versions(case: Case) -> tuple[str, str]:
    """(CUDA that the driver supports, CUDA of the image), "" where the facts don't say."""
    has = needs = ""
    for key, value in case.flat:
        said = set(words(key))
        if (
            "cuda" not in said
            or said & {"arch", "archs", "error", "visible", "cores", "devices"}
            or key.startswith("fleet")
        ):
            continue
        if said & _HAS and not said & {"toolkit", "runtime"}:
            has = has or str(value)
        elif said & _NEEDS:
            needs = needs or str(value)
    branch = re.match(r"\s*(\d{3})\b", case.text(r"driver_version", r"\bdriver$", r"nvidia_driver"))
    if not has and branch:
        has = next((cuda for first, cuda in DRIVER_CUDA if int(branch[1]) >= first), "")
    return has, needs


def oom_kills(case: Case) -> float:
    """How often the kernel killed in the container, as its memory.events say: the newest count less the first."""
    counts = [n for key, value in case.flat if re.search(r"oom_?kills?$", key) and (n := as_number(value)) is not None]
    return max(counts, default=0.0) - (min(counts) if len(counts) > 1 else 0.0)


def bids(case: Case) -> tuple[float, float] | None:
    """(our bid, the price that the machine goes for now) in $/h; None where not told."""
    bid = price = None
    for key, value in case.flat:
        said, number = set(words(key)), as_number(value)
        if number is None or number <= 0 or key.startswith("fleet"):
            continue
        if "bid" in said and not said & {"min", "minimum", "now", "highest", "others", "competing", "is", "top"}:
            bid = number if bid is None else bid
        elif ("bid" in said and said & {"min", "minimum", "highest", "competing", "top"}) or (
            said & {"price", "market"} and said & {"now", "current", "market", "spot", "run"}
        ):
            price = number if price is None else price
    return (bid, price) if bid is not None and price is not None else None


def time_limit(case: Case) -> tuple[float, float] | None:
    """(seconds that the run took, seconds that it was given); None where not told."""
    took = given = None
    for key, value in case.flat:
        said, number = words(key), as_number(value)
        if number is None or number <= 0 or key.startswith(("fleet", "provider", "hardware")):
            continue
        unit = {"s": 1, "sec": 1, "seconds": 1, "min": 60, "minutes": 60, "h": 3600, "hours": 3600, "ms": 0.001}.get(
            said[-1]
        )
        if unit is None:
            continue
        if {"limit", "timeout", "budget", "deadline", "allowed", "cap"} & set(said) and not {
            "request",
            "rpc",
            "client",
            "connect",
        } & set(said):
            given = number * unit if given is None else given
        elif {"elapsed", "ran", "took", "duration", "runtime", "wall", "ended"} & set(said):
            took = number * unit if took is None else took
    return (took, given) if took is not None and given is not None else None
