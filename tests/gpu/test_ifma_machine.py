"""Every eight-lane operation with the real AVX-512 IFMA instructions, which the machines of CI have not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gpu.icelake import boot

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]


def test_every_operation_gives_on_ice_lake_what_it_gives_here(tmp_path: Path) -> None:
    missing = boot.missing()
    if missing:
        pytest.skip(f"no emulated Ice Lake here: install {', '.join(missing)} (see tests/gpu/icelake/boot.py)")
    said = boot.run_cases(tmp_path, patience_s=300)
    done = re.search(r"DONE (\d+) cases, (\d+) wrong", said)
    assert done is not None, said
    assert (int(done[1]) > 700, int(done[2])) == (True, 0), said[-2000:]
