"""python -m gpu.cuda.check [--json FILE] [--step NAME ...] [--patience X]: is the prover right here, and how fast?

At most five minutes: versions, field multiplications, awkward sums, transforms, sums, whole proofs, GPU processes. Each
step runs in a process of its own within a time limit, the cheapest first, so that a hung or lost GPU costs one step.
Prints a table, writes every figure to one JSON file, and ends with 0 when every answer was right, else with 1.

It needs the sources, numpy, numba, cuda-bindings and the compiled kernels. To check on a machine without a compiler,
compile where there is one and carry the folder along (a few MB):

    python -m gpu.cuda.build build/kernels --arch sm_90           here; sm_90 is the H200
    PROVEFLEET_CUDA_KERNELS=build/kernels python -m gpu.cuda.check     there

Folders that git ignores, as `build/`, must be named to whatever copies the checkout.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpu.cuda.check import arithmetic, proofs, sums
from gpu.cuda.check.setting import Figures, Setting, Sizes, Step, Wrong
from gpu.cuda.presence import look_for_gpus
from gpu.cuda.process import COMMAND
from gpu.errors import ProverError
from gpu.files import write_atomically

TOTAL_S = 290
STEPS: dict[str, tuple[int, Step]] = {
    "versions": (30, arithmetic.versions),
    "fields": (40, arithmetic.fields),
    "bad_cases": (60, sums.bad_cases),
    "transforms": (60, arithmetic.transforms),
    "sums": (90, sums.sums),
    "proofs": (90, proofs.proofs),
    "processes": (120, proofs.processes),
}
"""Seconds that a step may take, and the step."""


def real_setting(sizes: Sizes) -> Setting:
    from gpu.cuda.driver import CudaDevice
    from gpu.cuda.images import images_for

    return Setting(lambda: CudaDevice(images_for), COMMAND, sizes)


def run_step(name: str, setting: Setting) -> None:
    """Prints the step's result as one line of JSON."""
    result: Figures = {"passed": False}
    try:
        result = {"passed": True, "figures": STEPS[name][1](setting)}
    except (Wrong, ProverError) as error:
        result["error"] = str(error)
    except Exception as error:  # noqa: BLE001 - the other steps go on, and the table says it
        traceback.print_exc()
        result["error"] = repr(error)
    sys.stdout.write(json.dumps(result, default=str) + "\n")


def run_all(names: Sequence[str], command: Sequence[str], sizes: Sizes, patience: float) -> dict[str, Any]:
    """The results of the steps by name, each from a process that `command` and its name start."""
    end, results = time.monotonic() + TOTAL_S * patience, {}
    for name in names:
        begun = time.monotonic()
        limit = min(STEPS[name][0] * patience, end - begun)
        result: dict[str, Any] = {"passed": False, "error": "no time was left for it"}
        if limit > 1:
            arguments = [*command, "--run", name, "--sizes", json.dumps(dataclasses.asdict(sizes))]
            try:
                done = subprocess.run(arguments, stdout=subprocess.PIPE, timeout=limit, check=False, text=True)
                lines = done.stdout.splitlines()
                result = json.loads(lines[-1]) if lines else {"passed": False, "error": f"exit code {done.returncode}"}
            except subprocess.TimeoutExpired:
                result["error"] = f"not done after {limit:.0f} s"
        results[name] = {**result, "seconds": round(time.monotonic() - begun, 1)}
        sys.stdout.write(_table(name, results[name]))
        sys.stdout.flush()
    return results


def _table(name: str, result: dict[str, Any]) -> str:
    verdict = "right" if result["passed"] else f"FAILED: {result['error']}"
    lines = [f"{name:<12} {verdict}  ({result['seconds']} s)"]
    for key, value in result.get("figures", {}).items():
        if isinstance(value, dict):
            lines.append(f"    {key}")
            lines += [f"        {inner:<44} {number}" for inner, number in value.items()]
        else:
            lines.append(f"    {key:<48} {value}")
    return "\n".join(lines) + "\n"


def main(
    arguments: Sequence[str],
    command: Sequence[str] = (sys.executable, "-m", "gpu.cuda.check"),
    make_setting: Callable[[Sizes], Setting] = real_setting,
    look: Callable[[], None] = look_for_gpus,
    sizes: Sizes | None = None,
) -> int:
    """`command` runs this same function in another process, which calls `make_setting`; `look` refuses a machine
    without a GPU.
    """
    parser = argparse.ArgumentParser(prog="python -m gpu.cuda.check", description="Checks the prover on a GPU.")
    parser.add_argument("--json", type=Path, default=Path("gpu-check.json"), help="where the figures go")
    parser.add_argument("--step", action="append", choices=list(STEPS), help="only these (repeatable)")
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies every time limit")
    parser.add_argument("--run", choices=list(STEPS), help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="{}", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.run:
        run_step(chosen.run, make_setting(Sizes.from_json(json.loads(chosen.sizes))))
        return 0
    try:
        look()
    except ProverError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    results = run_all(chosen.step or list(STEPS), command, sizes or Sizes(), chosen.patience)
    passed = all(result["passed"] for result in results.values())
    write_atomically(chosen.json, (json.dumps({"passed": passed, "steps": results}, indent=1) + "\n").encode())
    sys.stdout.write(f"{'everything right' if passed else 'FAILED'}; figures in {chosen.json}\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
