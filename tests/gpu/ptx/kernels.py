"""The registered kernels as modules that run on this CPU, their PTX kept from run to run.

Whoever finds everything kept imports neither numba nor NVVM.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tests.gpu.ptx.machine import Module

_ROOT = Path(__file__).resolve().parents[3]
_FOLDER = _ROOT / ".pytest_cache" / "ptx-text"
_SOURCES = ("field/*.py", "curve/*.py", "ntt/*.py", "msm/*.py", "cuda/compile.py", "cuda/registry.py")


@cache
def module_of(symbol: str) -> Module:
    """The module with this kernel. KeyError for a symbol that is not registered."""
    return Module(_ptx_text(symbol))


def _ptx_text(symbol: str) -> str:
    kept = _FOLDER / _digest() / f"{symbol}.ptx"
    if not kept.exists():
        from gpu.cuda.compile import ptx_of
        from gpu.cuda.registry import kernels

        text = ptx_of(kernels()[symbol])
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(kept)
    return kept.read_text()


@cache
def _digest() -> str:
    digest = hashlib.sha256(" ".join(version(name) for name in ("numba", "numba-cuda", "nvidia-nvvm")).encode())
    for pattern in _SOURCES:
        for source in sorted((_ROOT / "gpu").glob(pattern)):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:32]
