"""Which instructions the kernels may use: what this CPU has, and what numba was told to compile for.

LLVM aborts the process when it meets an IFMA instruction for a CPU without it, so the question is answered
here before anything is emitted. NUMBA_CPU_NAME and NUMBA_CPU_FEATURES count: they decide what LLVM compiles
for, which need not be what the CPU can run.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numba

IFMA_FEATURES = ("avx512f", "avx512dq", "avx512vl", "avx512ifma")
_EMULATED = "PROVEFLEET_IFMA_EMULATED"
_config: Any = numba.config


@cache
def emulated() -> bool:
    """Whether the vector back end's few special instructions are written with ordinary ones, for any CPU.

    For tests only, by PROVEFLEET_IFMA_EMULATED=1: it is many times slower than the scalar back end.
    """
    return os.environ.get(_EMULATED) == "1"


def vector_name() -> str:
    """The name of the vector instruction set in symbols and in the cache folder."""
    return "ifma_emulated" if emulated() else "ifma"


def scalar_name() -> str:
    """The name of the instructions that one element at a time is calculated with."""
    return "scalar_adx" if adx() else "scalar"


def target_name() -> str:
    """What numba compiles for, in a word fit for a folder's name."""
    name = _config.CPU_NAME or llvm.get_host_cpu_name() or "generic"
    return f"{name}-{vector_name() if vector_missing() is None else 'scalar'}"


@cache
def vector_missing() -> str | None:
    """Why the vector back end can't be compiled, in a few words; None when it can.

    A feature counts only where it is named: a list of features that leaves one out says nothing about what
    LLVM assumes.
    """
    if emulated():
        return None
    configured = _config.CPU_FEATURES
    if configured is not None:
        told = set(configured.split(","))
        missing = [name for name in IFMA_FEATURES if f"+{name}" not in told]
        return f"NUMBA_CPU_FEATURES names no {', no '.join(missing)}" if missing else None
    if not _config.ENABLE_AVX:
        return "NUMBA_ENABLE_AVX=0 rules AVX out"
    return host_missing()


@cache
def adx() -> bool:
    """Whether kernels may use MULX, ADCX and ADOX: by numba's settings where there are any, else by this CPU."""
    wanted = ("adx", "bmi2")
    configured = _config.CPU_FEATURES
    if configured is not None:
        found = all(f"+{name}" in configured.split(",") for name in wanted)
    else:
        found = all(_host_features().get(name) for name in wanted)
    if found:
        llvm.initialize_native_asmparser()  # numba doesn't; without it LLVM aborts at the first assembly
    return found


def _host_features() -> dict[str, bool]:
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM can't tell on this architecture
        return {}


@cache
def host_missing() -> str | None:
    """Why this CPU can't run the vector back end, in a few words; None when it can."""
    if emulated():
        return None
    features = _host_features()
    missing = [name for name in IFMA_FEATURES if not features.get(name)]
    return None if not missing else f"this CPU has no AVX-512 IFMA (missing: {', '.join(missing)})"
