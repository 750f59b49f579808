"""What kernels are made from, as a digest: tells stale kernels from fresh ones without loading a compiler."""

from __future__ import annotations

import hashlib
from pathlib import Path

ARCHITECTURES = ("sm_86", "sm_89", "sm_90", "sm_120")
"""RTX 30, RTX 40 and L40, H100 and H200, RTX 50 and RTX PRO Blackwell."""

PTX = "compute_86"
"""What newer GPUs run: their driver compiles it."""

MANIFEST = "manifest.json"
FORMAT = 1

_SOURCES = ("curve/*.py", "field/*.py", "msm/*.py", "ntt/*.py", "cuda/compile.py", "cuda/registry.py")


def sources_digest() -> str:
    """Sixteen hex digits over every source that may end up in a kernel."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for source in sorted(root.glob(pattern)):
            digest.update(f"{source.relative_to(root)}\0".encode() + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
