"""At least 10,000 schedules of cuts and troubles, in shards that two cores share; `tally` prints what came of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.tally import note

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

SHARDS = 8
EACH = int(os.environ.get("PROVEFLEET_CRASH_SCHEDULES", 10_080)) // SHARDS


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_schedule_breaks_a_promise(shard: int) -> None:
    """In a process of its own, which forks thousands of others."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.run", str(EACH), str(shard)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=1700,
    )
    assert done.stdout, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    note(told)
    assert not told["broken"], told["broken"]
    assert told["schedules"] >= EACH
    assert told["cuts"] >= EACH / 2, "hardly anything was cut: the schedules show nothing"
