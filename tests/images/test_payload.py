"""The payload image: agent and prover, and nothing of the control plane."""

from __future__ import annotations

from tests.images.builder import Buildah, Container
from tests.images.conftest import GPU_ARCHITECTURES

PROVE = """
set -e
provefleet circuit chain 512 c.r1cs c.wtns --curve bn254
provefleet setup c.r1cs c.zkey --insecure
provefleet vkey c.zkey vkey.json
provefleet prove c.zkey c.wtns proof.json public.json
provefleet verify vkey.json public.json proof.json
echo verified
echo '["5"]' > wrong.json
provefleet verify vkey.json wrong.json proof.json
"""


def test_the_agent_says_what_it_lacks(payload: Container) -> None:
    done = payload.enter()
    assert done.returncode == 2
    assert "PROVEFLEET_AGENT_URL must be" in done.stdout
    assert "Traceback" not in done.stdout
    done = payload.enter(env={"PROVEFLEET_AGENT_URL": "https://controller.invalid"})
    assert done.returncode == 2
    assert "PROVEFLEET_BOOTSTRAP_TOKEN is missing" in done.stdout


def test_it_proves_and_verifies(payload: Container) -> None:
    done = payload.run("sh", "-c", PROVE, timeout_s=300)
    proved, _, wrong = done.stdout.partition("verified\n")
    assert "OK" in proved, done.stdout[-3000:]
    # The other public value is refused.
    assert wrong, done.stdout[-3000:]
    assert done.returncode == 1


def test_it_brings_gpu_kernels_and_no_compiler(payload: Container) -> None:
    listing = "from gpu.cuda.images import images_for; print(len(images_for((9, 0))), len(images_for((13, 0))))"
    done = payload.run("python", "-P", "-c", listing)
    assert done.returncode == 0, done.stdout
    machine_code, ptx = map(int, done.stdout.split())
    assert machine_code == ptx > 40
    assert payload.run("python", "-P", "-c", "import cuda.bindings.driver").returncode == 0
    for module in ("numba_cuda", "nvidia"):
        assert payload.run("python", "-P", "-c", f"import {module}").returncode == 1, module


def test_it_holds_no_control_plane(payload: Container) -> None:
    for module in ("web", "jobs", "flask", "sqlalchemy", "boto3", "pip"):
        assert payload.run("python", "-P", "-c", f"import {module}").returncode == 1, module
    done = payload.run("provefleet", "up")
    assert "not part of this installation" in done.stdout


def test_it_is_small_and_says_what_it_is(buildah: Buildah, payload_image: str, control_image: str) -> None:
    sizes = {image: buildah.megabytes(image) for image in (payload_image, control_image)}
    print(f"sizes in MB: {sizes}")
    assert sizes[payload_image] < 540
    assert sizes[control_image] < 850
    config = buildah.facts(payload_image)["config"]
    assert config["User"] == "prover"
    assert config["Labels"]["provefleet.payload"] == "groth16"
    assert config["Labels"]["provefleet.gpu-architectures"] == GPU_ARCHITECTURES


def test_its_protocol_label_is_the_code_s(buildah: Buildah, payload_image: str) -> None:
    from gpu.protocol import VERSION

    assert buildah.facts(payload_image)["config"]["Labels"]["provefleet.agent-protocol"] == str(VERSION)
