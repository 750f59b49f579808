"""The prover's commands. Heavy modules are imported by the command that needs them, never at the top."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from gpu.errors import ProofRejected, ProverError

_FILE = click.Path(dir_okay=False)


def _refusing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turns a refusal of ours into exit code 1 and one line on stderr."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except ProofRejected as error:
            raise click.ClickException(f"proof rejected: {_one_line(error)}") from error
        except ProverError as error:
            raise click.ClickException(_one_line(error)) from error
        except MemoryError as error:
            raise click.ClickException("out of memory; use a machine with more, or a smaller circuit") from error

    return wrapped


def _one_line(error: ProverError) -> str:
    return " ".join(str(error).split())


@click.command()
@click.argument("zkey", type=_FILE)
@click.argument("wtns", type=_FILE)
@click.argument("proof", type=_FILE)
@click.argument("public", type=_FILE)
@click.option("--insecure-seed", help="Repeatable randomness, for tests: who knows the seed learns the witness.")
@click.option("--verbose", "-v", is_flag=True, help="Say on stderr which back end proved, and what took how long.")
@_refusing
def prove(zkey: str, wtns: str, proof: str, public: str, insecure_seed: str | None, verbose: bool) -> None:
    """Make a Groth16 proof from snarkjs' KEY.zkey and WITNESS.wtns."""
    from contextlib import closing

    from gpu.cut_short import explain_bus_errors
    from gpu.files import to_json, write_together
    from gpu.groth16.engine import Engine

    explain_bus_errors()
    with closing(Engine()) as engine:
        done = engine.prove(zkey, wtns, insecure_seed)
        write_together({proof: to_json(done.proof), public: to_json(done.public)})
        if verbose:
            phases = ", ".join(f"{phase} {ms:.0f} ms" for phase, ms in done.timings_ms.items() if phase != "queue")
            click.echo(f"back end {engine.backend.name}, {engine.threads} threads: {phases}", err=True)


@click.command()
@click.argument("vkey", type=_FILE)
@click.argument("public", type=_FILE, required=False)
@click.argument("proof", type=_FILE, required=False)
@click.option("--batch", metavar="DIR", help="Check all DIR/<i>/public.json and proof.json (bench --out) at once.")
@_refusing
def verify(vkey: str, public: str | None, proof: str | None, batch: str | None) -> None:
    """Check PROOF.json against VKEY.json and PUBLIC.json; prints OK, or says why not and exits with 1.

    With --batch DIR, many proofs of one key: a line for each that is rejected, and exit code 1 if any is.
    """
    from gpu import verifying

    if batch is not None and public is None:
        verifying.verify_folder(vkey, batch)
    elif batch is None and public is not None and proof is not None:
        verifying.verify_one(vkey, public, proof)
    else:
        raise click.UsageError("give either PUBLIC.json and PROOF.json, or --batch DIR")


@click.command()
@click.argument("zkey", type=_FILE)
@click.argument("vkey", type=_FILE)
@_refusing
def vkey(zkey: str, vkey: str) -> None:
    """Write the verification key of KEY.zkey as snarkjs does."""
    from gpu.files import write_json
    from gpu.groth16.formats import vkey_from_zkey

    write_json(vkey, vkey_from_zkey(zkey))


@click.command()
@click.argument("r1cs", type=_FILE)
@click.argument("zkey", type=_FILE)
@click.option("--insecure", is_flag=True, help="Say that you know: who runs this can forge proofs for the key.")
@_refusing
def setup(r1cs: str, zkey: str, insecure: bool) -> None:
    """Make a development key for CIRCUIT.r1cs in seconds, for benchmarks and tests only."""
    from gpu.errors import Refused

    if not insecure:
        raise Refused(
            "setup makes a key whose secret this machine knows, so that it could forge proofs; for tests and "
            "benchmarks add --insecure, for real use take a ceremony (snarkjs powersoftau and zkey contribute)"
        )
    from gpu.groth16.setup import write_development_key

    write_development_key(r1cs, zkey)


@click.command()
@click.argument("wasm", type=_FILE)
@click.argument("inputs", type=_FILE)
@click.argument("wtns", type=_FILE)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Processor seconds that the program may take; by default 4, and 100 microseconds for each value of the "
    "witness, at most 600.",
)
@_refusing
def witness(wasm: str, inputs: str, wtns: str, timeout: float | None) -> None:
    """Make a witness with circom's program CIRCUIT.wasm from INPUTS.json, as snarkjs does.

    The program runs in a sandbox and can reach nothing of this machine. What the circuit logs is printed.
    """
    from gpu.witness.calculate import write_witness

    write_witness(wasm, inputs, wtns, timeout, click.echo)


@click.command()
@click.argument("kind", type=click.Choice(["chain", "merkle"]))
@click.argument("n", type=click.IntRange(1))
@click.argument("r1cs", type=_FILE)
@click.argument("wtns", type=_FILE)
@click.option("--curve", type=click.Choice(["bn254", "bls12381"]), default="bn254", show_default=True)
@click.option("--input", "x", type=int, default=3, show_default=True, help="Another input, another witness.")
@click.option("--arity", type=click.Choice([2, 4, 8]), default=8, show_default=True, help="Of merkle's tree.")
@_refusing
def circuit(kind: str, n: int, r1cs: str, wtns: str, curve: str, x: int, arity: int) -> None:
    """Write a benchmark circuit of about N constraints and a witness for it.

    chain: x -> x^2 + i, N times over, every value of full size; N constraints exactly.

    merkle: Poseidon inclusion proofs, the shape of a storage proof: as many whole ones, in a tree of 2^30
    leaves, as N constraints hold (some 4,900 each); for a smaller N one proof in a lower tree, at least
    one level (some 500). Prints what it made.
    """
    from gpu.circuits import chain, merkle

    if kind == "chain":
        chain.write_r1cs(n, curve, r1cs)
        chain.write_wtns(n, curve, x, wtns)
    else:
        merkle.write_r1cs(n, curve, r1cs, arity)
        merkle.write_wtns(n, curve, x, wtns, arity)
        click.echo(merkle.describe(n, curve, arity))


@click.command()
@click.option("--bind", metavar="ADDR", help="Listen on 127.0.0.1:PORT (0: any free port), with a bearer token.")
@click.option("--socket", "path", type=_FILE, help="Listen on this unix socket, mode 0600.")
@click.option("--partition-workers", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option(
    "--key-memory-mib", type=click.IntRange(1), help="Memory for resident keys; default half of what there is."
)
@click.option(
    "--deadline-s", type=click.FloatRange(min=0, min_open=True), help="For proofs whose request names no deadline."
)
@click.option("--drain-s", type=click.FloatRange(min=0), help="How long SIGTERM waits for proofs; default for all.")
@click.option("--parent-pid", type=int, hidden=True, help="End with this process, whatever ends it.")
@_refusing
def serve(
    bind: str | None,
    path: str | None,
    partition_workers: int,
    key_memory_mib: int | None,
    deadline_s: float | None,
    drain_s: float | None,
    parent_pid: int | None,
) -> None:
    """Keep keys loaded and prove on request, over a private unix socket or loopback HTTP.

    PARTITION_WORKERS witnesses are made ready while others are proved. The token is PROVEFLEET_DAEMON_TOKEN, or a
    new one that is printed. See docs/daemon.md.
    """
    import os
    import secrets

    if (bind is None) == (path is None):
        raise click.UsageError("give either --bind 127.0.0.1:PORT or --socket PATH")
    if parent_pid is not None:
        from gpu.lifeline import end_with_parent

        end_with_parent(parent_pid)
    from gpu.cut_short import explain_bus_errors
    from gpu.daemon import listen, run
    from gpu.errors import Refused
    from gpu.groth16.engine import Engine
    from gpu.service import Service

    given = os.environ.get("PROVEFLEET_DAEMON_TOKEN")
    token = given or secrets.token_urlsafe(32)
    budget = key_memory_mib << 20 if key_memory_mib else None
    explain_bus_errors()
    service = Service(Engine(key_budget=budget), partition_workers, deadline_s)
    server, url = listen(service, bind, path, token)

    def announce() -> None:
        click.echo(f"listening on {url}")
        if bind is not None and given is None:
            click.echo(f"token {token}")

    if not run(server, announce, drain_s):
        raise Refused("the daemon was stopped before every proof was done; the rest was cancelled")


@click.command()
@click.option("--zkey", required=True, type=_FILE)
@click.option(
    "--wtns",
    required=True,
    multiple=True,
    type=_FILE,
    help="Repeat for several; proof i takes witness i mod their number.",
)
@click.option("--proofs", type=click.IntRange(1), default=10, show_default=True)
@click.option("--concurrency", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option("--partition-workers", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option("--min-proofs-per-hour", type=click.FloatRange(min=0), help="Exit with 1 when the rate is lower.")
@click.option("--no-early-stop", is_flag=True, help="Make all N even when the rate is surely above or below it.")
@click.option("--deadline-s", type=click.FloatRange(min=0, min_open=True), help="For each proof; late ones fail.")
@click.option("--url", help="Use this daemon (unix:/PATH or http://127.0.0.1:PORT) instead of starting one.")
@click.option("--out", type=click.Path(file_okay=False), help="Write each proof to OUT/<i>/.")
@click.option("--progress", type=_FILE, help="Append one JSON line an event to this file.")
@click.option("--daemon-log", type=_FILE, help="Where the own daemon's log goes; default a temporary file.")
@click.option("--no-warm-up", is_flag=True, help="Do not make one uncounted proof first.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on stdout, the rest on stderr.")
@_refusing
def bench(**options: Any) -> None:
    """Make N proofs, C at a time, every one verified, and say how fast.

    Starts a daemon of its own unless --url names one. Stops early once the rate is surely above or below
    --min-proofs-per-hour. Exits with 1 when any proof failed, or when the rate is below. See docs/daemon.md.
    """
    from gpu.bench import run_bench
    from gpu.report import Options

    wtns = options.pop("wtns")
    warm_up, early_stop = not options.pop("no_warm_up"), not options.pop("no_early_stop")
    run_bench(Options(wtns=list(wtns), warm_up=warm_up, early_stop=early_stop, **options))
