"""The archive through the machine app: with the agent's own code, the real agent, and what strangers may try."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr
from werkzeug.serving import make_server

from gpu.agent.fetch import FetchFailed, fetch
from gpu.agent.sealing import put_emergency
from gpu.protocol import Fetch, Upload
from jobs.context import Context, use
from jobs.domain import relay
from jobs.settings import Settings
from logs.store import OpenedObject, S3Config
from logs.wire import emergency_key
from tests.fakes.controller import wait_for
from tests.fakes.market import FakeMarket
from tests.jobs.agent import Agent
from tests.jobs.scene import Clock, Scene
from tests.sql import compiled_once
from web.machine_app import create_machine_app
from web.relay import AT_ONCE, AT_ONCE_AN_INSTANCE, Busy, Sending


@pytest.fixture
def context(tmp_path: Path, sqlite_template: Path, s3_config: S3Config) -> Iterator[Context]:
    """A controller whose archive is behind it: machines, rented from a marketplace on this host, can't reach it."""
    clock = Clock()
    clock.now_ms = time.time_ns() // 1_000_000
    settings = Settings(
        state_dir=tmp_path,
        database_url=SecretStr(f"sqlite:///{tmp_path / 'provefleet.db'}"),
        redis_url=SecretStr("unix:///nonexistent/valkey.sock"),
        s3_endpoint=s3_config.endpoint,
        s3_bucket=s3_config.bucket,
        s3_access_key_id=s3_config.access_key_id,
        s3_secret_access_key=s3_config.secret_access_key,
        s3_public_endpoint="http://seaweedfs:8333",
        vast_url="http://127.0.0.1:9",
    )
    shutil.copy(sqlite_template, tmp_path / "provefleet.db")
    context = compiled_once(Context(settings, now_ms=clock))
    market = FakeMarket(tmp_path / "market.json", clock)
    market.remote = True
    context.providers["local"] = market
    use(context)
    server = make_server("127.0.0.1", 0, create_machine_app(context), threaded=True)
    context.settings = settings.model_copy(update={"public_url": f"http://127.0.0.1:{server.server_port}"})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield context
    server.shutdown()
    server.server_close()
    use(None)
    context.engine.dispose()


@pytest.fixture
def scene(context: Context) -> Scene:
    market, clock = context.providers["local"], context.now_ms
    assert isinstance(market, FakeMarket)
    assert isinstance(clock, Clock)
    return Scene(context, clock, market)


def working(scene: Scene) -> tuple[Agent, Fetch, Fetch]:
    """An agent at work on uploaded files: its key, and its witness."""
    key, witness = scene.upload_fixture()
    agent = scene.registered(circuit=None, zkey_id=key, witness_ids=[witness], proofs=1)
    assert agent.registration is not None
    params = {item.name: item for item in agent.registration.spec.params}
    agent.lease("benchmark")
    return agent, params["key.zkey"], agent.pull().tasks[0].witness


def get(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def brought(what: Fetch, target: Path) -> bytes:
    fetch(what, target, time.monotonic() + 10, lambda: "", lambda at: None)
    return target.read_bytes()


def test_the_agent_fetches_key_and_witness_and_goes_on_where_it_broke_off(scene: Scene, tmp_path: Path) -> None:
    _, key, witness = working(scene)
    for what in (key, witness):
        assert what.url.startswith(f"{scene.context.settings.public_url}/agent/v1/files/")
        data = brought(what, tmp_path / what.name)
        assert hashlib.sha256(data).hexdigest() == what.sha256
    (tmp_path / "again.part").write_bytes(data[:1000])
    assert brought(witness, tmp_path / "again") == data


def test_one_range_is_served_and_nothing_past_the_end(scene: Scene) -> None:
    _, key, _ = working(scene)
    status, headers, whole = get(key.url)
    assert (status, len(whole), headers["Accept-Ranges"]) == (200, key.size_bytes, "bytes")
    status, headers, part = get(key.url, Range="bytes=100-199")
    assert (status, part, headers["Content-Range"]) == (206, whole[100:200], f"bytes 100-199/{len(whole)}")
    assert get(key.url, Range=f"bytes={len(whole) - 7}-")[2] == whole[-7:]
    assert get(key.url, Range="bytes=-5")[2] == whole[-5:]
    for asked in (f"bytes={len(whole)}-", "bytes=1-2,5-6", "bytes=9-5"):
        assert get(key.url, Range=asked)[0] in (200, 416)
    assert get(key.url, Range=f"bytes={len(whole)}-")[0] == 416


def test_a_url_is_for_one_object_one_instance_and_a_while(scene: Scene) -> None:
    agent, key, witness = working(scene)
    assert get(key.url)[0] == 200
    signed = urlsplit(key.url).query
    others = [
        urlsplit(witness.url)._replace(query=signed).geturl(),
        key.url.replace(agent.instance_id, "0" * 32),
        key.url.replace("signature=", "signature=0"),
        key.url.partition("?")[0],
        key.url.replace("expires=", "expires=9"),
        key.url.replace("/inputs/", "/inputs/../runs/"),
        key.url.replace("signature=", "signature=%ed%a0%80"),
    ]
    for url in others:
        assert get(url)[0] in (403, 404), url
    put = agent.lease("benchmark").emergency
    assert put is not None
    assert get(put.url)[0] == 405
    assert isinstance(scene.clock, Clock)
    scene.clock.advance(6 * 3600 + 1)
    status, _, body = get(key.url)
    assert (status, b"expired" in body) == (403, True)


def test_with_the_instance_its_urls_are_gone(scene: Scene, tmp_path: Path) -> None:
    agent, key, _ = working(scene)
    with scene.context.sessions() as session:
        scene_row = session.get_one(type(scene.instance(agent.instance_id)), agent.instance_id)
        scene_row.state = "destroyed"
        session.commit()
    assert get(key.url)[0] == 410
    with pytest.raises(FetchFailed, match="410"):
        brought(key, tmp_path / "key")


def test_the_last_evidence_is_put_once(scene: Scene) -> None:
    agent, _, _ = working(scene)
    upload = agent.lease("benchmark").emergency
    assert upload is not None
    assert upload.url.startswith(f"{scene.context.settings.public_url}/agent/v1/emergency/")
    data = os.urandom(3_000_000)
    assert put_emergency(upload, time.monotonic() + 20, data, lambda: False) == ""
    key = emergency_key(agent.run_id, agent.instance_id)
    assert scene.context.store.get(key, 1 << 23) == data
    assert put_emergency(upload, time.monotonic() + 20, b"other bytes", lambda: False) == "", "412 is as good as done"
    assert scene.context.store.get(key, 1 << 23) == data
    forged = Upload(upload.url.replace("signature=", "signature=1"), upload.headers, 60.0)
    assert "403" in put_emergency(forged, time.monotonic() + 5, b"x", lambda: False)


def test_an_upload_has_an_announced_and_bounded_length(scene: Scene) -> None:
    agent, _, _ = working(scene)
    upload = agent.lease("benchmark").emergency
    assert upload is not None
    parts = urlsplit(upload.url)
    for headers, wanted in (({"Content-Length": str(65 << 20)}, 413), ({"Transfer-Encoding": "chunked"}, 411)):
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        connection.putrequest("PUT", f"{parts.path}?{parts.query}")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == wanted
        connection.close()


def test_so_many_at_once_and_the_rest_comes_again() -> None:
    busy = Busy()
    for i in range(AT_ONCE):
        busy.enter(f"i{i % 4}")
    with pytest.raises(Exception, match="come again"):
        busy.enter("another")
    for i in range(AT_ONCE):
        busy.leave(f"i{i % 4}")
    for _ in range(AT_ONCE_AN_INSTANCE):
        busy.enter("greedy")
    with pytest.raises(Exception, match="come again"):
        busy.enter("greedy")
    busy.enter("modest")


def test_a_body_gives_its_place_back_once_even_when_nobody_closes_it() -> None:
    for closed in (0, 1, 2):
        places: list[int] = []
        body = Sending(OpenedObject("k", io.BytesIO(b"abc"), 3, 3), lambda places=places: places.append(1))  # type: ignore[misc]
        next(iter(body))
        for _ in range(closed):
            body.close()
        assert places == [1] * bool(closed)
        del body
        assert places == [1]


def test_a_reader_that_goes_away_gives_its_place_back(scene: Scene) -> None:
    _, key, _ = working(scene)
    parts = urlsplit(key.url)

    def answered_and_left() -> bool:
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        connection.request("GET", f"{parts.path}?{parts.query}")
        status = connection.getresponse().status
        connection.close()
        return status == 200

    for _ in range(AT_ONCE + 2):
        # The server notices a moment later that its reader is gone: until then it may say "come again".
        wait_for(answered_and_left)


def test_an_archive_that_can_be_reached_is_not_relayed(scene: Scene) -> None:
    context = scene.context
    market = context.providers["local"]
    assert isinstance(market, FakeMarket)
    agent, _, _ = working(scene)
    instance = scene.instance(agent.instance_id)
    market.remote = False
    assert "X-Amz-Signature" in relay.file_url(context, instance, "inputs/x", 60)
    assert "X-Amz-Signature" in relay.emergency_upload(context, instance, 60).url


def test_the_real_agent_fetches_its_parameters_through_the_relay(scene: Scene, tmp_path: Path) -> None:
    key, witness = scene.upload_fixture()
    _, instance_id = scene.rented(circuit=None, zkey_id=key, witness_ids=[witness], proofs=1)
    env = {
        "PATH": os.environ["PATH"],
        "PROVEFLEET_AGENT_URL": scene.context.settings.public_url,
        "PROVEFLEET_BOOTSTRAP_TOKEN": scene.bootstrap_token(instance_id),
        "PROVEFLEET_WORK_DIR": str(tmp_path / "work"),
    }
    log = tmp_path / "agent.log"
    with log.open("wb") as out:
        agent = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpu.agent"], env=env, stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_for(lambda: "stage params, round 1: done" in log.read_text() or agent.poll() is not None, 30)
        assert "key.zkey: fetched" in log.read_text()
    finally:
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
