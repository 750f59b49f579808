"""Kernels compiled ahead of the demo: they land in the cache that local agents read, and never outlive the demo."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.services.warming import Warming


def wait_for(what: object, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_kernels_land_in_the_cache_of_the_state_folder(tmp_path: Path) -> None:
    warming = Warming(tmp_path, "bn254")
    try:
        wait_for(lambda: any((tmp_path / "cache" / "numba").rglob("*.nbc")), 90)
    finally:
        warming.stop()


@pytest.mark.parametrize("curve", ["bls12381", "no such curve"])
def test_it_ends_when_told_and_a_failure_disturbs_nobody(tmp_path: Path, curve: str) -> None:
    warming = Warming(tmp_path, curve)
    wait_for(lambda: warming._process is not None, 10)
    warming.stop()
    assert warming._process is not None
    wait_for(lambda: warming._process is None or warming._process.poll() is not None, 10)
