"""A reproduction capsule: what one needs to run a machine's work again elsewhere, as a small zip, without a secret.

    README.md        what ran where, and how to run it again
    capsule.json     the same for programs: image, inputs by hash, stages, environment, machine, outcome
    run.sh           the commands of the stage that proved, as the machine was told them
    env.list         the payload's environment, as `docker run --env-file` reads it
    inputs.sha256    key and witnesses, as `sha256sum -c` reads it
    SHA256SUMS       of all the above

Inputs are named by hash: witnesses are the customer's secret and are in no archive. What machines and people wrote is
masked as logs are; a variable whose name speaks of a secret is left out. The same rows give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from gpu.protocol import StageCommand
from jobs.domain.models import Instance, Proof, Run
from jobs.domain.runs import parse_circuit
from jobs.domain.spec import filled
from jobs.payloads import Payload
from logs.redact import redact

VERSION = 1
FOLDER = "/work"
PLACES = {
    "work": FOLDER,
    "params": f"{FOLDER}/params",
    "witnesses": f"{FOLDER}/witnesses",
    "proofs": f"{FOLDER}/proofs",
    "progress": f"{FOLDER}/progress.jsonl",
}
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_SECRET_NAME = re.compile(
    r"token|secret|password|passwd|credential|api_?key|access_?key|private|auth|cookie", re.IGNORECASE
)


def capsule(run: Run, instance: Instance, proofs: Sequence[Proof], payload: Payload, secrets: Sequence[str]) -> bytes:
    """The zip of what `instance` did for `run`. `proofs`: those of its last round, in order.

    `secrets`: texts that must not be in it, whatever they look like (at least 6 characters each).
    """
    clean = _Cleaner(secrets)
    stage = "benchmark" if run.kind == "benchmark" else "prove"
    command = payload.commands[stage]
    told: dict[str, Any] = {
        "version": VERSION,
        "run": run.id,
        "instance": instance.id,
        "payload": payload.name,
        "asked": {
            "kind": run.kind,
            "circuit": run.inputs.get("circuit"),
            "proofs": run.proofs,
            "concurrency": run.concurrency,
            "partition_workers": run.partition_workers,
            "min_proofs_per_hour": run.min_proofs_per_hour,
            "max_duration_s": run.max_duration_s,
        },
        "image": {"expected": instance.image_expected, "ran": instance.image_ran, "reference": image_of(instance)},
        "environment": {name: value for name, value in payload.env.items() if not _SECRET_NAME.search(name)},
        "inputs": list(_inputs(run, proofs)),
        "stages": {stage: _stage(run, proofs, command)},
        "machine": {
            "provider": instance.provider,
            "machine_id": instance.machine_id,
            "offer": instance.offer_id,
            **instance.facts,
        },
        "outcome": {"state": run.state, "reason": run.reason, "instance": instance.reason},
    }
    told = clean.value(told)
    files = {
        "README.md": _readme(run, told, stage, _indices(run, proofs)),
        "capsule.json": json.dumps(told, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
        "run.sh": _script(told["stages"][stage]),
        "env.list": "".join(f"{name}={value}\n" for name, value in told["environment"].items()),
        "inputs.sha256": "".join(f"{i['sha256']}  {i['path']}\n" for i in told["inputs"]),
    }
    # capsule.json is made of clean values; masking its text again could only break it.
    done = {name: text if name.endswith(".json") else clean.text(text) for name, text in files.items()}
    return _zip({name: text.encode("utf-8", "replace") for name, text in done.items()})


def image_of(instance: Instance) -> str:
    """What to give `docker run`: by digest where one is known, the one that ran before the one that was asked for."""
    name = instance.image_expected.partition("@")[0]
    if instance.image_ran.startswith("sha256:") and name:
        return f"{name}@{instance.image_ran}"
    return instance.image_ran or instance.image_expected


class _Cleaner:
    """Masks what looks like a secret, and the secrets that we know."""

    def __init__(self, secrets: Sequence[str]):
        self._secrets = tuple(secrets)

    def text(self, text: str) -> str:
        return redact(text.encode("utf-8", "replace"), self._secrets).decode("utf-8", "replace")

    def value(self, value: Any, name: str = "") -> Any:
        """A JSON value without secrets; `name` is what it is called, which may say what it is."""
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(inner, str(key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, name) for inner in value]
        if not isinstance(value, str):
            return value
        masked = self.text(value)
        named = f"{name}={masked}"
        return "[REDACTED]" if value and (_SECRET_NAME.search(name) or self.text(named) != named) else masked


def _inputs(run: Run, proofs: Sequence[Proof]) -> Iterator[dict[str, Any]]:
    if run.zkey is not None:
        key = run.zkey
        yield _input("key", "params/key.zkey", key.name, key.sha256, key.size_bytes)
    if warm_up := run.inputs.get("warm_up"):
        yield _input("warm-up", "params/warm-up.wtns", "warm-up", warm_up.get("sha256", ""), warm_up.get("bytes", 0))
    for proof in proofs:
        path = f"witnesses/{proof.index}.wtns"
        yield _input("witness", path, proof.witness_name, proof.witness_sha256, proof.witness_bytes)


def _input(kind: str, path: str, name: str, sha256: str, size: int) -> dict[str, Any]:
    return {"kind": kind, "path": path, "name": name, "sha256": sha256, "bytes": size}


def _indices(run: Run, proofs: Sequence[Proof]) -> list[int]:
    return [proof.index for proof in proofs] or list(range(run.proofs))


def _stage(run: Run, proofs: Sequence[Proof], command: StageCommand) -> dict[str, Any]:
    numbers = {
        "n": len(proofs) or run.proofs,
        "concurrency": run.concurrency,
        "partition_workers": run.partition_workers,
    }

    def placed(arguments: list[str]) -> list[str]:
        found: list[str] = []
        for argument in filled(arguments, numbers):
            if argument == "{wtns...}":
                for index in _indices(run, proofs):
                    found += ["--wtns", f"{PLACES['witnesses']}/{index}.wtns"]
                continue
            for name, place in PLACES.items():
                argument = argument.replace("{" + name + "}", place)
            found.append(argument)
        return found

    socket = command.daemon_socket
    return {
        "daemon": placed(command.daemon),
        "daemon_socket": f"{FOLDER}/{socket}" if socket and ":" not in socket else socket,
        "warm_up": placed(command.warm_up),
        "command": placed(command.command),
        "depends_on": command.depends_on,
    }


def _script(stage: dict[str, Any]) -> str:
    lines = ["#!/bin/sh", "# As the machine was told; the folder of the capsule is /work.", "set -eu", f"cd {FOLDER}"]
    lines.append("mkdir -p params witnesses proofs")
    if stage["daemon"]:
        lines += [f"{shlex.join(stage['daemon'])} &", "daemon=$!", "trap 'kill $daemon' EXIT"]
        if stage["daemon_socket"].startswith("/"):
            waits = f"while [ ! -S {shlex.quote(stage['daemon_socket'])} ]; do kill -0 $daemon; sleep 1; done"
            lines.append(waits)
    if stage["warm_up"]:
        lines.append(f"if [ -e params/warm-up.wtns ]; then {shlex.join(stage['warm_up'])}; fi")
    lines.append(shlex.join(stage["command"]))
    return "\n".join(lines) + "\n"


def _readme(run: Run, told: dict[str, Any], stage: str, indices: Sequence[int]) -> str:
    image, machine = told["image"], told["machine"]
    reference = image["reference"]
    gpus = machine.get("gpus") if isinstance(machine.get("gpus"), list) else []
    names = ", ".join(str(gpu.get("name", "")) for gpu in gpus if isinstance(gpu, dict)) or "no GPU"
    lines = [
        f"# Run {run.id[:8]} again",
        "",
        f"It ended as {run.state}: {told['outcome']['reason'] or 'no reason was given'}",
        f"It ran on {machine['provider']} machine {machine['machine_id'] or '(not told)'} with {names}.",
        "capsule.json has all that is known of it.",
        "",
        "## 1. Inputs",
        "",
        "They are named by hash and are not in this capsule. Put them where inputs.sha256 says, and check them:",
        "",
        "    sha256sum -c inputs.sha256",
        "",
        *_made_here(run, indices),
        "## 2. Run",
        "",
    ]
    if reference:
        shell = "docker run --rm --gpus all --user 0 --entrypoint /bin/sh --env-file env.list"
        lines += [f'    {shell} -v "$PWD":{FOLDER} {shlex.quote(reference)} {FOLDER}/run.sh']
        if image["expected"] and image["ran"] and not image["expected"].endswith(image["ran"]):
            lines += ["", f"Another image ran than was asked for ({image['expected']})."]
    else:
        lines += [
            "It ran outside of an image. With `provefleet` of the same version on PATH, and this folder as /work:"
        ]
        lines += ["", f"    sh {FOLDER}/run.sh"]
    lines += ["", f"run.sh does what the stage `{stage}` did, with the same arguments. Secrets are masked or left out."]
    return "\n".join(lines) + "\n"


def _list(indices: Sequence[int]) -> str:
    """As a shell's `for` takes them; all of a run are a row of numbers, as a rule a long one."""
    first, last = indices[0], indices[-1]
    is_row = len(indices) > 1 and list(indices) == list(range(first, last + 1))
    return f"$(seq {first} {last})" if is_row else " ".join(map(str, indices))


def _made_here(run: Run, indices: Sequence[int]) -> list[str]:
    """A built-in circuit's inputs were random and are gone: how to make others like them."""
    if not run.inputs.get("circuit"):
        return []
    name, size, curve = parse_circuit(str(run.inputs["circuit"]))
    return [
        "Its circuit is built in, and witnesses are deleted after a run. Others like them, with other hashes:",
        "",
        "    mkdir -p params witnesses",
        f"    for i in {_list(indices)}; do",
        f"      provefleet circuit {name} {size} circuit.r1cs witnesses/$i.wtns --curve {curve} --input $((3 + i))",
        "    done",
        "    provefleet setup --insecure circuit.r1cs params/key.zkey",
        "",
    ]


def _zip(files: dict[str, bytes]) -> bytes:
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, "SHA256SUMS": sums.encode()}.items():
            info = zipfile.ZipInfo(name, _FIXED_DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            archive.writestr(info, data)
    return out.getvalue()
