"""Lives that go wrong, each the case of its name. Loading ones begin like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.fakes.vast.instances import Instance
from tests.fakes.vast.stages import LAYERS, normal, provisioning, pulling, starting

if TYPE_CHECKING:
    from tests.fakes.vast.lifecycle import Lifecycle


def silent(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N8: loading for ever, and never another word."""
    yield from provisioning(life, i)
    life.set(i, actual="loading", msg=f"{LAYERS[0]}: Pulling fs layer")


def slow(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N9: forty minutes of loading, moving on all the time."""
    yield from provisioning(life, i)
    yield from pulling(life, i, 40 * 60.0)
    yield from starting(life, i)


def stuck(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N10: all is downloaded, and the extraction never ends."""
    yield from provisioning(life, i)
    for layer in LAYERS:
        life.set(i, actual="loading", msg=f"{layer}: Download complete")
        yield 5.0
    life.set(i, msg=f"{LAYERS[-1]}: Extracting")


def no_manifest(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N11: no such image; Vast gives up by itself after seven minutes."""
    yield from provisioning(life, i)
    text = f"Error response from daemon: manifest for {i.image} not found: manifest unknown: manifest unknown"
    life.set(i, actual="loading", msg=text)
    i.say(life.now_ms, text)
    yield 7 * 60.0
    life.set(i, intended="stopped")


def oci_error(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N12: the container was created and can't be started."""
    yield from provisioning(life, i)
    text = (
        "Error response from daemon: failed to create task for container: failed to create shim task:"
        " OCI runtime create failed: runc create failed: unable to start container process: error during container"
        " init: error running hook #0: nvidia-container-cli: initialization error: driver error: failed to process"
    )
    life.set(i, actual="created", msg=text)
    i.say(life.now_ms, text)


def port_taken(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N3: two instances on one slice; the second can't have its ports."""
    yield from provisioning(life, i)
    text = (
        "Error response from daemon: driver failed programming external connectivity on endpoint"
        f" C.{i.id}: Bind for 0.0.0.0:{20_000 + i.id % 40_000} failed: port is already allocated"
    )
    life.set(i, actual="created", msg=text)
    i.say(life.now_ms, text)


def hidden_from_show(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N6: showing it says null for half a minute, the list has it."""
    i.shown_from_ms = life.now_ms + 30_000
    yield from normal(life, i)


def hidden_from_list(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N7: the list lacks it for half a minute, showing it works."""
    i.listed_from_ms = life.now_ms + 30_000
    yield from normal(life, i)


def late_ports(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N13: it runs, and has its ports only after twenty seconds."""
    yield from no_ports(life, i)
    yield 20.0
    life.set(i, ports_open=True)


def no_ports(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N13: it runs, and never has ports."""
    yield from normal(life, i)
    life.set(i, ports_open=False)


def no_direct_ssh(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N14: ssh answers through the proxy alone."""
    i.ssh_direct_up = False
    yield from normal(life, i)


def no_proxy_ssh(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N14: ssh answers on the direct address alone."""
    i.ssh_proxy_up = False
    yield from normal(life, i)


def no_driver(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N15: it runs, and nvidia-smi fails."""
    i.truth["nvidia_smi"] = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    yield from normal(life, i)
    i.write(life.now_ms, f"{i.truth['nvidia_smi']}\n")


def other_gpu(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N15: it runs, with another GPU than it was let with."""
    i.truth.update(gpu_name="GTX 1070", gpu_ram=8192)
    yield from normal(life, i)


def less_vram(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N15: it runs, with half the memory that was promised."""
    i.truth.update(gpu_ram=i.machine.gpu.ram_mb // 2)
    yield from normal(life, i)


def killed(life: Lifecycle, i: Instance, after_s: float = 60.0) -> Iterator[float]:
    """N16: it runs, and a minute later its process is killed."""
    yield from normal(life, i)
    yield after_s
    i.write(life.now_ms, "Killed\n")
    life.exit(i, 137)


def restarting(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N17: exited for ten seconds, and running again."""
    yield from normal(life, i)
    yield 60.0
    life.set(i, actual="exited", ports_open=False, exit_code=1)
    yield 10.0
    life.run(i)


def blip(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N18: no heartbeat for a minute."""
    yield from normal(life, i)
    yield 60.0
    life.set(i, actual="unknown")
    yield 60.0
    life.set(i, actual="running")


def offline(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N19: the host is away for an hour, and bills again when it is back."""
    yield from normal(life, i)
    yield 60.0
    life.set(i, actual="offline")
    yield 3600.0
    life.set(i, actual="running")


def outbid(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N20: outbid in the thirtieth second, back by itself five minutes later."""
    yield from normal(life, i)
    yield 30.0
    life.outbid(i, 300.0)


def ending(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N22: the contract ends ten minutes after it began."""
    i.end_ms = life.now_ms + 600_000
    life.market.clock.at(i.end_ms, lambda: life.expire(i))
    yield from normal(life, i)


def unheard(life: Lifecycle, i: Instance) -> Iterator[float]:
    """N33: a status that no document names, for two minutes."""
    yield from normal(life, i)
    yield 60.0
    life.set(i, actual="hibernating")
    yield 120.0
    life.set(i, actual="running")


# What goes wrong with machines by themselves, without anybody's doing.
TROUBLES = (silent, slow, stuck, oci_error, no_driver, less_vram, killed, restarting, blip, offline)
