"""The state folder, ports and locks: what is refused, and in which words."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.services import known, ports, state
from jobs.services.errors import ServiceError, explained

NOBODY = 65534


def as_nobody(action: Callable[[], None]) -> str:
    """What `action` is refused with when an ordinary user calls it; root may write everywhere."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "it was not refused"
        try:
            if os.geteuid() == 0:
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            action()
        except ServiceError as error:
            said = str(error)
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        return answer.read()


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    state.prepare(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    state.prepare(folder)
    known.write(folder, known.generate())
    folder.chmod(0o755)
    state.prepare(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_unwritable(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and "pytest" in parent.name:
            parent.chmod(0o755)
    said = as_nobody(lambda: state.prepare(tmp_path / "state"))
    assert "can't use the state folder" in said
    assert "Permission denied" in said
    assert "PROVEFLEET_STATE_DIR" in said


def test_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(ServiceError, match="A file is in the way"):
        state.prepare(tmp_path / "state")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("")
    tmp_path.chmod(0o755)
    with pytest.raises(ServiceError, match=r"holds 'holiday.jpg' but no services.json"):
        state.prepare(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(ServiceError, match="it belongs to nobody, and this is root"):
        state.prepare(folder)


def test_full_disk(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"\d+ MB are free, 1000000000000 MB are needed"):
        state.check_space(tmp_path, need=10**18)
    with (
        pytest.raises(ServiceError, match=r"No space left on device\. Free some space"),
        explained(tmp_path, "can't write"),
        open("/dev/full", "wb", buffering=0) as full,
    ):
        full.write(b"x")


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_a_sockets_folder_that_is_not_private(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "sockets"
    if kind == "link":
        path.symlink_to(tmp_path)
    elif kind == "file":
        path.write_text("")
    else:
        path.mkdir(mode=0o755)
    with pytest.raises(ServiceError, match="won't put sockets into"):
        state.private_folder(path)


def test_one_at_a_time(tmp_path: Path) -> None:
    first, second = state.Lock(tmp_path), state.Lock(tmp_path)
    assert first.acquire()
    first.describe("http://127.0.0.1:1")
    assert not second.acquire()
    assert second.holder() == state.Holder(os.getpid(), "http://127.0.0.1:1")
    assert state.running(tmp_path) == second.holder()
    first.close()
    assert state.running(tmp_path) is None
    assert second.acquire()


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_taken_port_that_was_chosen_by_the_operator(taken: str) -> None:
    with pytest.raises(ServiceError) as error:
        ports.require(taken, "PROVEFLEET_SITE_BIND")
    assert f"can't listen on {taken} (PROVEFLEET_SITE_BIND)" in str(error.value)
    assert f"(pid {os.getpid()})" in str(error.value)


def test_a_taken_port_of_ours_is_replaced_and_the_others_kept(taken: str) -> None:
    first, notes = ports.choose(known.generate(), site=True, agent=True, s3=True)
    assert notes == []
    numbers = {first.site_bind, first.agent_bind, *map(str, first.s3_ports.values())}
    assert len(numbers) == 2 + len(known.S3_PORTS)
    assert ports.choose(first, site=True, agent=True, s3=True) == (first, [])

    moved, notes = ports.choose(
        first.with_ports(site=taken, agent=first.agent_bind, s3=first.s3_ports), site=True, agent=True, s3=True
    )
    assert moved.site_bind != taken
    assert (moved.agent_bind, moved.s3_ports) == (first.agent_bind, first.s3_ports)
    assert len(notes) == 1
    assert taken.split(":")[1] in notes[0]
