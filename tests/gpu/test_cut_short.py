"""A key that is cut short while it is being read: one line and exit code 1, not a silent death."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpu.cut_short import LINE


def test_a_file_cut_short_while_it_is_read(tmp_path: Path) -> None:
    """Read by a thread, as kernels do, with the mapping that keys use."""
    path = tmp_path / "key"
    path.write_bytes(bytes(1 << 20))
    script = (
        "import mmap, os, sys, threading\n"
        "from gpu.cut_short import explain_bus_errors\n"
        "explain_bus_errors()\n"
        "file = open(sys.argv[1], 'rb')\n"
        "view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)\n"
        "assert sum(memoryview(view)) == 0\n"
        "os.truncate(sys.argv[1], 100)\n"
        "thread = threading.Thread(target=lambda: sum(memoryview(view)))\n"
        "thread.start(); thread.join(); print('still there')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", LINE)
