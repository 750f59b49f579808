"""Log files under all that programs and log rotation do to them, against what was written."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu.agent.follower import MOST_FILES, QUIET_S, Clocks, Follower
from gpu.agent.stream import Stream
from tests.gpu.agent.streams import Clock, content, stream_in


class Rig:
    """A follower of `pattern` in a folder, looked at by hand; `stream` is what it read."""

    def __init__(self, folder: Path, pattern: str = "own.log", wall_s: float = 0.0):
        self.folder = folder / "a[b]work"  # magic characters in the folder's own name mean nothing
        self.folder.mkdir()
        self.clock, self.said = Clock(), list[str]()
        self.path = self.folder / "own.log"
        self.stream: Stream = stream_in(folder, self.clock)
        self.follower = Follower(self.said.append, Clocks(self.clock.s, lambda: wall_s))
        self.follower.follow(self.folder, pattern, self.stream)

    def look(self) -> bytes:
        self.follower.drain()
        return content(self.stream)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_file_that_comes_late_and_its_unfinished_line(rig: Rig) -> None:
    assert rig.look() == b""
    rig.path.write_text("one\ntw")
    assert rig.look() == b"one\ntw"
    with rig.path.open("a") as file:
        file.write("o")
    assert rig.look() == b"one\ntwo"
    rig.follower.stop()
    assert rig.look() == b"one\ntwo"


def test_the_rest_of_a_file_that_was_replaced_between_looks(rig: Rig) -> None:
    rig.path.write_text("old 1\n")
    assert rig.look() == b"old 1\n"
    with rig.path.open("a") as old:
        old.write("old 2\nold 3 without end")
        old.flush()
        rig.path.unlink()
        rig.path.write_text("new 1\n")
        rig.follower.drain()
        old.write("!\n")  # its writer does not know yet
    assert rig.look() == b"old 1\nold 2\nnew 1\nold 3 without end!\n"


def test_rotations_between_two_looks_lose_no_file_in_the_middle(rig: Rig) -> None:
    rig.path.write_text("1\n")
    rig.look()
    for text in ("2\n", "3\n", "4\n"):
        for i in range(8, 0, -1):
            if (numbered := Path(f"{rig.path}.{i}")).exists():
                numbered.rename(f"{rig.path}.{i + 1}")
        rig.path.rename(f"{rig.path}.1")
        rig.path.write_text(text)
    Path(f"{rig.path}.1.gz").write_bytes(b"\x1f\x8b packed")
    assert sorted(rig.look().split()) == [b"1", b"2", b"3", b"4"]


def test_what_was_written_before_a_truncation_is_read_from_the_copy(rig: Rig) -> None:
    rig.path.write_text("1\n2\n")
    rig.look()
    with rig.path.open("a") as file:
        file.write("3\n")
    shutil.copy(rig.path, f"{rig.path}.1")
    rig.path.write_text("4\n")
    assert rig.look() == b"1\n2\n3\n4\n"
    rig.clock.now_s += QUIET_S + 1
    assert rig.look() == rig.look() == b"1\n2\n3\n4\n"


def test_a_file_cut_off_and_grown_beyond_where_we_were_is_read_from_its_start(rig: Rig) -> None:
    rig.path.write_text("short\n")
    rig.look()
    rig.path.write_text("a longer line than that\n")
    assert rig.look() == b"short\na longer line than that\n"


def test_a_writer_that_does_not_append_leaves_a_hole_that_is_not_read(rig: Rig) -> None:
    with rig.path.open("w") as file:
        file.write("x" * 100_000 + "\n")
        file.flush()
        rig.look()
        os.truncate(rig.path, 0)
        file.write("after\n")
        file.flush()
        assert rig.look() == b"x" * 100_000 + b"\nafter\n"


def test_rotated_files_of_an_earlier_time_and_of_other_names_are_not_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, wall_s=2_000_000_000.0)
    rig.path.write_text("now\n")
    for name, mtime_s in (
        ("own.log.1", 1_900_000_000),
        ("own.log.txt", 2_000_000_000),
        ("own.log.2.gz", 2_000_000_000),
    ):
        (rig.folder / name).write_text("other\n")
        os.utime(rig.folder / name, (mtime_s, mtime_s))
    (rig.folder / "own.log.3").write_text("of just now\n")
    os.utime(rig.folder / "own.log.3", (2_000_000_000, 2_000_000_000))
    assert rig.look() == b"of just now\nnow\n"


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda path: path.mkdir(), "directory"),
        (lambda path: os.mkfifo(path), "FIFO"),
        (lambda path: path.symlink_to("/etc/hostname"), "symbolic link"),
        (lambda path: (path.parent / "self").symlink_to(path) or path.symlink_to("self"), "symbolic link"),
    ],
)
def test_what_is_no_file_is_named_once_and_waited_for(rig: Rig, make: Callable[[Path], None], word: str) -> None:
    make(rig.path)
    assert rig.look() == rig.look() == b""
    assert len(rig.said) == 1
    assert word in rig.said[0]
    if rig.path.is_dir() and not rig.path.is_symlink():
        rig.path.rmdir()
    else:
        rig.path.unlink()
    rig.path.write_text("now\n")
    assert rig.look() == b"now\n"


def test_a_file_that_gives_way_to_a_link_is_still_read_to_its_end(rig: Rig) -> None:
    with rig.path.open("w") as file:
        file.write("1\n")
        file.flush()
        rig.look()
        file.write("2\n")
        file.flush()
        rig.path.unlink()
        rig.path.symlink_to("/etc/hostname")
        assert rig.look() == b"1\n2\n"


def test_files_of_a_pattern_share_a_stream_by_whole_lines(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "w*.log")
    with (rig.folder / "w1.log").open("w") as one, (rig.folder / "w2.log").open("w") as two:
        for i in range(50):
            for file, name in ((one, "one"), (two, "two")):
                file.write(f"{name} {i}")
                file.flush()
                rig.follower.drain()
                file.write(" end\n")
                file.flush()
            rig.follower.drain()
    lines = rig.look().decode().splitlines()
    assert sorted(lines) == sorted(f"{name} {i} end" for i in range(50) for name in ("one", "two"))


def test_a_pattern_of_very_many_files_uses_few_descriptors(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "p-*.log")
    before = len(os.listdir("/proc/self/fd"))
    for i in range(MOST_FILES + 40):
        (rig.folder / f"p-{i:03}.log").write_text(f"{i}\n")
    rig.look()
    assert "more than 64 files" in rig.said[0]
    assert len(os.listdir("/proc/self/fd")) - before <= MOST_FILES
    rig.clock.now_s += QUIET_S + 1
    assert sorted(map(int, rig.look().split())) == list(range(MOST_FILES + 40))
    rig.clock.now_s += QUIET_S + 1
    assert len(rig.look().split()) == MOST_FILES + 40, "what was let go is not read again"
    rig.follower.stop()
    assert len(os.listdir("/proc/self/fd")) == before


class Writer:
    """A program that logs, and what rotates its log, by chance; `wrote` is every piece in a file, by file."""

    def __init__(self, rig: Rig, chance: random.Random):
        self.rig, self.chance = rig, chance
        self.lines: Counter[str] = Counter()
        self.count, self.copies = 0, 0
        self.file = rig.path.open("a")
        self.line = ""

    def write(self) -> None:
        """Whole lines and pieces of lines."""
        for _ in range(self.chance.randrange(1, 4)):
            self.count += 1
            piece = f"[{self.count}" + "." * self.chance.choice((0, 3, 400, 4_000)) + "]"
            self.line += piece
            if self.chance.random() < 0.7:
                self.file.write(piece + "\n")
                self.end_line()
            else:
                self.file.write(piece)
        self.file.flush()

    def end_line(self) -> None:
        if self.line:
            self.lines[self.line] += 1
        self.line = ""

    def look(self) -> None:
        self.rig.follower.drain()

    def rotate(self) -> None:
        """Renamed, and a new one begun; perhaps the old one is written to for a while."""
        self.rig.path.rename(f"{self.rig.path}.{self.next_copy()}")
        if self.chance.random() < 0.5:
            self.write()
        self.anew()

    def delete(self) -> None:
        """What was never seen is lost with its file; one that was is held open."""
        self.look()
        self.rig.path.unlink()
        if self.chance.random() < 0.5:
            self.write()
        self.look()
        self.anew()

    def replace(self) -> None:
        """By one that was written beside it, as atomic writers do."""
        beside = self.rig.folder / "new.part"
        self.look()
        self.file.close()
        self.end_line()
        self.file = beside.open("a")
        self.write()
        os.replace(beside, self.rig.path)

    def copy_and_truncate(self) -> None:
        shutil.copy(self.rig.path, f"{self.rig.path}.{self.next_copy()}")
        if self.chance.random() < 0.3:
            self.look()  # sees the copy before the truncation
        os.truncate(self.rig.path, 0)
        self.end_line()

    def truncate(self) -> None:
        self.look()
        os.truncate(self.rig.path, 0)
        self.end_line()

    def wait(self) -> None:
        self.look()
        self.rig.clock.now_s += QUIET_S + 1
        self.look()

    def next_copy(self) -> int:
        self.copies += 1
        return self.copies

    def anew(self) -> None:
        self.file.close()
        self.end_line()
        self.file = self.rig.path.open("a")


@pytest.mark.parametrize("pattern", ["own.log", "own.log*"])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path, seed: int, pattern: str) -> None:
    rig = Rig(tmp_path, pattern)
    writer = Writer(rig, random.Random(seed))
    steps = [writer.write] * 5 + [writer.look] * 4
    steps += [writer.rotate, writer.delete, writer.replace, writer.copy_and_truncate, writer.truncate, writer.wait]
    for _ in range(60):
        writer.chance.choice(steps)()
    writer.file.close()
    writer.end_line()
    read = Counter(rig.look().decode().splitlines())
    assert read == writer.lines
    rig.follower.stop()
