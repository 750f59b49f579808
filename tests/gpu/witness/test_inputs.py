"""Inputs as JSON: what snarkjs takes, exactly; what it chokes on, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu.errors import BadFile
from gpu.witness.inputs import read_inputs


def read(folder: Path, text: str) -> dict[str, list[int]]:
    (folder / "in.json").write_text(text)
    return read_inputs(folder / "in.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ('{"a": 5, "b": -7, "c": true}', {"a": [5], "b": [-7], "c": [1]}),
        ('{"a": "5", "b": "-7", "c": "0xFf", "d": " 1 "}', {"a": [5], "b": [-7], "c": [255], "d": [1]}),
        ('{"a": [[1, "2"], [[3]], []]}', {"a": [1, 2, 3]}),
        ('{"a": 123456789012345678901234567890}', {"a": [123456789012345678901234567890]}),
        ('{"a": 1e3, "b": 4.0}', {"a": [1000], "b": [4]}),
        ('{"p": {"x": 1, "q": {"y": [2, 3]}}}', {"p.x": [1], "p.q.y": [2, 3]}),
        ('{"p": [{"x": 1}, {"x": 2}]}', {"p[0].x": [1], "p[1].x": [2]}),
        ('\ufeff{"a": 1}', {"a": [1]}),
    ],
)
def test_what_is_accepted(text: str, expected: dict[str, list[int]], tmp_path: Path) -> None:
    assert read(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JSON: cannot be understood"),
        ("[1]", "is no object"),
        ("{", "JSON: cannot be understood"),
        ('{"a": 1.5}', "1.5 is no integer"),
        ('{"a": 1e999999999}', "is no integer"),
        ('{"a": NaN}', "NaN is no integer"),
        ('{"a": null}', 'signal "a": null is no integer'),
        ('{"a": ""}', 'signal "a": "" is no integer'),
        ('{"a": ["1", "x\\ny"]}', r'signal "a": "x\ny" is no integer'),
        ('{"a": 1, "a": 2}', '"a" is given twice'),
        ('{"a.b": 1, "a": {"b": 2}}', 'signal "a.b": is given twice'),
        ("[" * 100_000, "JSON: is nested too deeply"),
        ('{"a": ' + "9" * 10_000 + "}", "JSON: cannot be understood"),
        ('{"a": "' + "9" * 10_000 + '"}', 'signal "a"'),
    ],
)
def test_what_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile) as refused:
        read(tmp_path, text)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 1000
    assert "\n" not in str(refused.value)


def test_no_text_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadFile, match="not text in UTF-8"):
        read_inputs(tmp_path / "in.json")
    with pytest.raises(BadFile, match="cannot be read"):
        read_inputs(tmp_path / "nowhere")
