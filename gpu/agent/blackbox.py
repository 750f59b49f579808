"""The black box: the streams that nobody declares, of GPUs, kernel and host, and what a lease tells of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from gpu.agent.host import HostWatch, Surroundings
from gpu.agent.kernel import KernelLog, klogctl
from gpu.agent.procfs import Roots
from gpu.agent.shipper import Shipper, wall_clock_ms
from gpu.agent.telemetry import GpuTelemetry
from gpu.protocol import Spec

GPU, KERNEL, HOST = "gpu", "kernel", "host"
_TUNNEL = re.compile(r"tunnel:(\d{1,5})")


class BlackBox:
    """Records from `start` to `stop`. `clock_offset_ms` is how far the controller's clock is ahead, None if unknown."""

    def __init__(self, work: Path, spec: Spec, shipper: Shipper, clock_offset_ms: Callable[[], float | None]):
        roots = Roots()
        kernel = KernelLog(shipper.stream(KERNEL).source(), roots.kmsg, time.monotonic, klogctl)
        around = Surroundings(work, roots, tunnels_of(spec), clock_offset_ms=clock_offset_ms)
        self._host = HostWatch(shipper.stream(HOST).source(), around, [kernel.look])
        self._gpus = GpuTelemetry(shipper.stream(GPU).source(), self._host.event, wall_clock_ms)

    @property
    def driver(self) -> str:
        """Of the GPUs; "" without any."""
        return self._gpus.driver

    @property
    def cuda(self) -> str:
        """The newest CUDA that the driver knows; "" without any."""
        return self._gpus.cuda

    def start(self) -> None:
        self._host.start()
        self._gpus.start()

    def stop(self) -> None:
        """Look a last time."""
        self._gpus.stop()
        self._host.stop()

    def event(self, name: str, **values: object) -> None:
        """A line in the `host` stream, at once."""
        self._host.event(name, **values)

    def telemetry(self) -> dict[str, float]:
        """What a lease carries; see `GpuTelemetry.latest` and `HostWatch.latest`."""
        return {**self._host.latest(), **self._gpus.latest()}


def tunnels_of(spec: Spec) -> dict[str, int]:
    """The tunnels that stages depend on: `tunnel:1234` ends at port 1234 of loopback."""
    found = (
        match for command in spec.commands.values() for match in map(_TUNNEL.fullmatch, command.depends_on) if match
    )
    return {match[0]: int(match[1]) for match in found if int(match[1]) < 65536}
