"""Broken JSON: hypothesis strategies over the values of a document and over its text."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from gpu.curve.params import BLS12381, BN254

NUMBERS = [str(n + d) for n in (BN254.p, BN254.r, BLS12381.p, BLS12381.r, 2**256, 2**384) for d in (-1, 0, 1)]
ODD = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e5",
    "0x10",
    "-1",
    "+1",
    " 1",
    "1 ",
    "01",
    "",
    "1_0",
    "\u0661",
    "9" * 5000,
    "\n",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=4)
    | st.sampled_from(["0", "1", "2", "groth16", "bn128", "bls12381", *NUMBERS, *ODD])
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)

Path = tuple[Any, ...]


def paths(value: Any, prefix: Path = ()) -> list[Path]:
    """The place of every value inside, the outermost one included."""
    out = [prefix]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        out += paths(inner, (*prefix, key))
    return out


def replaced(value: Any, path: Path, new: Any) -> Any:
    """A copy with another value at `path`."""
    if not path:
        return new
    out = copy.deepcopy(value)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return out


def texts(value: Any) -> st.SearchStrategy[bytes]:
    """The document with a fault in a value, or in its text."""
    good = json.dumps(value).encode()
    values = st.builds(replaced, st.just(value), st.sampled_from(paths(value)), JUNK)
    return st.one_of(
        values.map(lambda broken: json.dumps(broken).encode("utf-8", "surrogatepass")),
        st.integers(0, len(good)).map(lambda cut: good[:cut]),
        st.builds(
            lambda at, byte: good[:at] + bytes([byte]) + good[at + 1 :],
            st.integers(0, len(good) - 1),
            st.integers(0, 255),
        ),
        st.sampled_from(special(good)),
        st.binary(max_size=40),
    )


def special(good: bytes) -> list[bytes]:
    """Texts that trip readers of JSON."""
    name = good[: good.index(b":")] + b": 1, " if b":" in good else b"{"
    return [
        b"",
        b"\xef\xbb\xbf",
        b"\xff\xfe" + good.decode().encode("utf-16-le"),
        good.decode().encode("utf-16-be"),
        good + good,
        good + b"\x00",
        b"\x00" * 50,
        good.replace(b'"1"', b'"\\ud800"'),
        good.replace(b'"1"', b"1"),
        good.replace(b'"1"', b"NaN"),
        good.replace(b'"1"', b"-Infinity"),
        good.replace(b'"1"', b"9" * 100_000),
        good.replace(b'"1"', b"1e999999999"),
        name + good[1:],
        b"[" * 200_000 + b"]" * 200_000,
        b"[" * 1_000_000,
        b'{"a":' * 100_000 + b"}" * 100_000,
        b'{"a":' * 100_000,
        b'"' + b"a" * 1_000_000 + b'"',
        b"1" * 1_000_000,
        b"[" + b"1," * 500_000 + b"1]",
    ]
