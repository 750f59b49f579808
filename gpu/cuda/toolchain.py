"""ptxas and nvdisasm, as the wheels nvidia-cuda-nvcc and nvidia-cuda-nvdisasm bring them or as found in PATH."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpu.errors import Refused

_TIMEOUT_S = 300
_INSTALL = "install the compiler of the kernels: pip install 'provefleet[cuda-build]'"
_PACKAGES = ("numba", "numba-cuda", "nvidia-nvvm")


@dataclass(frozen=True)
class Figures:
    """What a kernel takes on one architecture. Bytes are those of a thread, shared ones those of a block."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int


@cache
def tool(name: str) -> Path:
    """The program's path; Refused where there is none."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or [] if spec else []:
        for found in sorted(Path(folder).glob(f"*/bin/{name}")):
            return found
    in_path = shutil.which(name)
    if in_path is None:
        raise Refused(f"no {name} here; {_INSTALL}")
    return Path(in_path)


def versions() -> dict[str, str]:
    """Name and version of everything that decides what a kernel's machine code is. Refused where a part is missing."""
    try:
        found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    except importlib.metadata.PackageNotFoundError as error:
        raise Refused(f"{error.name} is not installed; {_INSTALL}") from None
    release = re.search(r"release [\d.]+, V([\d.]+)", _run([tool("ptxas"), "--version"]))
    return found | {"ptxas": release[1] if release else "unknown"}


def assemble(ptx: str, symbol: str, architecture: str) -> tuple[bytes, Figures]:
    """The cubin of one PTX module, and what its kernel `symbol` takes."""
    with tempfile.TemporaryDirectory() as folder:
        # The names end up in the cubin: the same ones every time.
        (Path(folder) / "kernel.ptx").write_text(ptx)
        command: list[str | Path] = [tool("ptxas"), "-v", f"-arch={architecture}", "kernel.ptx", "-o", "kernel.cubin"]
        log = _run(command, folder)
        return (Path(folder) / "kernel.cubin").read_bytes(), figures(log, symbol)


def figures(log: str, symbol: str) -> Figures:
    """What `ptxas -v` says; spills are those of the kernel and of the functions that it calls."""
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    properties = rf"Function properties for {symbol}\s+(\d+) bytes stack frame.*?Used (\d+) registers([^\n]*)"
    own = re.search(rf"entry function '{symbol}'.*?{properties}", log, re.DOTALL)
    if own is None:
        raise Refused(f"ptxas says nothing about {symbol}: {log[:200]}")
    stack = re.search(r"(\d+) bytes cumulative stack size", own[3])
    shared = re.search(r"(\d+) bytes smem", own[3])
    return Figures(
        int(own[2]),
        sum(int(store) for store, _ in spills),
        sum(int(load) for _, load in spills),
        int(stack[1]) if stack else int(own[1]),
        int(shared[1]) if shared else 0,
    )


def instructions(cubin: bytes) -> Counter[str]:
    """How often each machine instruction stands in a cubin, by its name with `.WIDE` and `.HI` kept."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cubin").write_bytes(cubin)
        listing = _run([tool("nvdisasm"), "-c", "kernel.cubin"], folder)
    names = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", listing, re.MULTILINE)
    counts: Counter[str] = Counter()
    for name in names:
        kept = next((part for part in ("WIDE", "HI") if part in name.split(".")), None)
        counts[name.split(".")[0] + (f".{kept}" if kept else "")] += 1
    return counts


def _run(command: Sequence[str | Path], folder: str | None = None) -> str:
    """Output and errors of a tool; Refused, with its first line of complaint, where it fails."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"{name} took longer than {_TIMEOUT_S} s; is this machine overloaded?") from None
    if done.returncode:
        complaint = done.stdout.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Refused(f"{name} failed: {complaint[0]}")
    return done.stdout
