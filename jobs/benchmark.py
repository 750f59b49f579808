"""`benchmark`: verify what came, and when all has come, give the verdict.

Every proof is checked here by an independent implementation against the public values that we chose; the
machine's word counts for nothing. Verification goes in slices, so that the job stays short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, or_, select, update

from gpu.errors import ProofRejected
from gpu.groth16.verify import verify_many
from jobs import prepare
from jobs.context import Context, current
from jobs.domain import sequential
from jobs.domain import verdict as rules
from jobs.domain.instances import to_sealing
from jobs.domain.market_models import Machine
from jobs.domain.models import Input, Instance, Proof, Run
from jobs.domain.states import ACTIVE, BENCHMARKING, PROVING, READY, conclude, transition
from jobs.domain.work import Claim, record, take, transaction
from jobs.market import accrual, measurements, reputation
from logs.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

SLICE = 4
MAX_ROUNDS = 2


def benchmark(instance_id: str, attempt: int) -> None:
    """The RQ job of an instance whose proofs are coming in."""
    del attempt
    context = current()
    held = take(context, Instance, instance_id, (BENCHMARKING, PROVING))
    if held is None:
        return
    claim, instance = held
    with claim.released_on_error():
        while _verify_slice(context, claim, instance):
            if not claim.extend():
                return
        if not _settle(context, claim, instance.id):
            claim.release()


def _verify_slice(context: Context, claim: Claim, instance: Instance) -> bool:
    """Verify the next few proofs. False when none is waiting."""
    with context.sessions() as session:
        waiting = list(
            session.scalars(
                select(Proof)
                .where(Proof.instance_id == instance.id, Proof.verdict == "", Proof.received_ms.is_not(None))
                .order_by(Proof.round, Proof.index)
                .limit(SLICE)
            )
        )
        run = session.get(Run, instance.run_id)
        key = session.get(Input, run.zkey_id) if run and run.zkey_id else None
    if not waiting or key is None or key.vkey is None:
        return False
    reasons = _check(context, instance, key, waiting)
    with transaction(context) as session:
        if claim.mine(session) is None:
            return False
        for proof, reason in zip(waiting, reasons, strict=True):
            session.execute(
                update(Proof)
                .where(Proof.id == proof.id, Proof.verdict == "")
                .values(verdict="valid" if reason is None else "invalid", reason=reason or "")
            )
    return True


def _check(context: Context, instance: Instance, key: Input, proofs: list[Proof]) -> list[str | None]:
    """None for each proof that holds, else why not."""
    reasons: list[str | None] = [None] * len(proofs)
    for i, proof in enumerate(proofs):
        if proof.public != proof.expected_public:
            reasons[i] = "it is for other public values than those asked for"
        elif _seen_before(context, instance, proof):
            reasons[i] = "it is the same proof as another one: zero-knowledge proofs never repeat"
    asked = [i for i, reason in enumerate(reasons) if reason is None]
    try:
        verdicts = verify_many(key.vkey or {}, [(proofs[i].expected_public, proofs[i].proof or {}) for i in asked])
    except ProofRejected as error:
        verdicts = [f"the verification key is not usable: {error}"] * len(asked)
    for i, reason in zip(asked, verdicts, strict=True):
        reasons[i] = reason
    return reasons


def _seen_before(context: Context, instance: Instance, proof: Proof) -> bool:
    with context.sessions() as session:
        others = session.scalars(
            select(Proof.proof).where(
                Proof.run_id == instance.run_id,
                Proof.received_ms.is_not(None),
                # Those found valid already, and within a slice those before: whatever order they were sent in.
                or_(Proof.id < proof.id, and_(Proof.verdict == "valid", Proof.id != proof.id)),
            )
        )
        return any(other == proof.proof for other in others if other is not None)


def _settle(context: Context, claim: Claim, instance_id: str) -> bool:
    """Give the verdict if the round is over. True: the claim has ended with a transition."""
    with context.sessions() as session:
        instance = session.get(Instance, instance_id)
        run = session.get(Run, instance.run_id) if instance else None
        if instance is None or run is None:
            return False
        proofs = list(
            session.scalars(
                select(Proof).where(Proof.run_id == run.id, Proof.round == instance.round).order_by(Proof.index)
            )
        )
    progress = instance.progress or {}
    ended = bool(progress.get("ended")) and progress.get("round", 1) == instance.round
    if any(p.received_ms is not None and p.verdict == "" for p in proofs) or not proofs:
        return False
    rate = _rate(run, [p for p in proofs if p.instance_id == instance.id])  # some may be another machine's
    if not ended and any(p.received_ms is None or rules.is_unexplained(p.verdict, p.reason) for p in proofs):
        early = _decided_early(context, run, instance, proofs, rate)
        if early is None:
            return False
        result = {**_result(run, proofs, rate), "stopped_early": True}
        return _conclude(context, claim, run.id, instance.id, early, result)
    verdict = rules.decide(
        run.kind,
        [rules.Outcome(p.index, p.verdict, p.reason) for p in proofs],
        rate,
        run.min_proofs_per_hour,
        exit_code=progress.get("exit_code"),
        signal=progress.get("signal", ""),
        error=progress.get("error", ""),
        inputs_are_ours="circuit" in run.inputs,
    )
    if rules.is_near_miss(verdict, rate, run.min_proofs_per_hour) and _rounds(context, instance) < MAX_ROUNDS:
        return _once_more(context, claim, run, instance, verdict)
    return _conclude(context, claim, run.id, instance.id, verdict, _result(run, proofs, rate))


def _rounds(context: Context, instance: Instance) -> int:
    """How many rounds this machine has had; another one may have had those before."""
    with context.sessions() as session:
        first = session.scalar(select(func.min(Proof.round)).where(Proof.instance_id == instance.id))
    return instance.round - (first or instance.round) + 1


def _decided_early(
    context: Context, run: Run, instance: Instance, proofs: list[Proof], rate: rules.Rate
) -> rules.Verdict | None:
    """The verdict of a round that goes on, where more proofs would not change it; None while they may.

    What earlier rounds took counts too: it is one test, looked at all along.
    """
    came = [p for p in proofs if p.received_ms is not None]
    if run.kind != "benchmark" or not run.min_proofs_per_hour or any(p.verdict != "valid" for p in came):
        return None
    with context.sessions() as session:
        before = list(
            session.scalars(
                select(Proof)
                .where(Proof.run_id == run.id, Proof.instance_id == instance.id, Proof.round < instance.round)
                .order_by(Proof.round)
            )
        )
    times = []
    for number in range(1, instance.round + 1):
        of_round = came if number == instance.round else [p for p in before if p.round == number]
        times += rules.batch_seconds(*_times(of_round), run.concurrency)
    found = sequential.decide(times, run.concurrency * 3600 / run.min_proofs_per_hour)
    return rules.decided_early(found, len(came), len(proofs), rate, run.min_proofs_per_hour) if found else None


def _times(proofs: list[Proof]) -> tuple[int, list[int]]:
    """When the tasks were handed out, and when each valid proof came: milliseconds of our clock."""
    pulled = min((p.pulled_ms for p in proofs if p.pulled_ms is not None), default=0)
    return pulled, [p.received_ms for p in proofs if p.verdict == "valid" and p.received_ms is not None]


def _rate(run: Run, proofs: list[Proof]) -> rules.Rate:
    return rules.measure(*_times(proofs), run.concurrency)


def _result(run: Run, proofs: list[Proof], rate: rules.Rate) -> dict[str, Any]:
    machine = [p.machine_ms for p in proofs if p.verdict == "valid" and p.machine_ms]
    return {
        "proofs": len(proofs),
        "verified": sum(p.verdict == "valid" for p in proofs),
        "invalid": sum(p.verdict == "invalid" for p in proofs),
        "errors": sum(p.verdict == "error" for p in proofs),
        "proofs_per_hour": rate.proofs_per_hour,
        "proofs_per_hour_low": rate.low,
        "proofs_per_hour_high": rate.high,
        "window_s": rate.window_s,
        "machine_ms_mean": sum(machine) / len(machine) if machine else None,
        "min_proofs_per_hour": run.min_proofs_per_hour,
    }


def _once_more(context: Context, claim: Claim, run: Run, instance: Instance, verdict: rules.Verdict) -> bool:
    """A near miss is measured again on the same machine, with fresh witnesses."""
    try:
        prepare.add_round(context, run, instance.round + 1)
    except StoreError:
        claim.release(wake_in_s=5)
        return True
    now = context.now_ms()
    with transaction(context) as session:
        mine = claim.mine(session)
        if isinstance(mine, Instance) and mine.round == instance.round:
            mine.round += 1
            mine.moved_ms = now
            record(
                session,
                now,
                "benchmark",
                "benchmark.again",
                f"{verdict.reason}; the minimum lies inside the measured interval",
                run_id=run.id,
                instance_id=instance.id,
            )
    return False


def _conclude(
    context: Context, claim: Claim, run_id: str, instance_id: str, verdict: rules.Verdict, result: dict[str, Any]
) -> bool:
    now = context.now_ms()
    with transaction(context) as session:
        instance = claim.mine(session)
        run = session.get(Run, run_id)
        if not isinstance(instance, Instance) or run is None:
            return True
        result["dollars_per_proof"] = accrual.spent(instance, now) / result["verified"] if result["verified"] else None
        conclude(
            session,
            run,
            ACTIVE,
            verdict.state,
            reason=verdict.reason,
            actor="benchmark",
            now_ms=now,
            values={"result": result},
        )
        if result.get("stopped_early"):
            _tell_saved(session, instance, run, result, now)
        _mark(session, instance, run, verdict, result, now)
        token: str | None = claim.token
        if verdict.state == "passed" and instance.state == BENCHMARKING:
            transition(
                session,
                instance,
                BENCHMARKING,
                READY,
                reason=verdict.reason,
                actor="benchmark",
                now_ms=now,
                token=token,
            )
            token = None
        return to_sealing(context, session, instance, f"{verdict.state}: {verdict.reason}", "benchmark", token=token)


def _tell_saved(session: Session, instance: Instance, run: Run, result: dict[str, Any], now: int) -> None:
    """What the proofs that are not waited for would have cost, at the measured rate."""
    left = result["proofs"] - result["verified"]
    hours = left / result["proofs_per_hour"]
    saved = {"proofs": left, "seconds": hours * 3600, "dollars": hours * instance.dollars_per_hour}
    text = f"{left} proofs are not waited for: {hours * 3600:,.0f} s, ${saved['dollars']:.4f} saved"
    record(session, now, "benchmark", "benchmark.early", text, run_id=run.id, instance_id=instance.id, data=saved)


def _mark(
    session: Session, instance: Instance, run: Run, verdict: rules.Verdict, result: dict[str, Any], now: int
) -> None:
    """What the machine will be remembered for; keyed on the machine, never on its host."""
    key = (instance.provider, instance.machine_id)
    if session.get(Machine, key) is None:
        return
    measurements.keep(session, instance, run, result, now)
    if verdict.state == "broken":
        reputation.failed(session, now, instance, verdict.reason, "benchmark")
    if verdict.machine_mark:
        reputation.mark(
            session,
            now,
            *key,
            verdict.machine_mark,
            verdict.reason,
            "benchmark",
            run_id=run.id,
            instance_id=instance.id,
        )
    elif verdict.state == "passed":
        past = (reputation.BROKEN, reputation.SLOW) if run.min_proofs_per_hour else (reputation.BROKEN,)
        reputation.refuted(session, now, *key, past, "benchmark")
