"""From PTX text to machine code of this CPU, kept in pytest's cache folder from run to run."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tests.gpu.ptx.flow import Barrier
from tests.gpu.ptx.lower import FunctionText, Layout, quoted, variables_of
from tests.gpu.ptx.parse import Unsupported, Variable, parse
from tests.gpu.ptx.support import MAY_ACCESS, run_loop

_FOLDER = Path(__file__).resolve().parents[3] / ".pytest_cache" / "ptx"


@dataclass(frozen=True)
class KernelCode:
    """`run` is the loop of `support`; `barriers` by their number."""

    run: Callable[..., None]
    n_params: int
    max_threads: int | None
    shared_bytes: int
    local_bytes: int
    n_saved: int
    barriers: dict[int, Barrier]
    messages: list[str]


@dataclass(frozen=True)
class Program:
    """`variables`: bytes and first bytes of each variable of the module."""

    kernels: dict[str, KernelCode]
    variables: list[tuple[int, bytes]]
    engine: Any


def program_of(ptx_text: str) -> Program:
    """The program of a PTX module."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    entry = _FOLDER / _digest(ptx_text)
    facts_file, object_file = entry.with_suffix(".json"), entry.with_suffix(".o")
    if not facts_file.exists():
        text, facts = translate(ptx_text)
        code = _machine().emit_object(_verified(text))
        _FOLDER.mkdir(parents=True, exist_ok=True)
        _write(object_file, code)
        _write(facts_file, json.dumps(facts).encode())
    return _load(object_file.read_bytes(), json.loads(facts_file.read_text()))


def translate(ptx_text: str) -> tuple[str, dict[str, Any]]:
    """LLVM text, and what a launch needs to know about it."""
    functions, variables = parse(ptx_text)
    shared = [variable for variable in variables if variable.space == "shared"]
    shared += [variable for _, variable in variables_of(functions, "shared")]
    locals_ = [Variable(f"{name}/{v.name}", v.space, v.align, v.size) for name, v in variables_of(functions, "local")]
    module_wide = [variable for variable in variables if variable.space in ("const", "global")]
    shared_at, shared_bytes = _placed(shared)
    local_at, local_bytes = _placed(locals_)
    slots = {variable.name: i for i, variable in enumerate(module_wide)}
    layout = Layout(shared_at, local_at, slots, {function.name: function for function in functions})
    messages: list[str] = []
    texts = [FunctionText(function, layout, messages) for function in functions]
    kernels = {}
    loops = []
    for function, lowered in zip(functions, texts, strict=True):
        if function.is_kernel:
            loops.append(run_loop(function.name, quoted(function.name)))
            kernels[function.name] = {
                "n_params": len(function.params),
                "max_threads": function.max_threads,
                "n_saved": lowered.n_saved,
                "barriers": [[barrier.number, barrier.text, barrier.warp] for barrier in lowered.barriers],
            }
    facts = {
        "kernels": kernels,
        "variables": [[variable.size, variable.initial.hex()] for variable in module_wide],
        "messages": messages,
        "shared_bytes": shared_bytes,
        "local_bytes": local_bytes,
    }
    return "\n".join([MAY_ACCESS, *(lowered.text for lowered in texts), *loops]), facts


def _placed(variables: list[Variable]) -> tuple[dict[str, int], int]:
    """Offsets of variables laid one after the other, and the bytes of all."""
    offsets, at = {}, 0
    for variable in variables:
        at = -(-at // variable.align) * variable.align
        if variable.align > 16:
            raise Unsupported(f"{variable.name} is aligned to {variable.align}")
        offsets[variable.name] = at
        at += variable.size
    return offsets, at


def _machine() -> Any:
    """Unoptimised: kernels are long, and run for a moment."""
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(opt=0, jit=True, reloc="default", codemodel="jitdefault")


def _verified(text: str) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    return module


def _load(code: bytes, facts: dict[str, Any]) -> Program:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 5)
    kernels = {
        symbol: KernelCode(
            signature(engine.get_function_address(f"run_{symbol}")),
            one["n_params"],
            one["max_threads"],
            facts["shared_bytes"],
            facts["local_bytes"],
            one["n_saved"],
            {number: Barrier("", text, number, warp) for number, text, warp in one["barriers"]},
            facts["messages"],
        )
        for symbol, one in facts["kernels"].items()
    }
    return Program(kernels, [(size, bytes.fromhex(initial)) for size, initial in facts["variables"]], engine)


def _digest(ptx_text: str) -> str:
    digest = hashlib.sha256(f"{llvmlite.__version__} {llvm.get_host_cpu_name()}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return hashlib.sha256(digest.digest() + ptx_text.encode()).hexdigest()[:32]


def _write(path: Path, data: bytes) -> None:
    """Other test processes may write the same file."""
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
