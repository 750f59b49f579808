"""The `host` and `kernel` streams, of a kernel that is a folder."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from gpu.agent.cgroup import Cgroup
from gpu.agent.host import HostWatch, Surroundings
from gpu.agent.kernel import BEFORE_S, MOST_LINES, KernelLog
from gpu.agent.procfs import Roots
from tests.gpu.agent.streams import Clock, content, stream_in

MEMINFO = "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 100 kB\nSwapFree: 30 kB\n"
NET = "Inter-| Receive\n face |bytes\n    lo: 999 1 0 0 0 0 0 0 999 1\n  eth0: {} 1 0 0 0 0 0 0 {} 1 0 0\n"
DISKS = " 8 0 sda 10 0 {} 0 10 0 {} 0 0 0 0\n 8 1 sda1 10 0 55 0 10 0 55 0 0 0 0\n 7 0 loop0 1 0 9 0 1 0 9 0\n"


class Machine:
    """A kernel in a folder; `watch` looks at it when told, at a clock moved by hand."""

    def __init__(self, folder: Path):
        self.folder, self.clock = folder, Clock()
        self.roots = Roots(folder / "proc", folder / "sys", folder / "kmsg")
        self.tunnels: dict[str, int] = {}
        self.offset_ms: float | None = None
        self.set_ms = 0
        self.v2()
        self.write("proc/meminfo", MEMINFO)
        self.write("proc/loadavg", "1.50 1.00 0.50 2/345 678\n")
        self.counters(read=10, written=20, received=1000, sent=2000)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def counters(self, read: int, written: int, received: int, sent: int) -> None:
        self.write("proc/diskstats", DISKS.format(read, written))
        self.write("proc/net/dev", NET.format(received, sent))

    def v2(self, **events: int) -> None:
        names = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
        self.write("proc/self/cgroup", "0::/pod/ours\n")
        self.write("sys/fs/cgroup/pod/ours/memory.events", "".join(f"{n} {events.get(n, 0)}\n" for n in names))
        self.write("sys/fs/cgroup/pod/ours/memory.current", "900\n")
        self.write("sys/fs/cgroup/pod/ours/memory.max", "1000\n")

    def watch(self) -> HostWatch:
        self.stream = stream_in(self.folder, self.clock, "host")
        around = Surroundings(
            self.folder, self.roots, self.tunnels, lambda: self.clock.ms() + self.set_ms, self.clock.s,
            lambda: self.offset_ms,
        )  # fmt: skip
        return HostWatch(self.stream.source(), around)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in content(self.stream).splitlines()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def seconds(machine: Machine, watch: HostWatch, count: int) -> None:
    for _ in range(count):
        watch.look()
        machine.clock.now_s += 1


def test_a_line_each_ten_seconds(machine: Machine) -> None:
    watch = machine.watch()
    machine.offset_ms = 1234.4
    seconds(machine, watch, 1)
    machine.counters(read=14, written=30, received=1500, sent=2600)
    seconds(machine, watch, 19)
    first, second = machine.lines()
    assert second["time_ms"] - first["time_ms"] == 10_000
    assert first["load_1m"] == 1.5
    assert (first["ram_available_bytes"], first["swap_used_bytes"]) == (400 << 10, 70 << 10)
    assert (first["cgroup_memory_bytes"], first["cgroup_memory_limit_bytes"]) == (900, 1000)
    assert (first["disk_read_bytes"], first["net_received_bytes"], first["clock_offset_ms"]) == (0, 0, 1234)
    assert (second["disk_read_bytes"], second["disk_written_bytes"]) == (4 * 512, 10 * 512)
    assert (second["net_received_bytes"], second["net_sent_bytes"]) == (500, 600)
    assert first["disk_free_bytes"] > 0
    assert b"oom" not in content(machine.stream), "nothing happened: no line may say the word"
    assert watch.latest()["ram_available_bytes"] == 400 << 10
    assert all(isinstance(value, float) for value in watch.latest().values())


def test_a_kill_for_memory_is_told_at_once_and_counted(machine: Machine) -> None:
    machine.v2(oom_kill=3)  # of others before us
    watch = machine.watch()
    seconds(machine, watch, 3)
    machine.v2(oom_kill=4, oom=1, max=7)
    seconds(machine, watch, 1)
    told = [line for line in machine.lines() if "event" in line]
    assert [(line["event"], line[line["event"]]) for line in told] == [("oom", 1), ("oom_kill", 1)]
    assert told[1]["cgroup_memory_limit_bytes"] == 1000
    seconds(machine, watch, 8)
    assert machine.lines()[-1]["cgroup_events"] == {"max": 7, "oom": 1, "oom_kill": 1}


def test_cgroups_of_version_1_and_none_at_all(machine: Machine, tmp_path: Path) -> None:
    machine.write("proc/self/cgroup", "4:memory:/docker/abc\n1:cpu:/docker/abc\n0::/\n")
    folder = "sys/fs/cgroup/memory"  # a container with a namespace of its own sees its cgroup as the root
    machine.write(f"{folder}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    machine.write(f"{folder}/memory.failcnt", "55\n")
    machine.write(f"{folder}/memory.usage_in_bytes", "123\n")
    machine.write(f"{folder}/memory.limit_in_bytes", "9223372036854771712\n")
    cgroup = Cgroup(machine.roots)
    assert cgroup.events() == {"oom_kill": 2, "max": 55}
    assert cgroup.memory() == (123, None)
    nothing = Cgroup(Roots(tmp_path / "none", tmp_path / "none"))
    assert (nothing.events(), nothing.memory()) == ({}, (None, None))


def test_a_machine_that_shows_nothing_is_no_trouble(machine: Machine, tmp_path: Path) -> None:
    machine.roots = Roots(tmp_path / "none", tmp_path / "none", tmp_path / "none")
    watch = machine.watch()
    seconds(machine, watch, 1)
    (line,) = machine.lines()
    assert line["load_1m"] == 0.0
    assert "ram_available_bytes" not in line


def test_a_clock_that_is_set(machine: Machine) -> None:
    watch = machine.watch()
    seconds(machine, watch, 2)
    machine.set_ms = -3_600_000
    seconds(machine, watch, 2)
    assert [line["by_ms"] for line in machine.lines() if line.get("event") == "clock_set"] == [-3_600_000]


def test_a_tunnel_that_comes_and_goes(machine: Machine) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        machine.tunnels = {"tunnel:1234": server.getsockname()[1]}
        watch = machine.watch()
        seconds(machine, watch, 10)
        server.listen()
        seconds(machine, watch, 20)
    seconds(machine, watch, 10)
    assert [line["event"] for line in machine.lines() if "event" in line] == ["tunnel_down", "tunnel_up", "tunnel_down"]
    assert machine.lines()[-1]["tunnels"] == {"tunnel:1234": "down"}


def test_the_last_look_is_a_line_and_the_last_one(machine: Machine) -> None:
    watch = machine.watch()
    seconds(machine, watch, 2)
    machine.v2(oom_kill=1)
    watch.stop()
    watch.stop()
    watch.look()
    assert [line.get("event", "line") for line in machine.lines()] == ["line", "oom_kill", "line"]


def kernel(machine: Machine, klog: Any = None) -> KernelLog:
    def refused() -> bytes:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    machine.stream = stream_in(machine.folder, machine.clock, "kernel")
    return KernelLog(machine.stream.source(), machine.roots.kmsg, lambda: 1000.0, klog or refused)


def test_kernel_messages_since_shortly_before_we_began(machine: Machine) -> None:
    old, new = int((1000 - BEFORE_S - 1) * 1e6), int((1000 - BEFORE_S + 1) * 1e6)
    machine.write(
        "kmsg",
        f"6,1,{old},-;old\n4,2,{new},-;NVRM: Xid (PCI:0000:41:00): 79\n SUBSYSTEM=pci\n3,3,{new + 1},c,x=1;a;b\n",
    )
    log = kernel(machine)
    log.look()
    assert content(machine.stream) == b"[  701.000000] NVRM: Xid (PCI:0000:41:00): 79\n[  701.000001] a;b\n"
    with machine.roots.kmsg.open("a") as file:
        file.write(f"4,4,{new + 2},-;Out of")
        file.flush()
        log.look()
        file.write(" memory: Killed process 7\n")
    log.look()
    assert content(machine.stream).endswith(b"[  701.000002] Out of memory: Killed process 7\n")


def test_a_kernel_that_floods_its_log_does_not_take_our_time(machine: Machine) -> None:
    os.mkfifo(machine.roots.kmsg)
    log = kernel(machine)
    with machine.roots.kmsg.open("wb", buffering=0) as pipe:
        for i in range(400):
            pipe.write(f"6,{i},1000000000,-;{i}{'.' * 50}\n".encode())
        log.look()
    assert content(machine.stream).count(b"\n") == 400 < MOST_LINES


def test_dmesg_where_there_is_no_device(machine: Machine) -> None:
    said = [b"<6>[  100.000000] old\n<4>[  990.500000] one\n"]
    log = kernel(machine, lambda: said[0])
    log.look()
    said[0] += b"<4>[  990.500000] two\n<2>[ 1001.000000] three\n"
    log.look()
    log.look()
    assert content(machine.stream).splitlines() == [
        b"[  990.500000] one", b"[  990.500000] two", b"[ 1001.000000] three",
    ]  # fmt: skip


def test_kernel_messages_that_may_not_be_read_are_one_line(machine: Machine) -> None:
    log = kernel(machine)
    log.look()
    log.look()
    text = content(machine.stream).decode()
    assert text.startswith("kernel messages can't be read on this machine (")
    assert text.endswith("kmsg: No such file or directory; dmesg: Operation not permitted)\n")
    assert text.count("\n") == 1
