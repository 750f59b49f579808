"""What an instance is told to do: its spec, with signed URLs that live for hours at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gpu.protocol import Fetch, Spec, StageCommand
from jobs import payloads
from jobs.domain import relay
from jobs.domain.models import Input, Instance, Proof, Run

if TYPE_CHECKING:
    from jobs.context import Context

PARAMS_URL_S = 6 * 3600
WITNESS_URL_S = 3600


def filled(arguments: list[str], numbers: dict[str, int]) -> list[str]:
    """Replace `{n}`, `{concurrency}` and `{partition_workers}`; folders are the machine's to replace."""
    for name, value in numbers.items():
        arguments = [argument.replace("{" + name + "}", str(value)) for argument in arguments]
    return arguments


def build_spec(context: Context, session: Session, run: Run, instance: Instance) -> Spec:
    """The spec of `instance`. Raises `logs.errors.StoreError` where the archive can't sign."""
    payload = payloads.load(run.payload)
    stage = "benchmark" if run.kind == "benchmark" else "prove"
    # A machine before it may have made some of the proofs already.
    left = (Proof.run_id == run.id, Proof.round == instance.round, Proof.verdict != "valid")
    proofs = session.scalar(select(func.count()).select_from(Proof).where(*left)) or run.proofs
    numbers = {"n": proofs, "concurrency": run.concurrency, "partition_workers": run.partition_workers}
    asked = payload.commands[stage]
    command = StageCommand(
        command=filled(asked.command, numbers),
        daemon=filled(asked.daemon, numbers),
        daemon_socket=asked.daemon_socket,
        warm_up=asked.warm_up,
        files=asked.files,
        depends_on=asked.depends_on,
    )
    key = session.get(Input, run.zkey_id) if run.zkey_id else None
    params = []
    if key is not None:
        url = relay.file_url(context, instance, key.object_key, PARAMS_URL_S)
        params.append(Fetch("key.zkey", url, key.sha256, key.size_bytes))
    if asked.warm_up and (warm_up := run.inputs.get("warm_up")):
        url = relay.file_url(context, instance, warm_up["key"], PARAMS_URL_S)
        params.append(Fetch("warm-up.wtns", url, warm_up["sha256"], warm_up["bytes"]))
    return Spec(
        instance=instance.id,
        run=run.id,
        payload=run.payload,
        kind=run.kind,
        stages=["params", stage],
        params=params,
        commands={stage: command},
        proofs=proofs,
        concurrency=run.concurrency,
        partition_workers=run.partition_workers,
        env={**payload.env, "PROVEFLEET_PROVER_BACKEND": context.settings.prover_backend},
        streams=payload.streams,
        deadlines_s={name: payload.deadlines_s[name] for name in ("params", stage)},
        first_round=instance.round,
    )


def witness_fetch(context: Context, instance: Instance, proof: Proof) -> Fetch:
    """Where the machine of `instance` reads the witness of `proof`."""
    url = relay.file_url(context, instance, proof.witness_key, WITNESS_URL_S)
    return Fetch(f"{proof.index}.wtns", url, proof.witness_sha256, proof.witness_bytes)
