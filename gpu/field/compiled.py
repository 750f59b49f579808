"""How kernels are compiled: one decorator, and a cache folder that changes whenever any kernel source or the
instruction set changes.

numba's own cache looks only at the file of the function it compiles, so an edit of an emitter would go
unnoticed; here the folder is named after the contents of every source of `gpu` that ends up in machine code.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic as _numba_intrinsic

from gpu.field import isa

_KERNEL_FOLDERS = ("field", "curve", "ntt", "msm", "pairing")


def sources_digest() -> str:
    """Sixteen hex digits over the kernel sources and the compiler's version."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for folder in _KERNEL_FOLDERS:
        for source in sorted((root / folder).glob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """NUMBA_CACHE_DIR, else the user's cache folder, else a private one under the temporary folder."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    private = Path(tempfile.gettempdir()) / f"provefleet-numba-{os.getuid()}"
    for base in (Path(configured) if configured else Path(home) / "provefleet" / "numba", private):
        folder = base / f"{DIGEST}-{isa.target_name()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The cache holds pickles: one that somebody else can write to would run their code.
            if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
                return folder
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="provefleet-numba-"))


DIGEST = sources_digest()
_config: Any = numba.config
_config.CACHE_DIR = str(_cache_folder())

# Kernels call an intrinsic without its first parameter, which a type checker can't know.
intrinsic: Any = _numba_intrinsic


_CALLBACKS: list[Any] = []  # their machine code lives as long as they do


class _KernelCache(FunctionCache):
    """numba's cache, less what it does before each look: importing all that only a compilation needs, 0.2 s of
    every process. A kernel that is not in the cache is compiled, and the compiler then does that itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # compiled code calls it to take its arrays apart
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def kernel(function: Any) -> Any:
    """Compiles a module-level function for each set of argument types, cached, without the GIL.

    Parallelism comes from threads that call kernels, never from numba's `parallel`, which costs seconds to
    compile.
    """
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = _KernelCache(function)
    return dispatcher


def callback(function: Any, signature: Any) -> int:
    """The address of a module-level function compiled for C's calling convention, cached. It stays valid for as long
    as the process.
    """
    made: Any = CFunc(function, normalize_signature(signature), locals={}, options={})
    made._cache = _KernelCache(function)
    made.compile()
    _CALLBACKS.append(made)
    return int(made.address)
