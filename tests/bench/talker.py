"""An agent's shipper in a process of its own: lines at a steady rate, each with the time at which it was written.

    python -m tests.bench.talker FOLDER ADDRESS TOKEN LINES_A_SECOND SECONDS

A line reads `line N written at T`, T in ns since the epoch. Ends when all of them are in the archive.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from gpu.agent.client import Client
from gpu.agent.shipper import Shipper

STREAM = "talk"


def talk(folder: Path, address: str, token: str, lines_per_s: float, seconds: float) -> None:
    shipper = Shipper(folder, [token])
    shipper.start(Client(address, token), token)
    source = shipper.stream(STREAM).source()
    begun = time.monotonic()
    for number in range(1, int(lines_per_s * seconds) + 1):
        time.sleep(max(0.0, begun + number / lines_per_s - time.monotonic()))
        source.feed(b"line %d written at %d, with words as a program's line has them\n" % (number, time.time_ns()))
    source.close()
    shipper.flush()
    while not shipper.drained():
        time.sleep(0.1)
    time.sleep(1.0)  # an agent lives on to seal: what it said last goes through the tail too
    shipper.stop()


if __name__ == "__main__":
    talk(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
