"""The control image: what is in it, its entrypoint, and the whole demo inside."""

from __future__ import annotations

import re

from tests.images.builder import Buildah, Container, HostPip

# Containers here share this machine's network: the embedded stack chooses free ports of loopback.
FREE_PORTS = {"PROVEFLEET_SITE_BIND": "", "PROVEFLEET_AGENT_BIND": ""}


def test_it_is_not_root_and_keeps_state_private(control: Container) -> None:
    done = control.run("sh", "-c", "id -u; stat -c '%U %a' /var/lib/provefleet; touch /opt/provefleet/x")
    assert done.stdout.splitlines()[:2] == ["10001", "provefleet 700"]
    assert "Permission denied" in done.stdout


def test_only_the_product_is_inside(control: Container) -> None:
    inside = "import web, jobs, gpu, logs; print('rooms'); import pip"
    done = control.run("python", "-P", "-c", inside)
    assert "rooms" in done.stdout
    assert "No module named 'pip'" in done.stdout
    assert control.run("sh", "-c", "ls /src /build /wheel /run/secrets").returncode != 0


def test_nothing_of_the_build_host_stays(buildah: Buildah, control: Container, host_pip: HostPip) -> None:
    everything = str(buildah.facts(control.image))
    places = "/etc/pip.conf /etc/xdg/pip /root/.config/pip /var/lib/provefleet"
    everything += control.run("sh", "-c", f"cat {places}; env").stdout
    assert not [trace for trace in host_pip.traces() if trace in everything]


def test_health_check_and_ports(buildah: Buildah, control_image: str) -> None:
    config = buildah.facts(control_image)["config"]
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/local/bin/entrypoint", "health", "site"]
    assert set(config["ExposedPorts"]) == {"8000/tcp", "8001/tcp"}
    assert config["Labels"]["org.opencontainers.image.licenses"] == "MIT"


def test_entrypoint_passes_commands_on(control: Container) -> None:
    assert "Usage: provefleet" in control.enter("--help").stdout
    assert control.enter("no-such-command").returncode == 2


def test_wrong_settings_are_one_line(control: Container) -> None:
    done = control.enter("worker", env={"PROVEFLEET_S3_ENDPOINT": "http://s3.invalid"})
    assert done.returncode == 1
    assert "PROVEFLEET_S3_ACCESS_KEY_ID" in done.stdout
    assert "Traceback" not in done.stdout


def test_health_says_what_is_wrong(control: Container) -> None:
    done = control.enter("health", "reconcile")
    assert done.returncode == 1
    assert "FAIL  reconcile" in done.stdout
    assert control.enter("health", "postgres").returncode == 2


def test_the_whole_demo(control: Container) -> None:
    done = control.enter("demo", "--once", env=FREE_PORTS, timeout_s=300)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert done.returncode == 0, done.stdout[-4000:]
    print(lines[-1])
    expected = r"demo: ok run=\w+ proofs=12 verified=12 proofs_per_hour=\d\S* chunks=\d+ "
    assert re.fullmatch(expected + "evidence=complete instance=destroyed", lines[-1])
