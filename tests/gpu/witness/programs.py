"""Witness programs written by hand in WebAssembly text: small ones that keep to circom's two interfaces, and
hostile ones.
"""

from __future__ import annotations

from pathlib import Path

import wasmtime

from gpu.curve.params import Curve

# One input "a" of two values, in which the sum is kept modulo 2^32 (small values only): witness 1, a[0] + a[1].
# `%(...)s` marks where a test changes it.
CIRCOM2 = """
(module
  (import "runtime" "exceptionHandler" (func $fail (param i32)))
  (import "runtime" "printErrorMessage" (func $error))
  %(imports)s
  (memory (export "memory") %(pages)s)
  (data (i32.const 32) "%(prime)s")
  (data (i32.const 64) "line 7\\0a")
  (global $left (mut i32) (i32.const 2))
  (global $sum (mut i32) (i32.const 0))
  (global $char (mut i32) (i32.const 0))
  %(start)s
  (func $zero (local $i i32)
    (loop $l
      (i32.store (i32.shl (local.get $i) (i32.const 2)) (i32.const 0))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (i32.const 8)))))
  (func (export "getVersion") (result i32) (i32.const %(version)s))
  (func (export "getMinorVersion") (result i32) (i32.const 1))
  (func (export "getPatchVersion") (result i32) (i32.const 6))
  (func (export "getFieldNumLen32") (result i32) (i32.const 8))
  (func (export "getRawPrime") (memory.copy (i32.const 0) (i32.const 32) (i32.const 32)))
  (func (export "readSharedRWMemory") (param i32) (result i32) (i32.load (i32.shl (local.get 0) (i32.const 2))))
  (func (export "writeSharedRWMemory") (param i32 i32) (i32.store (i32.shl (local.get 0) (i32.const 2)) (local.get 1)))
  (func (export "init") (param i32) %(init)s)
  (func (export "getInputSize") (result i32) (i32.const 2))
  (func (export "getInputSignalSize") (param i32 i32) (result i32)
    (if (result i32)
      (i32.and (i32.eq (local.get 0) (i32.const 0xaf63dc4c)) (i32.eq (local.get 1) (i32.const 0x8601ec8c)))
      (then (i32.const 2)) (else (i32.const -1))))
  (func (export "setInputSignal") (param i32 i32 i32)
    (global.set $sum (i32.add (global.get $sum) (i32.load (i32.const 0))))
    (global.set $left (i32.sub (global.get $left) (i32.const 1)))
    (if (i32.eqz (global.get $left))
      (then (if (i32.eq (global.get $sum) (i32.const 13)) (then (call $error) (call $fail (i32.const 4))))
        %(run)s)))
  (func (export "getWitnessSize") (result i32) (i32.const %(size)s))
  (func (export "getWitness") (param i32)
    (call $zero)
    (i32.store (i32.const 0) (select (i32.const %(one)s) (global.get $sum) (i32.eqz (local.get 0)))))
  (func (export "getMessageChar") (result i32)
    (global.set $char (i32.add (global.get $char) (i32.const 1)))
    (i32.load8_u (i32.add (i32.const 63) (global.get $char)))))
"""

FOREVER = "(loop $forever (br $forever))"
DEFAULTS = {
    "imports": "",
    "pages": "1",
    "start": "",
    "version": "2",
    "init": "",
    "run": "",
    "size": "2",
    "one": "1",
}

# The same in circom 1's interface: values are structures in a memory that it imports.
CIRCOM1 = """
(module
  (import "env" "memory" (memory 1))
  (import "runtime" "error" (func $fail (param i32 i32 i32 i32 i32 i32)))
  (import "runtime" "log" (func $log (param i32)))
  (data (i32.const 0) "\\00\\10\\00\\00")
  (data (i32.const 32) "%(prime)s")
  (data (i32.const 64) "no such signal\\00")
  (data (i32.const 128) "\\01")
  (func (export "getFrLen") (result i32) (i32.const 40))
  (func (export "getPRawPrime") (result i32) (i32.const 32))
  (func (export "getNVars") (result i32) (i32.const 3))
  (func (export "init") (param i32))
  (func (export "getSignalOffset32") (param i32 i32 i32 i32)
    (if (i32.or (i32.ne (local.get 2) (i32.const 0xaf63dc4c)) (i32.ne (local.get 3) (i32.const 0x8601ec8c)))
      (then (call $fail (i32.const 1) (i32.const 64) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))))
    (i32.store (local.get 0) (i32.const 1)))
  (func (export "setSignal") (param i32 i32 i32 i32) (local $at i32)
    (call $log (local.get 3))
    (local.set $at (i32.add (i32.const 128) (i32.shl (local.get 2) (i32.const 5))))
    (if (i32.load (i32.add (local.get 3) (i32.const 4)))
      (then (memory.copy (local.get $at) (i32.add (local.get 3) (i32.const 8)) (i32.const 32)))
      (else (i32.store (local.get $at) (i32.load (local.get 3))))))
  (func (export "getWitnessBuffer") (result i32) (i32.const 128)))
"""


def escaped(value: int) -> str:
    return "".join(f"\\{byte:02x}" for byte in value.to_bytes(32, "little"))


def circom2(path: Path, curve: Curve, **changes: str) -> Path:
    """A program in circom 2's interface, with some of its parts changed."""
    path.write_bytes(wasmtime.wat2wasm(CIRCOM2 % {**DEFAULTS, "prime": escaped(curve.r), **changes}))
    return path


def circom1(path: Path, curve: Curve) -> Path:
    path.write_bytes(wasmtime.wat2wasm(CIRCOM1 % {"prime": escaped(curve.r)}))
    return path
