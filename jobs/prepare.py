"""`prepare`: everything a run needs before a machine is paid for, then the intent to rent one.

The key (made here for a built-in circuit), the witnesses and the public values that each proof must be for,
an offer within the limits, and last, in one transaction, the reservation and the instance's row.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from sqlalchemy import func, null, select, update
from sqlalchemy.exc import IntegrityError

from gpu.circuits import chain, merkle
from jobs import scan
from jobs.context import Context, current
from jobs.domain import inputs, placing
from jobs.domain.models import Input, Instance, Proof, Run
from jobs.domain.runs import parse_circuit
from jobs.domain.states import ACTIVE, ENDED, QUEUED, conclude
from jobs.domain.work import Claim, record, take, transaction
from jobs.market.providers.base import ProviderUnavailable, UnknownProvider
from logs.errors import StoreError
from logs.multipart import upload_stream

SETUP_TIMEOUT_S = 3000

Witness = tuple[str, str, int, str, list[str]]
"""Object key, sha256, bytes, name for people, expected public values."""


class PrepareFailed(RuntimeError):
    """The run can't start, and trying again won't help: the reason an operator reads."""


def prepare(run_id: str, attempt: int) -> None:
    """The RQ job of a run that has no machine yet."""
    del attempt
    context = current()
    # One key is made at a time, so that a worker is always left to destroy what costs money.
    held = take(context, Run, run_id, (QUEUED, ACTIVE), alone=True)
    if held is None:
        return
    claim, run = held
    with claim.released_on_error():
        if _has_instance(context, run_id):
            claim.release()
            return
        try:
            with claim.kept_alive():
                key = _ensure_key(context, claim, run)
                _ensure_proofs(context, claim, run, key)
                scan.refresh_if_stale(context, run.provider)
        except (PrepareFailed, inputs.InputRefused, UnknownProvider) as error:
            _give_up(context, claim, str(error))
            return
        except (StoreError, ProviderUnavailable) as error:
            _stage(context, claim, f"waiting: {error}")
            claim.release(wake_in_s=5)
            return
        outcome = placing.place(context, claim)
    if outcome.final:
        _give_up(context, claim, outcome.reason)
    elif outcome.reason:
        _stage(context, claim, outcome.reason)
        claim.release(wake_in_s=5)


def _has_instance(context: Context, run_id: str) -> bool:
    with context.sessions() as session:
        return bool(
            session.scalar(
                select(func.count())
                .select_from(Instance)
                .where(Instance.run_id == run_id, Instance.state.not_in(ENDED))
            )
        )


def _stage(context: Context, claim: Claim, text: str) -> None:
    with transaction(context) as session:
        run = claim.mine(session)
        if isinstance(run, Run) and run.stage != text[:200]:
            run.stage = text[:200]
            record(session, context.now_ms(), "prepare", "run.stage", text, run_id=run.id)


def _give_up(context: Context, claim: Claim, reason: str) -> None:
    with transaction(context) as session:
        run = claim.mine(session)
        if isinstance(run, Run):
            conclude(session, run, run.state, "failed", reason=reason, actor="prepare", now_ms=context.now_ms())


def _command(context: Context, folder: Path, *arguments: str) -> None:
    """Run one of our own commands; a failure is its one line on stderr.

    Compiled kernels go where local agents look for theirs, so that nothing is compiled twice.
    """
    compiled = context.settings.state_dir.resolve() / "cache" / "numba"
    compiled.mkdir(mode=0o700, parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "provefleet", *arguments],
        cwd=folder,
        env={**os.environ, "NUMBA_CACHE_DIR": str(compiled)},
        capture_output=True,
        text=True,
        timeout=SETUP_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise PrepareFailed(f"`provefleet {arguments[0]}` failed: {done.stderr.strip()[-500:] or done.returncode}")


def _ensure_key(context: Context, claim: Claim, run: Run) -> Input:
    """The run's proving key; for a built-in circuit it is made once and kept."""
    circuit = run.inputs.get("circuit")
    with context.sessions() as session:
        key = session.get(Input, run.zkey_id) if run.zkey_id else None
        if key is None and circuit:
            key = session.scalar(select(Input).where(Input.circuit == circuit))
    if key is None and circuit:
        key = _make_key(context, claim, circuit)
    if key is None:
        raise PrepareFailed("the proving key of this run is gone; upload it again")
    with transaction(context) as session:
        mine = claim.mine(session)
        if isinstance(mine, Run):
            mine.zkey_id = key.id
    run.zkey_id = key.id
    return key


def _make_key(context: Context, claim: Claim, circuit: str) -> Input:
    name, size, curve = parse_circuit(circuit)
    _stage(context, claim, "making the key")
    with tempfile.TemporaryDirectory(prefix="provefleet-setup-") as folder:
        here = Path(folder)
        _command(context, here, "circuit", name, str(size), "circuit.r1cs", "circuit.wtns", "--curve", curve)
        _command(context, here, "setup", "circuit.r1cs", "circuit.zkey", "--insecure")
        facts, vkey = inputs.inspect("zkey", f"{circuit}.zkey", here / "circuit.zkey")
        with (here / "circuit.zkey").open("rb") as file:
            sha256, length = upload_stream(context.store, file, context.settings.max_upload_bytes, context.new_id())
    row = Input(
        id=context.new_id(),
        kind="zkey",
        name=f"{name}-{size}-{curve}.zkey",
        state="ready",
        sha256=sha256,
        size_bytes=length,
        object_key=f"inputs/{sha256}",
        circuit=circuit,
        facts=facts,
        vkey=vkey,
        created_by="provefleet",
        created_ms=context.now_ms(),
    )
    try:
        with transaction(context) as session:
            session.add(row)
    except IntegrityError:
        with context.sessions() as session:
            return session.scalars(select(Input).where(Input.circuit == circuit)).one()
    return row


def _ensure_proofs(context: Context, claim: Claim, run: Run, key: Input) -> None:
    """The tasks of the next machine: for each proof its witness in the archive and the public values it must be for.

    A machine before it may have seen some, and come to nothing. A benchmark then begins anew, with witnesses that
    nobody has seen; of proofs that are wanted for themselves, those found valid stay.
    """
    with context.sessions() as session:
        newest = session.scalar(select(func.max(Proof.round)).where(Proof.run_id == run.id))
        seen = (Proof.run_id == run.id, Proof.round == newest, Proof.pulled_ms.is_not(None))
        shown = session.scalar(select(func.count()).select_from(Proof).where(*seen))
    if newest is not None:
        if shown and run.kind == "benchmark":
            _stage(context, claim, "making new witnesses")
            add_round(context, run, newest + 1)
        elif shown:
            _take_back(context, claim, run.id)
        return
    _stage(context, claim, "making the witnesses")
    made = _witnesses(context, run, key, 1)
    circuit = run.inputs.get("circuit")
    # The warm-up proof counts for nothing: a witness of its own where we can make one, else the first.
    warm_up = _made_witness(context, run, circuit, "warm-up") if circuit else made[0]
    with transaction(context) as session:
        mine = claim.mine(session)
        if isinstance(mine, Run):
            session.add_all(_tasks(run, 1, made))
            key_, sha256, size, *_ = warm_up
            mine.inputs = {**mine.inputs, "warm_up": {"key": key_, "sha256": sha256, "bytes": size}}


def _take_back(context: Context, claim: Claim, run_id: str) -> None:
    """Tasks that a machine left undone, or did badly, are free for the next one; its evidence keeps what it sent."""
    undone = (Proof.run_id == run_id, Proof.verdict != "valid", Proof.pulled_ms.is_not(None))
    blank = {
        "instance_id": None,
        "pulled_ms": None,
        "received_ms": None,
        "machine_ms": None,
        "proof": null(),
        "public": null(),
    }
    with transaction(context) as session:
        if claim.mine(session) is not None:
            session.execute(update(Proof).where(*undone).values(verdict="", reason="", timings_ms={}, **blank))


def _witnesses(context: Context, run: Run, key: Input, round_number: int) -> list[Witness]:
    circuit = run.inputs.get("circuit")
    return _made_witnesses(context, run, circuit, round_number) if circuit else _given_witnesses(context, run, key)


def _tasks(run: Run, round_number: int, witnesses: list[Witness]) -> list[Proof]:
    tasks = []
    for index in range(run.proofs):
        key, sha256, size, name, public = witnesses[index % len(witnesses)]
        tasks.append(
            Proof(
                run_id=run.id,
                round=round_number,
                index=index,
                witness_key=key,
                witness_sha256=sha256,
                witness_bytes=size,
                witness_name=name,
                expected_public=public,
                verdict="",
                reason="",
                timings_ms={},
            )
        )
    return tasks


def add_round(context: Context, run: Run, round_number: int) -> None:
    """The tasks of a further round, with witnesses of its own. Raises `logs.errors.StoreError`."""
    with context.sessions() as session:
        key = session.get(Input, run.zkey_id)
        have = session.scalar(
            select(func.count()).select_from(Proof).where(Proof.run_id == run.id, Proof.round == round_number)
        )
    if have or key is None:
        return
    made = _witnesses(context, run, key, round_number)
    try:
        with transaction(context) as session:
            session.add_all(_tasks(run, round_number, made))
    except IntegrityError:
        return  # another worker was faster with the same round


def witness_prefix(run_id: str) -> str:
    """Where the witnesses that we make for a run lie until it has ended."""
    return f"witnesses/{run_id}/"


def _made_witnesses(context: Context, run: Run, circuit: str, round_number: int) -> list[Witness]:
    """N different witnesses of our own choice, so that no proof can be made ahead or twice."""
    return [_made_witness(context, run, circuit, f"{round_number}-{index}") for index in range(run.proofs)]


def _made_witness(context: Context, run: Run, circuit: str, name: str) -> Witness:
    kind, size, curve = parse_circuit(circuit)
    made = {"chain": chain, "merkle": merkle}[kind]
    x = secrets.randbits(250)
    with tempfile.TemporaryDirectory(prefix="provefleet-witness-") as folder:
        path = Path(folder) / "witness.wtns"
        made.write_wtns(size, curve, x, path)
        data = path.read_bytes()
    key = f"{witness_prefix(run.id)}{name}.wtns"
    context.store.put(key, data)
    return key, hashlib.sha256(data).hexdigest(), len(data), f"{circuit} {name}", made.public(size, curve, x)


def _given_witnesses(context: Context, run: Run, key: Input) -> list[Witness]:
    n_public = int(key.facts["n_public"])
    given = []
    for witness_id in run.inputs["witnesses"]:
        with context.sessions() as session:
            row = session.get(Input, witness_id)
        if row is None:
            raise PrepareFailed("a witness of this run is gone; upload it again")
        given.append(
            (row.object_key, row.sha256, row.size_bytes, row.name, inputs.public_values(context, row, n_public))
        )
    return given
