"""The interface of circom 2's witness programs: values pass through a small shared memory, word by word."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import wasmtime

from gpu.errors import WitnessRefused
from gpu.witness.sandbox import Host, Program

_FAULTS = {
    1: "signal not found",
    2: "too many signals set",
    3: "signal already set",
    4: "assert failed",
    5: "not enough memory",
    6: "input signal array access exceeds the size",
}
_BATCH = 1 << 14
_WORDS = 8  # of 32 bits, in a value
_MAX_MESSAGE = 2000
_SIGNAL_BYTES = 40  # a signal in the program's memory: its value and two words of type

# Moves a batch of values in or out without leaving WebAssembly: a call from Python costs microseconds, and a
# value takes nine.
_MOVER = f"""
(module
  (import "" "0" (func $write (param i32 i32)))
  (import "" "1" (func $read (param i32) (result i32)))
  (import "" "2" (func $set (param i32 i32 i32)))
  (import "" "3" (func $get (param i32)))
  (memory (export "memory") {_BATCH * 4 * _WORDS >> 16})
  (func (export "feed") (param $high i32) (param $low i32) (param $first i32) (param $count i32)
    (local $i i32) (local $j i32) (local $at i32)
    (loop $values
      (local.set $j (i32.const 0))
      (loop $words
        (call $write (local.get $j) (i32.load (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (local.set $j (i32.add (local.get $j) (i32.const 1)))
        (br_if $words (i32.lt_u (local.get $j) (i32.const {_WORDS}))))
      (call $set (local.get $high) (local.get $low) (i32.add (local.get $first) (local.get $i)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $values (i32.lt_u (local.get $i) (local.get $count)))))
  (func (export "take") (param $first i32) (param $count i32)
    (local $i i32) (local $j i32) (local $at i32)
    (loop $values
      (call $get (i32.add (local.get $first) (local.get $i)))
      (local.set $j (i32.const 0))
      (loop $words
        (i32.store (local.get $at) (call $read (local.get $j)))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (local.set $j (i32.add (local.get $j) (i32.const 1)))
        (br_if $words (i32.lt_u (local.get $j) (i32.const {_WORDS}))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $values (i32.lt_u (local.get $i) (local.get $count))))))
"""


class Circom2:
    """A running program. `log` gets each line that the circuit logs."""

    def __init__(self, program: Program, log: Callable[[str], None]) -> None:
        self._program = program
        self._log = log
        self._error = ""
        self._line: list[str] = []
        given: dict[str, Host | wasmtime.Memory] = {
            "runtime.exceptionHandler": self._fail,
            "runtime.printErrorMessage": self._add_error,
            "runtime.writeBufferMessage": self._add_message,
            "runtime.showSharedRWMemory": self._show_value,
            "runtime.printDebug": lambda value: log(f"printDebug: {value}"),
        }
        program.start(given)
        if program.call("getVersion") != 2:
            raise program.bad("is a program of a circom version that is not known", todo="compile it with circom 2")
        # Since 2.0.7 log() takes several arguments, and a message "\n" ends the line.
        self._lines = (self._minor("getMinorVersion"), self._minor("getPatchVersion")) >= (0, 7)
        if program.call("getFieldNumLen32") != _WORDS:
            raise program.bad("computes in a field whose values are not 32 bytes", todo="compile it for another prime")
        program.call("getRawPrime")
        self.prime = self._shared_value()
        self.n_witness = program.call("getWitnessSize")
        if self.n_witness * _SIGNAL_BYTES > program.own_memory().data_len(program.store):
            raise program.bad(f"claims {self.n_witness} values, more than its memory holds")
        mover = program.attach(_MOVER, ["writeSharedRWMemory", "readSharedRWMemory", "setInputSignal", "getWitness"])
        self._buffer, self._feed, self._take = mover["memory"], mover["feed"], mover["take"]

    def begin(self) -> None:
        self._program.call("init", 0)

    def size_of(self, high: int, low: int) -> int | None:
        """How many values the input of this name takes; -1: there is no such input; None: the program can't say."""
        if not self._program.has("getInputSignalSize"):  # before circom 2.0.3
            return None
        size = self._program.call("getInputSignalSize", high, low)
        return -1 if size >= 1 << 31 else size

    def set_input(self, high: int, low: int, values: list[int]) -> None:
        """Sets one input; setting the last one runs the circuit."""
        for first in range(0, len(values), _BATCH):
            batch = values[first : first + _BATCH]
            raw = b"".join(value.to_bytes(4 * _WORDS, "little") for value in batch)
            self._buffer.write(self._program.store, raw, 0)
            with self._program.running():
                self._feed(self._program.store, _i32(high), _i32(low), first, len(batch))

    def n_inputs(self) -> int:
        return self._program.call("getInputSize")

    def witness(self) -> Iterator[bytes]:
        """The values in order, 32 bytes each, in pieces."""
        for first in range(0, self.n_witness, _BATCH):
            count = min(_BATCH, self.n_witness - first)
            with self._program.running():
                self._take(self._program.store, first, count)
            yield bytes(self._buffer.read(self._program.store, 0, 4 * _WORDS * count))

    def _minor(self, name: str) -> int:
        return self._program.call(name) if self._program.has(name) else 0

    def _shared_value(self) -> int:
        words = [self._program.call("readSharedRWMemory", i) for i in range(_WORDS)]
        return sum(word << (32 * i) for i, word in enumerate(words))

    def _message(self) -> str:
        out = ""
        while (char := self._program.call("getMessageChar")) and len(out) < _MAX_MESSAGE:
            out += chr(char) if char < 0x80 else "?"
        return out

    def _fail(self, code: int) -> None:
        fault = _FAULTS.get(code, f"error {code}")
        where = " ".join(self._error.split())
        raise WitnessRefused(f"{self._program.path}: {fault}{': ' if where else ''}{where}; check the inputs")

    def _add_error(self) -> None:
        self._error = (self._error + self._message() + " ")[:_MAX_MESSAGE]

    def _add_message(self) -> None:
        message = self._message()
        if message == "\n":
            self._log(" ".join(self._line))
            self._line = []
        elif len(self._line) < _MAX_MESSAGE:
            self._line.append(message)

    def _show_value(self) -> None:
        value = str(self._shared_value())
        if not self._lines:
            self._log(value)
        elif len(self._line) < _MAX_MESSAGE:
            self._line.append(value)


def _i32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
