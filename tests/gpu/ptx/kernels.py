"""The registered kernels as modules that run on this CPU, their PTX kept from run to run.

Whoever finds everything kept imports neither numba nor NVVM.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tests.gpu.ptx.machine import Module

_ROOT = Path(__file__).resolve().parents[3]
_FOLDER = _ROOT / ".pytest_cache" / "ptx-text"
_BEGIN = _ROOT / "gpu" / "cuda"


@cache
def module_of(symbol: str) -> Module:
    """The module with this kernel. KeyError for a symbol that is not registered."""
    return Module(ptx_text(symbol))


def ptx_text(symbol: str) -> str:
    """The kernel's PTX, as the build makes it."""
    return ptx_file(symbol).read_text()


def ptx_file(symbol: str) -> Path:
    """Where that lies, once it is compiled."""
    kept = _FOLDER / _digest() / f"{symbol}.ptx"
    if not kept.exists():
        from gpu.cuda.compile import ptx_of
        from gpu.cuda.registry import kernels

        text = ptx_of(kernels()[symbol])
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(kept)
    return kept


@cache
def symbols() -> list[str]:
    """Every registered kernel."""
    from gpu.cuda.registry import kernels

    return list(kernels())


@cache
def _digest() -> str:
    digest = hashlib.sha256(" ".join(version(name) for name in ("numba", "numba-cuda", "nvidia-nvvm")).encode())
    for source in sorted(_imported({_BEGIN / "compile.py", _BEGIN / "registry.py"})):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _imported(begin: set[Path]) -> set[Path]:
    """These files and all of ours that they import, or name in a string as a module."""
    found: set[Path] = set()
    left = list(begin)
    while left:
        source = left.pop()
        if source not in found:
            found.add(source)
            files = [_ROOT / f"{name.replace('.', '/')}.py" for name in _names(source)]
            left += [file for file in files if file.exists()]
    return found


def _names(source: Path) -> set[str]:
    """Whatever may be a module's name."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return {name for name in names if re.fullmatch(r"gpu(\.\w+)+", name)}
