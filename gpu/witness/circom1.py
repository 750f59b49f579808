"""The interface of circom 1's witness programs: values are structures in a memory that the caller owns.

A value is a short form (a 32-bit integer, and a zero word) or a long one (a word, a word with the top bit set, then
the value in 32-bit words); memory begins with the address of the first free byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import wasmtime

from gpu.errors import BadFile, WitnessRefused
from gpu.witness.sandbox import Host, Program

_PAGES = 32767  # as many as snarkjs gives
_LONG = 1 << 31
_MONTGOMERY = 1 << 30
_BATCH = 1 << 14
_BYTES = 32
_MAX_TEXT = 500
_ROOM = 16 + _BYTES  # of ours: an integer and a value


class Circom1:
    """A running program. `log` gets each line that the circuit logs."""

    def __init__(self, program: Program, log: Callable[[str], None]) -> None:
        self._program = program
        self._memory = program.make_memory(_PAGES)
        self._log = log
        given: dict[str, Host | wasmtime.Memory] = {
            "env.memory": self._memory,
            "runtime.error": self._fail,
            "runtime.log": lambda at: log(str(self._value(at))),
        }
        for name in ("logGetSignal", "logSetSignal", "logStartComponent", "logFinishComponent"):
            given[f"runtime.{name}"] = lambda *_: None  # a trace, which nobody asked for
        program.start(given)
        if program.call("getFrLen") != _BYTES + 8:
            raise program.bad("computes in a field whose values are not 32 bytes", todo="compile it for another prime")
        self.prime = self._integer(program.call("getPRawPrime"), _BYTES)
        self.n_witness = program.call("getNVars")
        if self.n_witness * _BYTES > self._memory.data_len(program.store):
            raise program.bad(f"claims {self.n_witness} values, more than its memory holds")
        self._offset = 0

    def begin(self) -> None:
        self._program.call("init", 1)
        self._offset = self._integer(0, 4)
        self._put(0, self._offset + _ROOM, 4)

    def size_of(self, high: int, low: int) -> int | None:
        """Always None (such programs can't say), or -1: there is no such input."""
        try:
            self._program.call("getSignalOffset32", self._offset, 0, high, low)
        except (WitnessRefused, BadFile):
            return -1
        return None

    def set_input(self, high: int, low: int, values: list[int]) -> None:
        """Sets one input; setting the last one runs the circuit."""
        self._program.call("getSignalOffset32", self._offset, 0, high, low)
        first, place = self._integer(self._offset, 4), self._offset + 8
        for i, value in enumerate(values):
            short = value if value < _LONG else value - self.prime
            if -_LONG <= short < _LONG:
                self._put(place, short % (1 << 32), 8)
            else:
                self._put(place, _LONG << 32, 8)
                self._put(place + 8, value, _BYTES)
            self._program.call("setSignal", 0, 0, first + i, place)

    def n_inputs(self) -> int | None:
        """Unknown to such a program: a signal that was not set shows as a failed constraint."""
        return None

    def witness(self) -> Iterator[bytes]:
        """The values in order, 32 bytes each, in pieces."""
        at = self._program.call("getWitnessBuffer")
        if at + self.n_witness * _BYTES > self._memory.data_len(self._program.store):
            raise self._program.bad("keeps its values outside its memory")
        for first in range(0, self.n_witness, _BATCH):
            end = min(first + _BATCH, self.n_witness)
            yield bytes(self._memory.read(self._program.store, at + first * _BYTES, at + end * _BYTES))

    def _integer(self, at: int, n_bytes: int) -> int:
        if at + n_bytes > self._memory.data_len(self._program.store):
            raise self._program.bad("points outside its memory")
        return int.from_bytes(self._memory.read(self._program.store, at, at + n_bytes), "little")

    def _put(self, at: int, value: int, n_bytes: int) -> None:
        if at + n_bytes > self._memory.data_len(self._program.store):
            raise self._program.bad("points outside its memory")
        self._memory.write(self._program.store, value.to_bytes(n_bytes, "little"), at)

    def _value(self, at: int) -> int:
        """The value whose structure lies at `at`."""
        at &= 0xFFFFFFFF
        kind = self._integer(at + 4, 4)
        if not kind & _LONG:
            short = self._integer(at, 4)
            return (short - (1 << 32) if short & _LONG else short) % self.prime
        value = self._integer(at + 8, _BYTES)
        return value * pow(1 << (8 * _BYTES), -1, self.prime) % self.prime if kind & _MONTGOMERY else value

    def _text(self, at: int) -> str:
        at &= 0xFFFFFFFF
        end = min(at + _MAX_TEXT, self._memory.data_len(self._program.store))
        raw = bytes(self._memory.read(self._program.store, at, end)) if at < end else b""
        return " ".join(raw.split(b"\0")[0].decode("ascii", "replace").split())

    def _fail(self, code: int, text: int, a: int, b: int, c: int, d: int) -> None:
        what = f"{self._text(text)} {a} {b} {c} {d}"
        if code == 7:
            what = f"{self._text(text)} {self._value(b)} != {self._value(c)} {self._text(d)}"
        elif code == 9:
            what = f"{self._text(text)} {self._value(b)} {self._text(c)}"
        raise WitnessRefused(f"{self._program.path}: error {code}: {what}; check the inputs")
