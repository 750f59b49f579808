"""The end of an instance: everything shipped and sealed, or, without a controller, one zip put where it was told to."""

from __future__ import annotations

import hashlib
import http.client
import io
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from gpu.agent.account import Account
from gpu.agent.client import Client, Refused, Unreachable, delays
from gpu.agent.orders import Orders
from gpu.agent.shipper import Shipper
from gpu.protocol import Seal, Spec, Upload
from logs.emergency import pack_emergency
from logs.wire import MAX_ARTIFACT_BYTES, MAX_ARTIFACTS_PER_INSTANCE

PUT_TIMEOUT_S = 60.0
EMERGENCY_S = 600.0
POLL_S = 0.1
ERROR_FILES = 10


class Sealer:
    """Ships artifacts and seals. Waits for a controller or a store that is away until `orders` say that it is over."""

    def __init__(self, client: Client, shipper: Shipper, orders: Orders, account: Account):
        self.sealed = False
        self._client, self._shipper, self._orders, self._account = client, shipper, orders, account
        self._artifacts = 0

    def upload_artifacts(self, folder: Path, round_number: int) -> None:
        """The bench's own account of one round, and what it says of the first proofs that failed. All results
        went up already, and the controller keeps them with its verdicts; sealing has a deadline."""
        files = [(f"round-{round_number}/progress.jsonl", folder / "progress.jsonl")]
        errors = sorted((folder / "proofs").glob("*/error.txt"))[:ERROR_FILES]
        files += [(f"round-{round_number}/{error.parent.name}/error.txt", error) for error in errors]
        for name, path in files:
            if not path.is_file() or path.is_symlink() or self._orders.is_over():
                continue
            if self._artifacts >= MAX_ARTIFACTS_PER_INSTANCE:
                self._shipper.log(f"artifacts from {name} on are left out: {MAX_ARTIFACTS_PER_INSTANCE} is the most")
                return
            self._artifacts += 1
            self._upload(name, path)

    def _upload(self, name: str, path: Path) -> None:
        waits = delays()
        while not self._orders.is_over():
            try:
                if path.stat().st_size > MAX_ARTIFACT_BYTES:
                    raise OSError(f"{path.stat().st_size} bytes are too many")
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                self._client.put_artifact(name, path, digest)
                return
            except (Refused, OSError) as error:
                self._shipper.log(f"artifact {name} is left out: {error}")
                return
            except Unreachable as error:
                self._shipper.log(f"artifact {name} has to wait: {error}")
                time.sleep(next(waits))

    def seal(self, reason: str) -> None:
        """Flush, ship, tell the ends of all streams, ship again what is missing. Leaves `sealed` False when it was
        over before that."""
        self._shipper.log(f"seals: {reason}")
        self._shipper.close_setup()
        waits = delays()
        while not self._orders.is_over():
            if not self._shipper.drained():
                time.sleep(POLL_S)
                continue
            try:
                reply = self._client.seal(self.manifest(reason))
            except (Unreachable, Refused):
                time.sleep(next(waits))
                continue
            if reply.accepted and not reply.missing:
                self.sealed = True
                return
            self._shipper.ship_again(reply.missing)
            if self._shipper.drained():  # what it lacks we do not have: the gap is the controller's to record
                self.sealed = reply.accepted
                time.sleep(next(waits))
                if self.sealed:
                    return

    def manifest(self, reason: str) -> Seal:
        """The agent's own account, gaps included."""
        gaps = "".join(f"; stream {name}: {gap}" for name, gap in self._shipper.gaps().items())
        return Seal(streams=self._shipper.ends(), reason=reason + gaps, **self._account.told())


def emergency_zip(spec: Spec, manifest: Seal, shipper: Shipper) -> tuple[bytes, int]:
    """All that the controller does not have, and how many chunks that is. In memory: the disk may be the trouble."""
    file = io.BytesIO()
    told = {**manifest.to_json(), "run": spec.run, "instance": spec.instance}
    packed = pack_emergency(file, told, shipper.unacknowledged())
    return file.getvalue(), packed


def put_emergency(upload: Upload, until: float, data: bytes, give_up: Callable[[], bool]) -> str:
    """PUT the zip, again and again until the monotonic time `until`; "" once it is there, else what went wrong."""
    waits, trouble = delays(1.0, 20.0), "its URL had expired"
    deadline = min(until, time.monotonic() + EMERGENCY_S)
    while time.monotonic() < deadline and not give_up():
        try:
            status = _put(upload, data)
        except (OSError, http.client.HTTPException) as error:
            trouble = f"{type(error).__name__}: {error}"
        else:
            if status in (200, 201, 204, 412):  # 412: an earlier try of ours got through
                return ""
            trouble = f"the store answers {status}"
            if 400 <= status < 500 and status not in (408, 429):
                break
        time.sleep(next(waits))
    return trouble


def _put(upload: Upload, data: bytes) -> int:
    parts = urlsplit(upload.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=PUT_TIMEOUT_S)
    try:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request("PUT", path, data, upload.headers)
        response = connection.getresponse()
        response.read(4096)
        return response.status
    finally:
        connection.close()
