"""Checks of the machine itself: Python, packages, the state folder, GPUs, the prover."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from jobs.services.finding import Finding, fail, ok, warn
from jobs.services.programs import PYTHON
from jobs.services.state import NEED_FREE_BYTES, owner_name
from jobs.settings import Settings

LOW_FREE_BYTES = 10 * NEED_FREE_BYTES


def packages(_settings: Settings) -> Iterator[Finding]:
    """Python, and each package that the control plane asks for, at a version that it accepts."""
    yield ok("python", f"{platform.python_version()} ({PYTHON[0]})")
    from packaging.requirements import Requirement

    wrong = []
    wanted = [Requirement(line) for line in requires("provefleet") or []]
    needed = [r for r in wanted if r.marker is None or r.marker.evaluate({"extra": "control"})]
    for requirement in needed:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found} is not {requirement.specifier}")
    if wrong:
        yield fail("packages", "; ".join(wrong), "Install them: pip install --upgrade 'provefleet[control]'")
    else:
        yield ok("packages", f"provefleet {version('provefleet')} and the {len(needed)} that it needs")


def state_folder(settings: Settings) -> Iterator[Finding]:
    """Ours, private, writable, with room."""
    path = settings.state_dir
    if not path.is_dir():
        why = "is a file" if path.exists() else "is not there"
        yield fail("state folder", f"{path} {why}", "Start the stack, which makes it: provefleet up")
        return
    info = path.stat()
    if info.st_uid != os.geteuid():
        owner = owner_name(info.st_uid)
        yield fail("state folder", f"{path} belongs to {owner}", f"Run as {owner}, or set PROVEFLEET_STATE_DIR")
        return
    if info.st_mode & 0o077:
        yield fail(
            "state folder", f"others may enter {path} (mode {stat.S_IMODE(info.st_mode):o})", f"chmod 700 {path}"
        )
    elif not os.access(path, os.W_OK):
        yield fail("state folder", f"{path} can't be written", "Remount its disk, or set PROVEFLEET_STATE_DIR")
    else:
        yield ok("state folder", f"{path}, private")
    free = shutil.disk_usage(path).free
    text = f"{free / 1e9:.1f} GB are free for {path}"
    if free < NEED_FREE_BYTES:
        yield fail("disk", text, "Free some space: uploads and logs stop when the disk is full")
    elif free < LOW_FREE_BYTES:
        yield warn("disk", text, "Free some space before large keys are uploaded")
    else:
        yield ok("disk", text)


def gpus(_settings: Settings) -> Iterator[Finding]:
    """What NVML shows. No GPU is fine: the CPU proves then, and the market has others."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield ok("gpu", f"none that NVML shows here ({error}); this machine proves on its CPU")
        return
    try:
        names = [
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())
        ]
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        yield warn("gpu", f"NVML fails: {error}", "Look at the driver: nvidia-smi")
        return
    finally:
        pynvml.nvmlShutdown()
    yield ok("gpu", f"{', '.join(names) or 'none'}, driver {driver}")


def prover(settings: Settings) -> Iterator[Finding]:
    """The prover can be imported, in a process of its own as a machine runs it."""
    argv = [*PYTHON, "-m", "provefleet", "prove", "--help"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        yield fail("prover", "`provefleet prove --help` takes more than 10 s", "Is this machine overloaded?")
        return
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        yield fail("prover", last, "Reinstall: pip install --upgrade provefleet")
    else:
        yield ok("prover", f"can be loaded; backend {settings.prover_backend}")
