"""The inputs of a circuit, from JSON: signal names to lists of integers, exact at any size.

What snarkjs accepts is accepted, and means the same: numbers, decimal and 0x strings, negative numbers, true and
false, nested arrays (flattened in row order), and for circom 2.2's buses nested objects ("point.x", "points[0].x").
Unlike JavaScript's, numbers beyond 2^53 keep every digit.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu.errors import BadFile

_TODO = "give an object of signal names and integers, strings of integers, or arrays of them"
_INTEGER = re.compile(r"[+-]?[0-9]+|0[xX][0-9a-fA-F]+")
_FLOAT_DIGITS = 400  # 1e300 is an integer, but nobody writes an input that way


class _NotInteger(ValueError):
    pass


def read_inputs(path: str | os.PathLike[str]) -> dict[str, list[int]]:
    """Signal names and their values, not yet reduced. BadFile names the signal that is wrong."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        found = json.loads(text, object_pairs_hook=_unique, parse_float=_whole, parse_constant=_whole)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise BadFile(path, "file", f"cannot be read: {why}", "check the path and its permissions") from error
    except RecursionError as error:
        raise BadFile(path, "JSON", "is nested too deeply", _TODO) from error
    except ValueError as error:
        raise BadFile(path, "JSON", f"cannot be understood: {error}", _TODO) from error
    if not isinstance(found, dict):
        raise BadFile(path, "JSON", "is no object", _TODO)
    out: dict[str, list[int]] = {}
    for signal, values in _signals("", found):
        if signal in out:
            raise BadFile(path, f"signal {_shown(signal)}", "is given twice", _TODO)
        try:
            out[signal] = [_integer(value) for value in _flat(values)]
        except ValueError as error:
            raise BadFile(path, f"signal {_shown(signal)}", str(error), _TODO) from error
    return out


def _shown(text: Any) -> str:
    """Whatever a file says, short and on one line."""
    plain = json.dumps(text, ensure_ascii=True)
    return plain if len(plain) <= 60 else plain[:57] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        name = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise _NotInteger(f"{_shown(name)} is given twice")
    return found


def _whole(text: str) -> int:
    """A number with a point or an exponent, which must be an integer all the same; NaN and Infinity never are."""
    if len(text) < _FLOAT_DIGITS and text[-1].isdigit():
        from decimal import Decimal

        value = Decimal(text)
        if value.adjusted() < _FLOAT_DIGITS and value == value.to_integral_value():
            return int(value)
    raise _NotInteger(f"{text[:40]} is no integer")


def _signals(prefix: str, found: Any) -> Iterator[tuple[str, Any]]:
    """Buses taken apart, as circom 2.2's own calculator does it."""
    if isinstance(found, dict):
        for name, inner in found.items():
            yield from _signals(f"{prefix}.{name}" if prefix else name, inner)
    elif isinstance(found, list) and any(isinstance(value, dict) for value in _flat(found)):
        for i, inner in enumerate(found):
            yield from _signals(f"{prefix}[{i}]", inner)
    else:
        yield prefix, found


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def _integer(value: Any) -> int:
    if isinstance(value, int):  # true and false are 1 and 0, as in JavaScript
        return int(value)
    if not isinstance(value, str) or not _INTEGER.fullmatch(value.strip()):
        raise ValueError(f"{_shown(value)} is no integer")
    text = value.strip()
    return int(text, 16) if text[:2].lower() == "0x" else int(text)
