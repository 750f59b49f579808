"""What to say when a mapped file is cut short while it is read.

The kernel then sends SIGBUS to whoever touches a page that is gone, which ends the process without a word. A key can't
be copied first (it may be larger than memory), and a Python handler can't run there: it must not return, and the
interpreter's lock may be held. So the handler is a dozen instructions of our own: one line on stderr, exit code 1.
"""

from __future__ import annotations

import ctypes
import signal
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

LINE = (
    b"Error: a file was cut short while it was being read, or its disk failed (SIGBUS); "
    b"write keys beside their place, then rename them\n"
)


@cache
def explain_bus_errors() -> Any:
    """From now on a SIGBUS ends this process with `LINE` and exit code 1. Returns what must be kept alive."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_handler()), target)
    engine.finalize_object()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(signal.SIGBUS, engine.get_function_address("provefleet_bus_error"))
    return engine


def _handler() -> str:
    """Both calls are safe in a signal handler (POSIX.1-2017, 2.4.3)."""
    i32, i64, byte = ir.IntType(32), ir.IntType(64), ir.IntType(8)
    module = ir.Module("provefleet_bus_error")
    write = ir.Function(module, ir.FunctionType(i64, [i32, byte.as_pointer(), i64]), "write")
    leave = ir.Function(module, ir.FunctionType(ir.VoidType(), [i32]), "_exit")
    text = ir.GlobalVariable(module, ir.ArrayType(byte, len(LINE)), "line")
    text.initializer = ir.Constant(text.value_type, bytearray(LINE))
    text.global_constant = True
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [i32]), "provefleet_bus_error")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.call(write, [i32(2), builder.bitcast(text, byte.as_pointer()), i64(len(LINE))])
    builder.call(leave, [i32(1)])
    builder.unreachable()
    return str(module)
