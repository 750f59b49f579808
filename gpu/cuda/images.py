"""Where the compiled kernels lie, and which of them a GPU runs.

`python -m gpu.cuda.build` writes the folder: machine code (cubins), one set for each architecture, PTX for newer
ones, and `manifest.json`, which names them:

    {"sources": digest, "images": {"sm_86": [file, ...], "sm_90": [...], ..., "compute_86": [file, ...]}}
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from gpu.cuda.device import KernelsMissing

SETTING = "PROVEFLEET_CUDA_KERNELS"
_IN_PACKAGE = Path(__file__).parent / "kernels"


def kernel_folder() -> Path:
    """The folder that PROVEFLEET_CUDA_KERNELS names, else the one in this package. KernelsMissing without kernels."""
    folder = Path(os.environ.get(SETTING) or _IN_PACKAGE)
    if not (folder / "manifest.json").is_file():
        raise KernelsMissing(
            f"{folder}: no compiled GPU kernels there; make them with python -m gpu.cuda.build {folder}, "
            f"or say where they are by {SETTING}"
        )
    return folder


def images_for(capability: tuple[int, int]) -> list[bytes]:
    """The kernels for a GPU: machine code of its own generation, of its own or an older revision; PTX for a newer one.

    KernelsMissing when the folder has neither, or can't be read.
    """
    folder = kernel_folder()
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        chosen = _choose(manifest["images"], capability)
        if chosen is None:
            raise KernelsMissing(
                f"{folder}: no kernels for compute capability {capability[0]}.{capability[1]} among "
                f"{', '.join(sorted(manifest['images']))}; build them with python -m gpu.cuda.build"
            )
        return [(folder / name).read_bytes() for name in manifest["images"][chosen]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KernelsMissing(f"{folder}: the compiled kernels can't be read ({error}); build them again") from error


def _choose(images: dict[str, list[str]], capability: tuple[int, int]) -> str | None:
    """The name of the best set: exact or older machine code of the same major version, then the newest PTX."""
    best: tuple[int, tuple[int, int], str] | None = None
    for name in images:
        kind, number = re.fullmatch(r"(sm|compute)_(\d+)", name).groups()  # type: ignore[union-attr]
        of = divmod(int(number), 10)
        fits = of <= capability and (kind == "compute" or of[0] == capability[0])
        if fits and (best is None or (kind == "sm", of) > best[:2]):
            best = (int(kind == "sm"), of, name)
    return best[2] if best else None
