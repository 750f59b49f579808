"""From proofs to a verdict: the rate on the controller's clock, its interval, and the word for it.

Only verified proofs count. `broken`: no valid proof. `slow`: valid proofs, under the minimum. `failed`: it never
came to a measurement that means what it says, because the prover died, the input was bad or proofs are missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.domain import sequential

# Student's t, 95th percentile (a two-sided 90 % interval), for 1..30 degrees of freedom; beyond, the normal's.
# NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
T_95 = (
    6.314,
    2.920,
    2.353,
    2.132,
    2.015,
    1.943,
    1.895,
    1.860,
    1.833,
    1.812,
    1.796,
    1.782,
    1.771,
    1.761,
    1.753,
    1.746,
    1.740,
    1.734,
    1.729,
    1.725,
    1.721,
    1.717,
    1.714,
    1.711,
    1.708,
    1.706,
    1.703,
    1.701,
    1.699,
    1.697,
)
NORMAL_95 = 1.645

# The prover's own words for an input that can't be proved with, or not in so little memory (`gpu.errors`): the
# machine is not broken.
INPUT_ERRORS = ("bad_file", "witness_refused", "refused", "out_of_memory")
# Its word for a daemon that died or does not answer: how it ended is told a moment after the last proof.
DAEMON_ERROR = "daemon_failed"


@dataclass(frozen=True)
class Rate:
    """Valid proofs per hour over `window_s`, with a 90 % interval, `low` to `high` (None: one batch, no spread)."""

    proofs_per_hour: float
    low: float | None
    high: float | None
    window_s: float


def measure(pulled_ms: int, valid_received_ms: Sequence[int], concurrency: int) -> Rate:
    """The rate of the proofs received at these times (controller's clock), tasks handed out at `pulled_ms`.

    Proofs made `concurrency` at a time arrive in clumps, so the spread is taken over batches of that size
    (batch means; Law & Kelton, Simulation Modeling and Analysis, ch. 9).
    """
    times = sorted(valid_received_ms)
    if not times:
        return Rate(0.0, None, None, 0.0)
    window_s = max(times[-1] - pulled_ms, 1) / 1000
    rate = len(times) / window_s * 3600
    batches = batch_seconds(pulled_ms, times, concurrency)
    if len(batches) < 2:
        return Rate(rate, None, None, window_s)
    spread = statistics.stdev(batches) / max(statistics.fmean(batches), 1e-9) / len(batches) ** 0.5
    t = T_95[len(batches) - 2] if len(batches) - 1 <= len(T_95) else NORMAL_95
    margin = min(t * spread, 1.0)
    return Rate(rate, rate * (1 - margin), rate * (1 + margin), window_s)


def batch_seconds(pulled_ms: int, valid_received_ms: Sequence[int], concurrency: int) -> list[float]:
    """Seconds that each `concurrency` proofs took, in the order in which they came; an unfinished batch is left out."""
    ends = sorted(valid_received_ms)[concurrency - 1 :: concurrency]
    return [(end - start) / 1000 for start, end in zip([pulled_ms, *ends], ends, strict=False)]


@dataclass(frozen=True)
class Outcome:
    """One proof as it stands: `verdict` is valid | invalid | error | '' (never came)."""

    index: int
    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    """`state` as in the run; `machine_mark` is what the machine is to be called for it ('' leaves it as it is)."""

    state: str
    reason: str
    machine_mark: str = ""


def _died(exit_code: int | None, signal: str, error: str) -> str:
    if signal:
        return f"the prover was killed by {signal}"
    if error:
        return error
    if exit_code not in (0, 1, None):
        return f"the prover ended with exit code {exit_code}"
    return ""


def is_unexplained(verdict: str, reason: str) -> bool:
    """True for a proof that failed for the death of the daemon: the verdict waits until it is told how."""
    return verdict == "error" and reason.split(":")[0] == DAEMON_ERROR


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else ""


def decide(
    kind: str,
    outcomes: Sequence[Outcome],
    rate: Rate,
    min_proofs_per_hour: float | None,
    *,
    exit_code: int | None = None,
    signal: str = "",
    error: str = "",
    inputs_are_ours: bool = False,
) -> Verdict:
    """The verdict of a round whose stage has ended or whose every proof has been answered.

    A machine that says "bad witness" of one that the controller made (`inputs_are_ours`) is not believed.
    """
    total = len(outcomes)
    valid = sum(o.verdict == "valid" for o in outcomes)
    bad = [o for o in outcomes if o.verdict in ("invalid", "error")]
    if valid == total:
        return _measured(kind, total, rate, min_proofs_per_hour)
    died = _died(exit_code, signal, error)
    inputs_to_blame = (bool(bad) and not inputs_are_ours) and all(
        o.verdict == "error" and o.reason.split(":")[0] in INPUT_ERRORS for o in bad
    )
    first = f"proof {bad[0].index}: {_first_line(bad[0].reason)}" if bad else "no answer came"
    if (died and valid + len(bad) < total) or signal:
        return Verdict("failed", f"{died} after {valid} of {total} proofs" + (f"; {first}" if bad else ""))
    if inputs_to_blame:
        return Verdict("failed", f"{valid} of {total} proofs; the input is refused: {first}")
    if valid == 0 and (bad or died):
        return Verdict("broken", f"0 of {total} proofs valid; {first if bad else died}", "broken")
    mark = "unstable" if any(o.verdict == "invalid" for o in bad) else ""
    return Verdict("failed", f"only {valid} of {total} proofs are valid; {first}", mark)


def _measured(kind: str, total: int, rate: Rate, minimum: float | None) -> Verdict:
    said = f"{total} of {total} proofs valid, {rate.proofs_per_hour:,.1f} proofs/h"
    if kind == "benchmark" and minimum is not None and rate.proofs_per_hour < minimum:
        return Verdict("slow", f"{said}, under the minimum of {minimum:,.1f}", "slow")
    return Verdict("passed", said)


def decided_early(found: str, valid: int, total: int, rate: Rate, minimum: float) -> Verdict:
    """The verdict of a benchmark that `jobs.domain.sequential` has `found` faster or slower than the minimum."""
    said = f"stopped early after {valid} of {total}: decided, {rate.proofs_per_hour:,.1f} proofs/h"
    if found == sequential.SLOWER:
        return Verdict("slow", f"{said}, under the minimum of {minimum:,.1f}", "slow")
    return Verdict("passed", f"{said}, over the minimum of {minimum:,.1f}")


def is_near_miss(verdict: Verdict, rate: Rate, minimum: float | None) -> bool:
    """True where slow may be chance: the minimum lies inside the measured 90 % interval."""
    return verdict.state == "slow" and minimum is not None and rate.high is not None and minimum <= rate.high
