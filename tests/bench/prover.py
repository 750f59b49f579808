"""`make bench-prover`: what the prover takes beside its peers, in one run, as ratios.

Each row runs both sides in turn and compares medians; a ratio counts how many times faster we were. Nothing here
asserts a time: the table is the result, and `build/bench/prover.json` keeps every single measurement. `ROUNDS=n`
repeats more often, `FULL=1` adds 2^20 constraints, `ROWS=msm,ntt` runs a few.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench import calls, inputs, peers
from tests.bench.inputs import PROVEFLEET, Circuit
from tests.bench.timing import BenchFailed, Measured, Run, cpu_model, process, side_by_side

CPUS = 2
ROUNDS = int(os.environ.get("ROUNDS", "3"))


@dataclass(frozen=True)
class Row:
    """One line of the table; `measured` holds every run behind it."""

    work: str
    ours: str
    peer: str
    figure: str
    target: str
    met: bool
    measured: dict[str, object] = field(default_factory=dict)

    @classmethod
    def speed(cls, work: str, ours: Measured, peer: str, theirs: Measured, target: float) -> Row:
        ratio = theirs.median / ours.median
        runs = {"ours": asdict(ours), "peer": asdict(theirs)}
        told = (_seconds(ours.median), f"{peer} {_seconds(theirs.median)}")
        return cls(work, *told, f"{ratio:.1f}x", f"{target:g}x", ratio >= target, runs)

    @classmethod
    def limit(cls, work: str, ours: Measured, value: float, unit: str, limit: float) -> Row:
        figure = f"{value:.2f} {unit}"
        return cls(work, figure, "", figure, f"<= {limit:g} {unit}", value <= limit, {"ours": asdict(ours)})


def _seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def _prove(circuit: Circuit, folder: Path, backend: str = "auto", **environment: str) -> Run:
    proof, public = folder / "proof.json", folder / "public.json"

    def run() -> tuple[float, int]:
        return process(
            PROVEFLEET, "prove", circuit.zkey, circuit.wtns, proof, public,
            PROVEFLEET_PROVER_BACKEND=backend, **environment,
        )  # fmt: skip

    run()  # compiles kernels and fills the page cache, for the peers as well
    if not peers.snarkjs_accepts(circuit, public, proof):
        raise BenchFailed(f"snarkjs rejects our proof of {circuit.zkey}")
    return run


def whole_2_17(folder: Path) -> list[Row]:
    circuit = inputs.chain("bn254", 17)
    runs = {
        "auto": _prove(circuit, folder),
        "scalar": _prove(circuit, folder, "scalar"),
        "snarkjs": lambda: peers.snarkjs_prove(circuit, folder),
        "groth16py": lambda: peers.groth16py_prove(circuit),
    }
    took = side_by_side(runs, ROUNDS)
    work = "prove, whole process, BN254 chain 2^17"
    return [
        Row.speed(work, took["auto"], "snarkjs", took["snarkjs"], 10),
        Row.speed(work, took["auto"], "groth16py", took["groth16py"], 4),
        Row.speed(f"{work}, scalar back end", took["scalar"], "groth16py", took["groth16py"], 1.5),
    ]


def whole_2_14(folder: Path) -> list[Row]:
    return _against_snarkjs("bn254", 14, 5, folder)


def whole_bls_2_16(folder: Path) -> list[Row]:
    return _against_snarkjs("bls12381", 16, 10, folder)


def _against_snarkjs(curve: str, log_domain: int, target: float, folder: Path) -> list[Row]:
    circuit = inputs.chain(curve, log_domain)
    ours = _prove(circuit, folder)
    took = side_by_side({"ours": ours, "snarkjs": lambda: peers.snarkjs_prove(circuit, folder)}, ROUNDS)
    work = f"prove, whole process, {curve} chain 2^{log_domain}"
    return [Row.speed(work, took["ours"], "snarkjs", took["snarkjs"], target)]


def msm(folder: Path) -> list[Row]:
    took = side_by_side(calls.msm_bls12381(16), ROUNDS)
    return [Row.speed("G1 MSM BLS12-381 2^16, 1 thread", took["ours"], "py_arkworks", took["arkworks"], 3.5)]


def ntt(folder: Path) -> list[Row]:
    ours = side_by_side(calls.ntt_bls12381(18, CPUS), 3 * ROUNDS)["ours"]
    theirs = peers.ffjavascript_fft("bls12381", 18, 3 * ROUNDS)
    return [Row.speed("NTT BLS12-381 Fr 2^18, 2 threads", ours, "ffjavascript", theirs, 30)]


def batch(folder: Path) -> list[Row]:
    took = side_by_side(calls.verify_1000(inputs.chain("bn254", 14)), ROUNDS)
    return [Row.speed("verify 1,000 proofs of one key, BN254", took["ours"], "py_ecc (5, x200)", took["py_ecc"], 20)]


def start(folder: Path) -> list[Row]:
    """A key of 64 constraints proves in no time: what is left is starting, loading and (cold) compiling."""
    circuit = inputs.chain("bn254", 7)
    warm = side_by_side({"warm": _prove(circuit, folder)}, ROUNDS)["warm"]

    def run_cold() -> tuple[float, int]:
        with tempfile.TemporaryDirectory() as cache:
            target = (folder / "c.json", folder / "cp.json")
            return process(PROVEFLEET, "prove", circuit.zkey, circuit.wtns, *target, NUMBA_CACHE_DIR=cache)

    cold = side_by_side({"cold": run_cold}, 1)["cold"]
    return [
        Row.limit("first run on a machine (compiles), BN254", cold, cold.median, "s", 20),
        Row.limit("start, later runs", warm, warm.median, "s", 1),
    ]


def whole_2_20(folder: Path) -> list[Row]:
    circuit = inputs.chain("bn254", 20)
    runs = {"ours": _prove(circuit, folder), "snarkjs": lambda: peers.snarkjs_prove(circuit, folder)}
    took = side_by_side(runs, 1)
    work = "prove, whole process, bn254 chain 2^20"
    peak = took["ours"].peak_bytes / (1 << 30)
    return [
        Row.speed(work, took["ours"], "snarkjs", took["snarkjs"], 10),
        Row.limit(f"peak memory, {work}", took["ours"], peak, "GiB", 2),
    ]


ROWS: dict[str, Callable[[Path], list[Row]]] = {
    each.__name__: each for each in (start, msm, ntt, batch, whole_2_14, whole_bls_2_16, whole_2_17, whole_2_20)
}


def table(rows: list[Row]) -> str:
    cells = [("work", "ours", "peer", "figure", "target", "")]
    cells += [(r.work, r.ours, r.peer, r.figure, r.target, "met" if r.met else "short") for r in rows]
    widths = [max(len(cell[i]) for cell in cells) for i in range(6)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True)).rstrip() for cell in cells
    )


def main() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])  # peers too: they count the CPUs they may use
    chosen = os.environ.get("ROWS", "").split(",") if os.environ.get("ROWS") else list(ROWS)
    if not os.environ.get("FULL") and "ROWS" not in os.environ:
        chosen.remove("whole_2_20")
    facts = {"cpu": cpu_model(), "cpus": CPUS, "load": os.getloadavg()[0], "backend": calls.backend(), "rounds": ROUNDS}
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    rows: list[Row] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            print(f"running {name}", file=sys.stderr, flush=True)
            try:
                rows += ROWS[name](Path(folder))
            except BenchFailed as error:  # one peer that can't run must not cost the other rows
                print(error, file=sys.stderr, flush=True)
                failed.append(name)
    print(table(rows))
    kept = inputs.FOLDER / "prover.json"
    kept.write_text(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=1))
    print(f"every measurement: {kept}")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}; the reasons are above")


if __name__ == "__main__":
    main()
