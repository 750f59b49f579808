"""The memory limit, on made-up cgroup trees: nested groups, both versions, containers without a namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu import memory

MIB = 1 << 20


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    return tmp_path


def write(tree: Path, name: str, text: str) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_without_cgroups_the_machine_is_the_limit(tree: Path) -> None:
    assert memory.limit_bytes() >= 256 * MIB


@pytest.mark.parametrize(
    ("mine", "files", "expected"),
    [
        ("0::/", {"memory.max": "1048576"}, MIB),
        ("0::/a/b", {"a/b/memory.max": "3145728", "a/memory.max": "max"}, 3 * MIB),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "2097152"}, 2 * MIB),
        ("0::/docker/seen/from/the/host", {"memory.max": "4194304"}, 4 * MIB),
        ("0::/../../outside", {"memory.max": "5242880"}, 5 * MIB),
        ("0::/a:b", {"a:b/memory.max": "6291456"}, 6 * MIB),
        ("5:cpu,memory:/x/y", {"memory/x/y/memory.limit_in_bytes": "7340032"}, 7 * MIB),
        ("5:memory:/host/name", {"memory/memory.limit_in_bytes": "8388608"}, 8 * MIB),
        (
            "5:memory:/x\n0::/u",
            {"unified/u/memory.max": "9437184", "memory/x/memory.limit_in_bytes": "9" * 19},
            9 * MIB,
        ),
    ],
)
def test_the_least_limit_counts(tree: Path, mine: str, files: dict[str, str], expected: int) -> None:
    write(tree, "proc/self/cgroup", mine)
    for name, text in files.items():
        write(tree, f"cgroup/{name}", text)
    assert memory.limit_bytes() == expected


def test_other_controllers_and_other_groups_do_not_count(tree: Path) -> None:
    write(tree, "proc/self/cgroup", "3:cpu:/small\n0::/mine")
    write(tree, "cgroup/memory/small/memory.limit_in_bytes", "1048576")
    write(tree, "cgroup/other/memory.max", "1048576")
    assert memory.limit_bytes() > MIB
