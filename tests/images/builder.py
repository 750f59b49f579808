"""Builds and runs images where no container engine is: buildah with chroot isolation, on a base made by debootstrap.

Everything it makes lies in one folder (`PROVEFLEET_IMAGES_CACHE`, by default ~/.cache/provefleet-images), so that
nobody's own images are touched and the base is made once.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BASE = "localhost/provefleet-base:bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"


class ImagesError(RuntimeError):
    """A build or an import failed; the end of its output says why."""


def cache_folder() -> Path:
    return Path(os.environ.get("PROVEFLEET_IMAGES_CACHE") or Path.home() / ".cache" / "provefleet-images")


def run(argv: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Output and error in one text."""
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", timeout=timeout_s, check=False,
    )  # fmt: skip


def must(argv: list[str], timeout_s: float) -> str:
    done = run(argv, timeout_s)
    if done.returncode:
        raise ImagesError(f"{' '.join(argv[:6])} ... ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def storage_driver(folder: Path) -> str:
    """overlay where the kernel lets us mount one in `folder`; else vfs, which copies whole images but always works."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        for name in ("lower", "upper", "work", "merged"):
            (Path(made) / name).mkdir()
        layers = f"lowerdir={made}/lower,upperdir={made}/upper,workdir={made}/work"
        if run(["mount", "-t", "overlay", "overlay", "-o", layers, f"{made}/merged"], 10).returncode:
            return "vfs"
        must(["umount", f"{made}/merged"], 10)
        return "overlay"


class Buildah:
    """buildah on a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self.driver = storage_driver(folder)
        root, state = folder / self.driver, folder / f"{self.driver}-run"
        self._argv = ["buildah", "--root", str(root), "--runroot", str(state), "--storage-driver", self.driver]

    def call(self, *arguments: str, timeout_s: float = 120) -> str:
        return must([*self._argv, *arguments], timeout_s).strip()

    def tidy(self) -> None:
        """Removes containers of killed runs, and images that newer ones replaced."""
        self.call("rm", "--all")
        self.call("rmi", "--prune")

    def has(self, image: str) -> bool:
        return image in self.call("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()

    def megabytes(self, image: str) -> int:
        """What the files of the image take."""
        container = self.call("from", "--pull-never", image)
        try:
            root = self.call("mount", container)
            return int(must(["du", "-sm", root], 60).split()[0])
        finally:
            self.call("rm", container)

    def facts(self, image: str) -> dict:
        """`inspect`, as Docker's own format has it."""
        return json.loads(self.call("inspect", "--type", "image", image))["Docker"]

    def build(self, tag: str, dockerfile: str, arguments: Mapping[str, str], host: HostPip) -> None:
        flags = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        # `docker` and not OCI, because only that format has HEALTHCHECK.
        self.call(
            "bud", "--isolation", "chroot", "--format", "docker", "--pull-never", *flags, *host.flags(),
            "--tag", tag, "--file", str(REPO / "docker" / dockerfile), str(REPO), timeout_s=900,
        )  # fmt: skip


class Container:
    """A container of an image: its own files, but the network and the processes of this machine."""

    def __init__(self, buildah: Buildah, image: str) -> None:
        self._buildah = buildah
        self.image = image
        self.name = buildah.call("from", "--pull-never", image)
        config = buildah.facts(image)["config"]
        self.entrypoint, self.cmd = config["Entrypoint"], config["Cmd"] or []

    def argv(self, command: list[str], env: Mapping[str, str], mounts: Mapping[Path, str]) -> list[str]:
        flags = [f"--env={name}={value}" for name, value in env.items()]
        flags += [f"--volume={here}:{there}" for here, there in mounts.items()]
        return [*self._buildah._argv, "run", "--isolation", "chroot", *flags, self.name, "--", *command]

    def run(self, *command: str, env: Mapping[str, str] = {}, mounts: Mapping[Path, str] = {}, timeout_s: float = 120):
        argv = self.argv(list(command), env, mounts)
        done = run(argv, timeout_s)
        # Now and then buildah loses all that a short-lived process printed. Every command here may run twice.
        for _ in range(2):
            if done.returncode or done.stdout:
                break
            done = run(argv, timeout_s)
        return done

    def enter(self, *arguments: str, env: Mapping[str, str] = {}, mounts: Mapping[Path, str] = {}, timeout_s=120.0):
        """As `docker run IMAGE ARGUMENTS`: by the image's entrypoint."""
        return self.run(*self.entrypoint, *(arguments or self.cmd), env=env, mounts=mounts, timeout_s=timeout_s)

    def remove(self) -> None:
        self._buildah.call("rm", self.name)


class HostPip:
    """How pip is set up on this machine, handed to a build without becoming a part of it: the settings as the
    secret `pip.conf`, the certificates as the secret `ca.crt`, and local folders of wheels mounted where they are."""

    CERTIFICATES = "/run/secrets/ca.crt"

    def __init__(self, folder: Path) -> None:
        self._settings: dict[str, str] = {}
        self._secrets: dict[str, Path] = {}
        self._folders: set[str] = set()
        listed = run([sys.executable, "-m", "pip", "config", "list"], 60).stdout
        for line in listed.splitlines():
            name, found, value = line.partition("=")
            section, _, key = name.partition(".")
            # `:env:` is PIP_*: listed first, and wins.
            if found and section in ("global", "install", ":env:"):
                self._settings.setdefault(key.replace("_", "-"), value.strip().strip("'"))
        self._hand_over(folder)

    def _hand_over(self, folder: Path) -> None:
        certificates = self._settings.pop("cert", None) or os.environ.get("SSL_CERT_FILE")
        if certificates and Path(certificates).is_file():
            self._settings["cert"] = self.CERTIFICATES
            self._secrets["ca.crt"] = Path(certificates)
        for value in self._settings.values():
            for word in value.replace("\\n", " ").split():
                path = Path(word.removeprefix("file://"))
                if path.is_absolute() and path.exists():
                    self._folders.add(str(path))
        # pip follows the links of a local index, which lead out of its folder as a rule.
        self._folders |= {str(Path(f).parent) for f in self._folders if Path(f).name == "simple"}
        self._secrets["pip.conf"] = folder / "pip.conf"
        lines = [f"{key} = {value.replace(chr(92) + 'n', ' ')}" for key, value in self._settings.items()]
        self._secrets["pip.conf"].write_text("\n".join(["[global]", *lines, ""]))

    def flags(self) -> list[str]:
        secrets = [f"--secret=id={name},src={path}" for name, path in self._secrets.items()]
        outermost = [f for f in self._folders if not any(str(p) in self._folders for p in Path(f).parents)]
        return secrets + [f"--volume={f}:{f}:ro" for f in sorted(outermost)]

    def traces(self) -> list[str]:
        """Values that must be nowhere in an image."""
        return [word for key in self._settings for word in self._settings[key].split() if "/" in word]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """One run at a time, since each tidies up."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_base(buildah: Buildah, folder: Path) -> None:
    """A Debian 12 with Python, from the mirror that this machine's apt uses; two minutes, once."""
    if buildah.has(BASE):
        return
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    mirrors = must([*asked, "Created-By: Packages", "Codename: bookworm", "Component: main"], 60).split()
    with tempfile.TemporaryDirectory(dir=folder) as made:
        root = Path(made) / "root"
        options = ["--variant=minbase", f"--include={PACKAGES}"]
        must(["debootstrap", *options, "bookworm", str(root), *mirrors[:1]], 400)
        for rubbish in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
            shutil.rmtree(root / rubbish)
        container = buildah.call("from", "scratch")
        buildah.call("add", container, str(root), "/")
        buildah.call("config", "--cmd", "python3", container)
        buildah.call("commit", "--rm", container, BASE)
