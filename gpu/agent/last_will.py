"""What the warden knows of its agent at every renewal of the lease, and what is done by it when the agent died.

`python -m gpu.agent.last_will SECONDS WHY` reads a `LastWill` on standard input, packs the chunks that lie on the disk
and puts them where the last renewal said. The newest two seconds of output died with the agent, so the manifest
confirms no stream's end: the evidence is then named incomplete, which it is.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu.agent.sealing import put_emergency
from gpu.agent.shipper import SETUP, SPOOL
from gpu.agent.spool import Spool
from gpu.protocol import Message, Process, Seal, Upload
from logs.chunks import ChunkRefused, open_frame
from logs.emergency import pack_emergency
from logs.wire import ChunkRecord

HEARD_BYTES = 64 * 1024


@dataclass(frozen=True)
class LastWill(Message):
    """`ends`, `emergency_until`: monotonic seconds of this machine. `acknowledged`: the first chunk of each stream that
    the controller may lack. `packs`: the agent itself is packing the evidence now."""

    run: str
    instance: str
    work: str
    ends: float
    emergency: Upload | None = None
    emergency_until: float = 0.0
    acknowledged: dict[str, int] = field(default_factory=dict)
    exit_codes: dict[str, int | None] = field(default_factory=dict)
    signals: dict[str, str] = field(default_factory=dict)
    stages_ms: dict[str, float] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    image_digest: str = ""
    driver: str = ""
    cuda: str = ""
    packs: bool = False


class Warden:
    """The warden as its agent sees it: whom to tell, and what must be masked. Without one, both are nothing."""

    def __init__(self, fd: int | None):
        self.secrets: list[str] = []
        self._fd = fd
        if fd is not None:
            os.set_inheritable(fd, False)  # the prover has no business with it
            self.secrets = json.loads(os.read(fd, HEARD_BYTES))["secrets"]
            os.set_blocking(fd, False)

    def __bool__(self) -> bool:
        return self._fd is not None

    def tell(self, will: LastWill) -> None:
        """At once or not at all: the next renewal tells more, and a stopped warden must not stop the agent."""
        if self._fd is None:
            return
        try:
            os.write(self._fd, json.dumps(will.to_json()).encode())
        except BlockingIOError:
            pass


def chunks_on_disk(spool: Path, acknowledged: Mapping[str, int]) -> Iterator[tuple[str, ChunkRecord, bytes]]:
    """What the controller may lack of every stream, the agent's own first; each up to the first chunk that is torn."""
    for folder in sorted(spool.iterdir(), key=lambda folder: (folder.name != SETUP, folder.name)):
        stored, seq = Spool(folder), acknowledged.get(folder.name, 0)
        while (chunk := stored.get(seq)) is not None:
            try:
                open_frame(chunk[1], chunk[0])
            except ChunkRefused:
                break  # the agent died while it wrote this one
            yield folder.name, *chunk
            seq += 1


def put_last_will(will: LastWill, why: str, seconds: float) -> str:
    """Pack and upload for at most `seconds`; '' once it is there, else why not."""
    if will.emergency is None:
        return "no URL was ever issued for its evidence"
    seal = Seal(
        streams={},
        exit_codes=will.exit_codes,
        signals=will.signals,
        stages_ms=will.stages_ms,
        reason=f"{why}; its warden packed what was on the disk",
        processes=will.processes,
        image_digest=will.image_digest,
        driver=will.driver,
        cuda=will.cuda,
    )
    file = io.BytesIO()
    manifest = {**seal.to_json(), "run": will.run, "instance": will.instance}
    until = min(will.emergency_until, time.monotonic() + seconds)
    try:
        pack_emergency(file, manifest, chunks_on_disk(Path(will.work) / SPOOL, will.acknowledged))
    except OSError as error:
        return f"what was on the disk can't be read: {error.strerror or error}"
    return put_emergency(will.emergency, until, file.getvalue(), lambda: False)


def main() -> int:
    """1 when the evidence could not be put."""
    seconds, why = float(sys.argv[1]), sys.argv[2]
    will = LastWill.from_json(json.load(sys.stdin))
    shutil.rmtree(Path(will.work) / "witnesses", ignore_errors=True)  # the agent could not do it
    trouble = put_last_will(will, why, seconds)
    sys.stderr.write(
        f"warden: the evidence {f'is lost with this machine: {trouble}' if trouble else 'is in the archive'}\n"
    )
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
