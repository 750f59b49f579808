"""`up` on real stores: its life, its deaths, and what it never loses."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from redis import Redis, RedisError

from jobs.services import known
from jobs.settings import Settings, fill
from logs.errors import StoreError
from logs.store import S3Config, Store
from tests.jobs.services.conftest import Up, pid_of, processes_of

pytestmark = pytest.mark.timeout(240)


def settings_of(state_dir: Path) -> Settings:
    return fill(Settings(state_dir=state_dir), known.read(state_dir))


def store_of(state_dir: Path) -> Store:
    s = settings_of(state_dir)
    secret = s.s3_secret_access_key.get_secret_value()
    return Store(S3Config(s.s3_endpoint, s.s3_bucket, s.s3_region, s.s3_access_key_id, secret, ""))


def answers(redis: Redis) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            redis.ping()
            return
        except RedisError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def elsewhere(s3_config: S3Config) -> dict[str, str]:
    """Settings for an S3 store that `up` need not start, and wait 15 s for at the end."""
    return {
        "PROVEFLEET_S3_ENDPOINT": s3_config.endpoint,
        "PROVEFLEET_S3_BUCKET": s3_config.bucket,
        "PROVEFLEET_S3_ACCESS_KEY_ID": s3_config.access_key_id,
        "PROVEFLEET_S3_SECRET_ACCESS_KEY": s3_config.secret_access_key,
    }


class Writer:
    """Puts small objects without a pause and remembers those that were acknowledged."""

    def __init__(self, store: Store, first: int) -> None:
        """Returns when the first ones are acknowledged."""
        self.acknowledged: list[str] = []
        self.over = threading.Event()
        self._store = store
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        deadline = time.monotonic() + 30
        while len(self.acknowledged) < first:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _run(self) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            try:
                self._store.put(f"written/{number}", str(number).encode() * 300)
            except StoreError:
                return
            self.acknowledged.append(f"written/{number}")

    def join(self) -> list[str]:
        self.over.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
        return self.acknowledged


def missing(store: Store, keys: list[str]) -> list[str]:
    return [key for key in keys if store.get(key, 10_000) != key.split("/")[1].encode() * 300]


def test_stops_in_order_and_loses_nothing(state_dir: Path) -> None:
    up = Up(state_dir)
    up.wait_for("everything runs")
    assert "one-time password: " in up.output
    assert (state_dir.stat().st_mode & 0o777, (state_dir / "services.json").stat().st_mode & 0o777) == (0o700, 0o600)
    redis = Redis.from_url(settings_of(state_dir).redis_url.get_secret_value())
    redis.set("kept", "yes")

    second = Up(state_dir)
    assert second.process.wait(timeout=20) == 1
    assert f"pid {up.process.pid}" in second.output
    assert settings_of(state_dir).site_bind in second.output
    assert "Traceback" not in second.output

    valkey = pid_of(state_dir, "valkey-server")
    os.kill(valkey, signal.SIGKILL)
    up.wait_for("valkey was started again", 20)
    assert pid_of(state_dir, "valkey-server") != valkey
    answers(redis)
    assert redis.get("kept") == b"yes"

    writer = Writer(store_of(state_dir), first=20)
    assert up.stop(signal.SIGINT) < 30
    written = writer.join()
    assert up.process.returncode == 0, up.output
    assert processes_of(state_dir) == []
    before = json.loads((state_dir / "services.json").read_text())

    again = Up(state_dir)
    again.wait_for("everything runs")
    assert "password" not in again.output
    assert json.loads((state_dir / "services.json").read_text()) == before
    assert redis.get("kept") == b"yes"
    assert missing(store_of(state_dir), written) == []


@pytest.mark.crash
def test_killed_up_takes_all_with_it(state_dir: Path) -> None:
    up = Up(state_dir, "-m", "tests.jobs.services.standin", "stubborn")
    up.wait_for("everything runs")
    writer = Writer(store_of(state_dir), first=20)
    up.process.kill()
    up.process.wait()

    # The next one finds the first still stopping: it says so, waits, and goes on.
    following = Up(state_dir)
    following.wait_for("an earlier `up` was killed")
    first_ones = {p.pid for p in processes_of(state_dir)} - {following.process.pid}
    written = writer.join()
    following.wait_for("everything runs", 60)
    assert first_ones.isdisjoint(p.pid for p in processes_of(state_dir))
    assert missing(store_of(state_dir), written) == []

    following.process.kill()
    following.process.wait()
    deadline = time.monotonic() + 30
    while processes_of(state_dir) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_of(state_dir) == []


@pytest.mark.crash
def test_what_ignores_its_end_is_killed_in_time(state_dir: Path) -> None:
    up = Up(state_dir, "-m", "tests.jobs.services.standin", "stubborn")
    up.wait_for("everything runs")
    assert up.stop() < 30
    assert processes_of(state_dir) == []


def test_killed_supervisord_takes_all_with_it(state_dir: Path, elsewhere: dict[str, str]) -> None:
    up = Up(state_dir, **elsewhere)
    up.wait_for("everything runs")
    os.kill(int((state_dir / "supervisord.pid").read_text()), signal.SIGKILL)
    assert up.process.wait(timeout=30) == 1
    assert "supervisord ended" in up.output
    assert processes_of(state_dir) == []


def test_a_service_that_does_not_start(state_dir: Path, elsewhere: dict[str, str]) -> None:
    up = Up(state_dir, "-m", "tests.jobs.services.standin", "broken", **elsewhere)
    assert up.process.wait(timeout=60) == 1
    last = up.output.strip().splitlines()[-1]
    assert last.startswith("Error: workers does not start")
    assert "the reactor has no coolant" in last
    assert str(state_dir / "log" / "workers.log") in last
    assert processes_of(state_dir) == []


def test_path_with_every_awkward_character(state_dir: Path, elsewhere: dict[str, str]) -> None:
    awkward = state_dir.parent / "a b;c%20'é\"%(x)s?#"
    up = Up(awkward, **elsewhere)
    up.wait_for("everything runs")
    redis_url = settings_of(awkward).redis_url.get_secret_value()
    assert Redis.from_url(redis_url).ping()
    assert (awkward / "provefleet.db").stat().st_size > 0
    assert up.stop() < 15
    assert not (state_dir.parent / "a b").exists()


def test_long_path_puts_sockets_into_tmp(state_dir: Path, elsewhere: dict[str, str]) -> None:
    deep = state_dir.parent / ("deep" * 25)
    sockets = Settings(state_dir=deep).sockets_dir
    assert str(sockets).startswith("/tmp/provefleet-")
    sockets.symlink_to("/etc")
    refused = Up(deep, **elsewhere)
    assert refused.process.wait(timeout=20) == 1
    assert "it is a symbolic link" in refused.output
    sockets.unlink()
    up = Up(deep, **elsewhere)
    up.wait_for("everything runs")
    assert sockets.stat().st_mode & 0o777 == 0o700
    up.stop()
    sockets.rmdir()


def test_a_store_that_is_wrong(state_dir: Path, elsewhere: dict[str, str]) -> None:
    up = Up(state_dir, **elsewhere, PROVEFLEET_REDIS_URL="redis://:pass-word@127.0.0.1:1/0")
    assert up.process.wait(timeout=60) == 1
    assert "Redis does not answer" in up.output
    assert "pass-word" not in up.output
    assert "Traceback" not in up.output
    assert processes_of(state_dir) == []
