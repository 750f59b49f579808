"""Payloads are data: each file loads, and what a spec is filled with is what they ask for."""

from __future__ import annotations

import pytest

from jobs import payloads
from jobs.payloads import UnknownPayload


@pytest.mark.parametrize("name", payloads.names())
def test_each_payload_is_whole(name: str) -> None:
    payload = payloads.load(name)
    assert payload.title
    assert payload.description
    assert payload.streams
    for stage in ("loading", "params", "benchmark", "prove"):
        assert 0 < payload.silent_s[stage] <= payload.deadlines_s[stage]
    for stage in ("benchmark", "prove"):
        assert payload.commands[stage].command
    assert payloads.load(name) is payload


def test_an_unknown_payload_is_named_with_those_there_are() -> None:
    for name in ("nothing", "", "../groth16", "groth16.toml"):
        with pytest.raises(UnknownPayload, match="groth16"):
            payloads.load(name)
