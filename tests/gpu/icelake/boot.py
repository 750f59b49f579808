"""Builds the program, puts it on a CD, boots Bochs from it, and reads what the serial port was told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MACHINE = Path(__file__).parent / "machine"
# Debian's packages: bochs bochsbios vgabios isolinux syslinux-common xorriso, and gcc.
PROGRAMS = ("bochs", "gcc", "ld", "objcopy", "xorriso")
LOADER = (
    Path("/usr/lib/ISOLINUX/isolinux.bin"),
    *(Path("/usr/lib/syslinux/modules/bios") / name for name in ("ldlinux.c32", "mboot.c32", "libcom32.c32")),
)
_FREESTANDING = "-O1 -ffreestanding -fno-pic -mno-red-zone -mgeneral-regs-only -fno-stack-protector -mcmodel=large"
_EL_TORITO = "-b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table"


def missing() -> list[str]:
    """What must be installed first; empty when nothing."""
    programs = [name for name in PROGRAMS if shutil.which(name) is None]
    return programs + [str(path) for path in LOADER if not path.exists()]


def run_cases(folder: Path, patience_s: float) -> str:
    """What the program said. TimeoutError when it has not ended after `patience_s`."""
    for step, emulated in (("compile", "0"), ("answer", "1")):
        command = [sys.executable, "-m", "tests.gpu.icelake.cases", step, str(folder)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PROVEFLEET_IFMA_EMULATED": emulated}, check=True)
    _build(folder)
    return _boot(folder, patience_s)


def _build(folder: Path) -> None:
    def run(command: str, *paths: Path) -> None:
        subprocess.run([*command.split(), *map(str, paths)], cwd=folder, check=True)

    run(f"gcc -c {_FREESTANDING} -I. -o main.o", MACHINE / "main.c")
    run("gcc -c -m64 -o start.o", MACHINE / "start.S")
    run("ld -n -no-pie --no-warn-rwx-segments -o program64 start.o main.o operations.o -T", MACHINE / "link.ld")
    (folder / "cd" / "isolinux").mkdir(parents=True)
    # A multiboot loader takes 32-bit ELF files only; the code in it may be of any width.
    run("objcopy -I elf64-x86-64 -O elf32-i386 program64 cd/program")
    for path in (*LOADER, MACHINE / "isolinux.cfg"):
        shutil.copy(path, folder / "cd" / "isolinux")
    run(f"xorriso -as mkisofs -quiet -o cd.iso {_EL_TORITO} cd")


def _boot(folder: Path, patience_s: float) -> str:
    (folder / "commands").write_text("c\n")  # Debian's Bochs is a debugger that waits to be told to continue
    serial, deadline = folder / "serial.txt", time.monotonic() + patience_s
    with (folder / "bochs.out").open("wb") as out:
        command = ["bochs", "-q", "-f", str(MACHINE / "bochsrc"), "-rc", "commands"]
        bochs = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            while time.monotonic() < deadline:
                said = serial.read_text() if serial.exists() else ""
                if "DONE" in said and said.endswith("\n"):
                    return said
                if bochs.poll() is not None:
                    raise RuntimeError(f"bochs ended with {bochs.returncode}; its log is {folder / 'bochs.log'}")
                time.sleep(0.2)
        finally:
            bochs.kill()
            bochs.wait()
    raise TimeoutError(f"no end after {patience_s} s; so far: {said[-400:]!r}")
