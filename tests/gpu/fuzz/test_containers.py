"""Broken `.zkey`, `.wtns` and `.r1cs` files: refused by name in one line, in time, with nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu.curve.params import Curve
from gpu.groth16.binfile import Kind
from gpu.groth16.r1cs import R1CS
from gpu.groth16.wtns import WTNS
from gpu.groth16.zkey import ZKEY
from tests.gpu.conftest import Files
from tests.gpu.fuzz.containers import bad_points, boundaries, edits, opened
from tests.gpu.fuzz.readers import Reader, light, refusal, whole

pytestmark = pytest.mark.prover

KINDS: dict[str, Kind] = {"zkey": ZKEY, "wtns": WTNS, "r1cs": R1CS}
EXAMPLES = {"zkey": 150, "wtns": 150, "r1cs": 40}  # a sound circuit costs a whole setup
QUIETLY = settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def good(kind: str, small: Files) -> Path:
    return {"zkey": small.zkey, "wtns": small.wtns, "r1cs": small.r1cs}[kind]


@pytest.fixture
def readers(kind: str, small: Files, pool: ThreadPoolExecutor) -> list[Reader]:
    """The one that looks at the header, and the one that checks everything."""
    return [light()[kind], whole(small.zkey, small.wtns, pool)[kind]]


def test_one_to_three_faults(kind: str, good: Path, readers: list[Reader], curve: Curve, tmp_path: Path) -> None:
    """Whatever is done to a file, it is read or refused; nothing else comes out."""
    points, broken, outcomes = bad_points(curve), tmp_path / "broken", {True: 0, False: 0}

    @settings(QUIETLY, max_examples=EXAMPLES[kind])
    @given(st.lists(edits(kind, curve, points), min_size=1, max_size=3))
    def attempt(faults: list) -> None:
        container = opened(good, KINDS[kind])
        for fault in faults:
            fault(container)
        broken.write_bytes(container.content())
        for reader in readers:
            outcomes[refusal(reader, broken) is None] += 1

    attempt()
    assert outcomes[False] > outcomes[True] > 0  # most are refused; some faults are none, or undo each other
    assert sorted(tmp_path.iterdir()) == [broken]


def test_truncation_at_every_boundary(good: Path, readers: list[Reader], tmp_path: Path) -> None:
    raw, broken = good.read_bytes(), tmp_path / "broken"
    for cut in boundaries(raw):
        broken.write_bytes(raw[:cut])
        for reader in readers:
            assert refusal(reader, broken) is not None, cut


def test_each_bad_point_in_each_section_is_refused_by_its_number(
    small: Files, curve: Curve, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Off the curve, outside the subgroup, not reduced, of another curve: in the first and in the last place."""
    load, broken = whole(small.zkey, small.wtns, pool)["zkey"], tmp_path / "broken.zkey"
    for section in (3, 5, 6, 7, 8, 9):
        degree = 2 if section == 7 else 1
        for which, point in enumerate(bad_points(curve)[degree][2:]):
            if which >= 6 and degree == 1 and curve.d_twist:
                continue  # BN254's G1 has no point outside the subgroup
            container = opened(small.zkey, ZKEY)
            data = next(data for number, _, data in container.table if number == section)
            for at in (0, len(data) - len(point)):
                before = bytes(data)
                data[at : at + len(point)] = point
                broken.write_bytes(container.content())
                message = refusal(load, broken)
                assert message is not None, (section, which)
                assert f"section {section} (" in message, message
                data[:] = before


def test_forged_lengths_cost_no_memory(small: Files, curve: Curve, tmp_path: Path) -> None:
    """Under a limit on its address space, a process refuses every forged count and length by name."""
    script = """
import pathlib, resource, sys
from concurrent.futures import ThreadPoolExecutor
from tests.gpu.fuzz.containers import LONG_EDGES, fields, opened
from tests.gpu.fuzz.readers import light, refusal, whole
from gpu.curve.params import CURVES
from tests.gpu.fuzz.test_containers import KINDS
curve, zkey, wtns, r1cs, broken = CURVES[sys.argv[1]], *map(pathlib.Path, sys.argv[2:])
with ThreadPoolExecutor(2) as pool:
    readers = whole(zkey, wtns, pool)
    for kind, path in ("zkey", zkey), ("wtns", wtns), ("r1cs", r1cs):
        readers[kind](path)  # whatever has to be compiled is
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
    for kind, path in ("zkey", zkey), ("wtns", wtns), ("r1cs", r1cs):
        for section, at, width in fields(kind, curve):
            for value in LONG_EDGES[-3:]:
                container = opened(path, KINDS[kind])
                for number, _, data in container.table:
                    if number == section:
                        data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
                broken.write_bytes(container.content())
                refusal(readers[kind], broken)
        for index in range(len(opened(path, KINDS[kind]).table)):
            for value in LONG_EDGES[-3:]:
                container = opened(path, KINDS[kind])
                container.table[index] = (container.table[index][0], value, container.table[index][2])
                broken.write_bytes(container.content())
                assert refusal(readers[kind], broken)
print("all refused")
"""
    files = [str(path) for path in (small.zkey, small.wtns, small.r1cs, tmp_path / "broken")]
    command = [sys.executable, "-c", script, curve.name, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout) == (0, "all refused\n"), done.stderr
