"""python -m gpu.cuda.build OUT [options]: compiles the GPU kernels; needs no GPU and no driver.

OUT gets a cubin for each kernel and architecture, the PTX of each kernel (for GPUs newer than these), and
`manifest.json`: for which GPUs there is code (`images`), and for each kernel where it lies and what it takes. File
names carry their contents' digest and the manifest is replaced last, so that OUT is whole at any moment. What is up to
date is not made again: nothing when no source changed, else only kernels whose PTX did. The same sources and tools give
the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpu.cuda import toolchain
from gpu.cuda.sources import ARCHITECTURES, FORMAT, MANIFEST, PTX, sources_digest
from gpu.errors import Refused

Entry = dict[str, Any]
"""What the manifest says about a kernel."""


def build(
    out: Path,
    architectures: Sequence[str] = ARCHITECTURES,
    symbols: Sequence[str] = (),
    jobs: int | None = None,
    count: bool = False,
) -> Entry:
    """Makes `out` current and returns its manifest. Refused where a tool is missing or a kernel does not compile.

    `symbols`: only these kernels, none: all. `count`: with the number of machine instructions, for which nvdisasm takes
    longer than ptxas.
    """
    wanted = {
        "format": FORMAT,
        "sources": sources_digest(),
        "tools": toolchain.versions(),
        "counted": count,
        "only": sorted(symbols),
        "images": [*architectures, PTX],
    }
    old = _read(out)
    if old and {key: old.get(key) for key in wanted} == wanted and _complete(out, old):
        return old
    # Where the tools are the same, the same PTX gives the same cubins.
    same_tools = old and all(old.get(key) == wanted[key] for key in ("tools", "counted"))
    reusable = old["kernels"] if old and same_tools and _complete(out, old) else {}
    out.mkdir(parents=True, exist_ok=True)
    entries = _compile_all(out, list(architectures), symbols, reusable, count, jobs or os.cpu_count() or 1)
    manifest = wanted | {"kernels": dict(sorted(entries.items()))}
    _write(out / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    _tidy(out, manifest)
    return manifest


def _compile_all(
    out: Path, architectures: list[str], symbols: Sequence[str], reusable: Entry, count: bool, jobs: int
) -> Entry:
    # Each worker imports numba once; spawn, because the caller may have threads.
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        known = pool.submit(_symbols).result()
        if unknown := sorted(set(symbols) - set(known)):
            raise Refused(f"no kernel is called {', '.join(unknown)}")
        futures = [
            pool.submit(_compile, out, symbol, architectures, count, reusable.get(symbol, {}))
            for symbol in _longest_first(list(symbols) or known)
        ]
        try:
            return dict(future.result() for future in as_completed(futures))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _symbols() -> list[str]:
    from gpu.cuda.registry import kernels

    return list(kernels())


def _longest_first(symbols: list[str]) -> list[str]:
    """So that the last workers don't wait for one long kernel."""
    return sorted(symbols, key=lambda symbol: ("g2_" not in symbol, "g1_" not in symbol, symbol))


def _compile(out: Path, symbol: str, architectures: list[str], count: bool, old: Entry) -> tuple[str, Entry]:
    """One kernel for all architectures, in a worker."""
    from gpu.cuda.compile import ptx_of
    from gpu.cuda.registry import kernels

    kernel = kernels()[symbol]
    text = ptx_of(kernel)
    entry: Entry = {
        "parameters": kernel.parameters,
        "max_threads": kernel.max_threads,
        "min_blocks": kernel.min_blocks,
        PTX: _keep(out, PTX, f"{symbol}.ptx", text.encode()),
    }
    same = old.get(PTX) == entry[PTX]
    for architecture in architectures:
        if same and architecture in old:
            entry[architecture] = old[architecture]
            continue
        cubin, figures = toolchain.assemble(text, symbol, architecture)
        entry[architecture] = _keep(out, architecture, f"{symbol}.cubin", cubin) | asdict(figures)
        if count:
            counts = toolchain.instructions(cubin)
            entry[architecture] |= {"instructions": counts.total(), "imad_wide": counts["IMAD.WIDE"]}
    return symbol, entry


def _keep(out: Path, folder: str, name: str, data: bytes) -> Entry:
    """Writes a file under a name with its digest; what the manifest says about it."""
    digest = hashlib.sha256(data).hexdigest()
    stem, suffix = name.rsplit(".", 1)
    path = out / folder / f"{stem}-{digest[:8]}.{suffix}"
    path.parent.mkdir(exist_ok=True)
    _write(path, data)
    return {"file": str(path.relative_to(out)), "sha256": digest}


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def _read(out: Path) -> Entry | None:
    """The manifest there, if any of ours is readable."""
    try:
        manifest = json.loads((out / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.get("format") == FORMAT else None


def _files(manifest: Entry) -> list[Entry]:
    return [entry[image] for entry in manifest["kernels"].values() for image in manifest["images"]]


def _complete(out: Path, manifest: Entry) -> bool:
    try:
        return all(
            hashlib.sha256((out / file["file"]).read_bytes()).hexdigest() == file["sha256"] for file in _files(manifest)
        )
    except OSError:
        return False


def _tidy(out: Path, manifest: Entry) -> None:
    """Removes what earlier builds left, in the folders that builds write to."""
    kept = {out / file["file"] for file in _files(manifest)}
    for folder in (PTX, *ARCHITECTURES):
        for path in (out / folder).glob("*"):
            if path not in kept:
                path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu.cuda.build", description="Compiles the GPU kernels.")
    parser.add_argument("out", type=Path, help="the folder for kernels and manifest")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="only these (repeatable)")
    parser.add_argument("--kernel", action="append", metavar="SYMBOL", help="only these (repeatable)")
    parser.add_argument("--jobs", type=int, help="processes at once; default: one for each core")
    parser.add_argument("--count", action="store_true", help="count machine instructions too (needs nvdisasm)")
    chosen = parser.parse_args(arguments)
    architectures = [name for name in ARCHITECTURES if name in (chosen.arch or ARCHITECTURES)]
    try:
        manifest = build(chosen.out, architectures, chosen.kernel or (), chosen.jobs, chosen.count)
    except BrokenProcessPool:
        sys.stderr.write("a compiling process was killed (out of memory?); try --jobs 1\n")
        return 1
    except (Refused, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(manifest['kernels'])} kernels for {', '.join(architectures)} in {chosen.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
