"""A WebAssembly program under limits: its memory, its processor time, and nothing of this machine to reach.

A program can call only the functions given to it here; there is no WASI. Whatever goes wrong inside becomes one
of our errors.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wasmtime

from gpu import memory
from gpu.errors import BadFile, DeadlineExceeded, OutOfMemory, ProverError

_TODO = "compile the circuit again (circom --wasm)"
_MAX_FILE = 1 << 29  # a compiler takes some 50 times the program's size in memory
_PAGE = 1 << 16
_TICK_S = 0.05
_STACK = 2 << 20  # JavaScript engines give about 1 MiB
_MAX_TABLE = 1 << 20

Host = Callable[..., None]


class Program:
    """One `.wasm` file, compiled, and then instantiated once.

    A context manager: a thread watches the clock while it is open. `path` is the file's, for messages.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        config = wasmtime.Config()
        config.epoch_interruption = True
        config.max_wasm_stack = _STACK
        config.wasm_threads = False
        config.wasm_memory64 = False
        self.engine = wasmtime.Engine(config)
        self.store = wasmtime.Store(self.engine)
        self._limit_bytes = min(memory.limit_bytes() // 2, 4 << 30)
        self.store.set_limits(
            memory_size=self._limit_bytes, table_elements=_MAX_TABLE, instances=3, tables=4, memories=3
        )
        self.store.set_epoch_deadline(1)
        self._limit_s = 0.0
        self._exports: Any = None
        self._module = self._compile()
        self._begun = time.process_time()
        self._closed = threading.Event()
        self._clock = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Program:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._clock.join()

    def bad(self, why: str, section: str = "program", todo: str = _TODO) -> BadFile:
        return BadFile(self.path, section, why, todo)

    def allow(self, seconds: float) -> None:
        """How much processor time it may take in all, from when it was compiled."""
        self._limit_s = seconds

    def _compile(self) -> wasmtime.Module:
        try:
            if self.path.stat().st_size > _MAX_FILE:
                raise self.bad(f"is larger than {_MAX_FILE >> 20} MiB")
            raw = self.path.read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise self.bad(f"cannot be read: {why}", "file", "check the path and its permissions") from error
        if not raw.startswith(b"\0asm"):
            raise self.bad("is not WebAssembly: it does not begin with \\0asm", "header")
        try:
            return wasmtime.Module(self.engine, raw)
        except wasmtime.WasmtimeError as error:
            raise self.bad(f"is not valid WebAssembly: {_brief(error)}") from error

    def imports_memory(self) -> bool:
        """Whether the program wants a memory from outside, as circom 1's do."""
        return any(isinstance(wanted.type, wasmtime.MemoryType) for wanted in self._module.imports)

    def has(self, export: str) -> bool:
        return any(found.name == export for found in self._module.exports)

    def make_memory(self, pages: int) -> wasmtime.Memory:
        """A memory to give to the program: `pages` of 64 KiB, or as many as the limit allows."""
        pages = min(pages, self._limit_bytes // _PAGE)
        with self.running():
            return wasmtime.Memory(self.store, wasmtime.MemoryType(wasmtime.Limits(pages, pages)))

    def start(self, given: dict[str, Host | wasmtime.Memory]) -> None:
        """Makes the one instance, with what it imports from `given` ("module.name")."""
        links: list[Any] = []
        for wanted in self._module.imports:
            found = given.get(f"{wanted.module}.{wanted.name}")
            if isinstance(found, wasmtime.Memory):
                links.append(found)
            elif found is not None and isinstance(wanted.type, wasmtime.FuncType) and not wanted.type.results:
                links.append(wasmtime.Func(self.store, wanted.type, found))
            else:
                name = f"{wanted.module}.{wanted.name}"
                raise self.bad(f"imports {ascii(name)[:80]}, which no circom program needs")
        with self.running():
            self._exports = wasmtime.Instance(self.store, self._module, links).exports(self.store)

    def attach(self, text: str, imports: Sequence[str]) -> Any:
        """The exports of a module of ours (WebAssembly text), which imports functions of the program by name."""
        module = wasmtime.Module(self.engine, text)
        try:
            return wasmtime.Instance(self.store, module, [self.function(name) for name in imports]).exports(self.store)
        except wasmtime.WasmtimeError as error:
            raise self.bad(f"has another interface than circom's: {_brief(error)}") from error

    def function(self, name: str) -> wasmtime.Func:
        found = self._exports.get(name) if self._exports is not None else None
        if not isinstance(found, wasmtime.Func):
            raise self.bad(f"does not export the function {name}: it is no witness program of circom's")
        return found

    def own_memory(self) -> wasmtime.Memory:
        found = self._exports.get("memory")
        if not isinstance(found, wasmtime.Memory):
            raise self.bad("does not export its memory: it is no witness program of circom's")
        return found

    def call(self, name: str, *arguments: int) -> int:
        """Calls an export that takes and returns i32; the result as an unsigned number, 0 when there is none."""
        with self.running():
            result = self.function(name)(self.store, *(_signed(value) for value in arguments))
        return int(result) & 0xFFFFFFFF if result is not None else 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around anything that runs the program: its faults become errors of ours."""
        try:
            yield
        except wasmtime.Trap as trap:
            if trap.trap_code == wasmtime.TrapCode.INTERRUPT:
                raise DeadlineExceeded(
                    f"{self.path}: the program did not end within {self._limit_s:g} s of processor time; "
                    "if its circuit is that large, allow more with --timeout"
                ) from trap
            raise self.bad(f"the program failed: {_brief(trap)}") from trap
        except wasmtime.WasmtimeError as error:
            if "memory" in str(error):
                raise OutOfMemory(
                    f"{self.path}: the program wants more memory than the {self._limit_bytes >> 20} MiB it may use; "
                    "take a machine with more"
                ) from error
            raise self.bad(f"cannot be run: {_brief(error)}") from error
        except ProverError:
            raise
        except (TypeError, ValueError) as error:  # wasmtime's words for arguments that do not fit a signature
            raise self.bad(f"has another interface than circom's: {' '.join(str(error).split())[:200]}") from error

    def _watch(self) -> None:
        while not self._closed.wait(_TICK_S):
            if time.process_time() - self._begun > self._limit_s:
                self.engine.increment_epoch()


def _signed(value: int) -> int:
    """An i32 as wasmtime's Python takes it."""
    return value - (1 << 32) if value >= 1 << 31 else value


def _brief(error: Exception) -> str:
    """The cause of a trap or of a refused module: the last line of wasmtime's chain, without its backtrace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("0:", "error while", "Caused by", "note:"))]
    return ascii((causes or lines or ["unknown"])[-1])[1:-1][:200]
