from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images import builder, compose
from tests.images.builder import BASE, Buildah, Container, HostPip

GPU_ARCHITECTURES = "sm_90"
"""One is as good as four, and four times as fast."""

CONTROL, PAYLOAD = "localhost/provefleet-control:test", "localhost/provefleet-payload:test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All here build or run images: `make test` leaves them out, `make test-images` runs them. The first test
    waits for its builds."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.images)
            item.add_marker(pytest.mark.timeout(960))


@pytest.fixture(scope="session")
def folder() -> Path:
    """The cache; skips where images can't be built."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("building images with chroot isolation needs root on Linux")
    missing = [tool for tool in ("buildah", "debootstrap") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (on Debian: apt-get install buildah debootstrap)")
    folder = builder.cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def buildah(folder: Path) -> Iterator[Buildah]:
    with builder.only_one(folder):
        buildah = Buildah(folder)
        buildah.tidy()
        builder.make_base(buildah, folder)
        yield buildah
        buildah.tidy()


@pytest.fixture(scope="session")
def host_pip(folder: Path) -> HostPip:
    return HostPip(folder)


def _image(buildah: Buildah, host_pip: HostPip, tag: str, dockerfile: str) -> str:
    asked = ["git", "-C", str(builder.REPO), "rev-parse", "HEAD"]
    revision = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    arguments = {"BASE": BASE, "REVISION": revision}
    if tag == PAYLOAD:
        arguments["GPU_ARCHITECTURES"] = GPU_ARCHITECTURES
    buildah.build(tag, dockerfile, arguments, host_pip)
    return tag


@pytest.fixture(scope="session")
def control_image(buildah: Buildah, host_pip: HostPip) -> str:
    return _image(buildah, host_pip, CONTROL, "control.Dockerfile")


@pytest.fixture(scope="session")
def payload_image(buildah: Buildah, host_pip: HostPip) -> str:
    return _image(buildah, host_pip, PAYLOAD, "payload.Dockerfile")


@pytest.fixture(scope="module")
def control(buildah: Buildah, control_image: str) -> Iterator[Container]:
    container = Container(buildah, control_image)
    yield container
    container.remove()


@pytest.fixture(scope="module")
def payload(buildah: Buildah, payload_image: str) -> Iterator[Container]:
    container = Container(buildah, payload_image)
    yield container
    container.remove()


@pytest.fixture(scope="session")
def services() -> dict:
    """The services of compose.yaml, resolved."""
    done = compose.config(compose.SECRETS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["services"]
