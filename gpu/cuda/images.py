"""Where the compiled kernels lie, and which of them a GPU runs. `gpu.cuda.build` writes them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu.cuda.device import KernelsMissing
from gpu.cuda.sources import FORMAT, MANIFEST, sources_digest

SETTING = "PROVEFLEET_CUDA_KERNELS"
_IN_PACKAGE = Path(__file__).parent / "kernels"


def kernel_folder() -> Path:
    """The folder that PROVEFLEET_CUDA_KERNELS names, else the one in this package. KernelsMissing without kernels."""
    folder = Path(os.environ.get(SETTING) or _IN_PACKAGE)
    if not (folder / MANIFEST).is_file():
        raise KernelsMissing(
            f"{folder}: no compiled GPU kernels there; make them with python -m gpu.cuda.build {folder}, "
            f"or say where they are by {SETTING}"
        )
    return folder


def images_for(capability: tuple[int, int]) -> Mapping[str, Path]:
    """For each kernel the file that a GPU of this capability loads: machine code of its own generation, of its own or
    an older revision; for a newer GPU, PTX.

    KernelsMissing when the folder has neither, can't be read, or was made from other sources than these.
    """
    folder = kernel_folder()
    again = f"build them again: python -m gpu.cuda.build {folder}"
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if (manifest["format"], manifest["sources"]) != (FORMAT, sources_digest()):
            raise KernelsMissing(f"{folder}: the compiled GPU kernels are of another version of this program; {again}")
        chosen = _choose(list(manifest["images"]), capability)
        if chosen is None:
            raise KernelsMissing(
                f"{folder}: no kernels for compute capability {capability[0]}.{capability[1]}, only "
                f"{', '.join(sorted(manifest['images']))}; {again}"
            )
        return {symbol: folder / entry[chosen]["file"] for symbol, entry in manifest["kernels"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KernelsMissing(f"{folder}/{MANIFEST} can't be understood ({error!r}); {again}") from error


def _choose(names: list[str], capability: tuple[int, int]) -> str | None:
    """The newest machine code that runs there, else the newest PTX; None without either."""
    fitting = []
    for name in names:
        found = re.fullmatch(r"(sm|compute)_(\d+)", name)
        if found is None:
            raise ValueError(f"{name} is no architecture")
        of = divmod(int(found[2]), 10)
        if of <= capability and (found[1] == "compute" or of[0] == capability[0]):
            fitting.append((found[1] == "sm", of, name))
    return max(fitting)[2] if fitting else None
