"""The machine app over HTTP: the agent's own client against real SQL, S3 and Valkey; and what strangers may try."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from gpu.agent.client import Client, Refused, Unreachable
from gpu.protocol import PREFIX, Command, Lease, Progress, Pull, Register, Registered, Result, Seal, StreamEnd
from jobs.context import Context, use
from jobs.settings import Settings
from logs import tail
from logs.batch import pack_batch
from logs.chunks import ChunkCutter
from logs.store import S3Config, Store
from logs.wire import MAX_ARTIFACT_BYTES, ChunkRecord
from tests.fakes.market import FakeMarket
from tests.fakes.valkey import ValkeyServer
from tests.jobs.proofs import simulated
from tests.jobs.scene import Clock, Scene
from tests.sql import compiled_once
from web.machine_app import create_machine_app


@pytest.fixture
def context(
    tmp_path: Path, sqlite_template: Path, clock: Clock, s3_config: S3Config, store: Store, valkey_server: ValkeyServer
) -> Iterator[Context]:
    settings = Settings(
        state_dir=tmp_path,
        database_url=SecretStr(f"sqlite:///{tmp_path / 'provefleet.db'}"),
        redis_url=SecretStr(valkey_server.url),
        agent_bind="127.0.0.1:9",
        s3_endpoint=s3_config.endpoint,
        s3_bucket=s3_config.bucket,
        s3_access_key_id=s3_config.access_key_id,
        s3_secret_access_key=s3_config.secret_access_key,
        s3_public_endpoint=s3_config.endpoint,
    )
    shutil.copy(sqlite_template, tmp_path / "provefleet.db")
    context = compiled_once(Context(settings, now_ms=clock))
    context.store = store
    context.providers["local"] = FakeMarket(tmp_path / "market.json", clock)
    use(context)
    yield context
    use(None)
    context.engine.dispose()


@pytest.fixture
def clock() -> Clock:
    # Presigned URLs are signed with the real clock.
    clock = Clock()
    clock.now_ms = time.time_ns() // 1_000_000
    return clock


@pytest.fixture
def scene(context: Context, clock: Clock) -> Scene:
    market = context.providers["local"]
    assert isinstance(market, FakeMarket)
    return Scene(context, clock, market)


@pytest.fixture
def address(context: Context) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, create_machine_app(context), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def rented(scene: Scene) -> tuple[str, str]:
    """(instance, its bootstrap token)"""
    _, instance_id = scene.rented()
    return instance_id, scene.bootstrap_token(instance_id)


@pytest.fixture
def registered(address: str, rented: tuple[str, str]) -> tuple[Client, Registered]:
    bootstrap = Client(address, rented[1])
    answer = bootstrap.register(Register({"cpu_cores": 2}, "1"))
    return bootstrap.with_token(answer.token), answer


def chunks(stream: str, *texts: str) -> list[tuple[ChunkRecord, bytes]]:
    cutter = ChunkCutter(stream)
    cut = []
    for i, text in enumerate(texts):
        cutter.feed(text.encode(), 1000 * i)
        cut.append(cutter.cut(1000 * i))
    return [c for c in cut if c is not None]


def test_one_instance_from_registration_to_seal(
    scene: Scene, registered: tuple[Client, Registered], context: Context
) -> None:
    client, answer = registered
    instance_id = answer.spec.instance
    assert answer.spec.stages == ["params", "benchmark"]
    assert scene.instance(instance_id).state == "fetching"
    reply = client.lease(Lease(Progress("benchmark"), {"load_1m": 0.5}))
    assert scene.instance(instance_id).state == "benchmarking"
    assert reply.emergency is not None
    assert reply.emergency.headers == {"If-None-Match": "*"}

    first, second = chunks("bench", "one\ntwo\n", "three")
    assert client.put_chunk("bench", *first).next_seq == 1
    assert client.put_chunk("bench", *first).next_seq == 1
    assert client.put_chunk("bench", *second).next_seq == 2
    client.put_tail("bench", 3, b"three")
    frames, _ = tail.read_since(context.tail_redis, instance_id)
    assert [(f.stream, f.first_line, f.data) for f in frames] == [("bench", 3, b"three")]

    tasks = client.pull(Pull("benchmark")).tasks
    assert [task.index for task in tasks] == [0, 1]
    for proof in scene.proofs(answer.spec.run):
        public = proof.expected_public
        client.result(Result(proof.index, 1, True, simulated(public), public, machine_ms=900.0))
    assert all(p.received_ms for p in scene.proofs(answer.spec.run))

    ends = {"bench": StreamEnd(3, 3, 13, "0" * 64)}
    assert client.seal(Seal(ends, {"benchmark": 0}, {}, {})).missing == {"bench": 2}
    ends = {"bench": StreamEnd(2, 2, 13, "0" * 64)}
    assert client.seal(Seal(ends, {"benchmark": 0}, {}, {})).accepted
    assert scene.instance(instance_id).agent_manifest is not None
    orders = client.lease(Lease(Progress("benchmark", ended=True))).commands
    assert [order.name for order in orders] == ["seal"] == [Command("seal").name]


def test_artifacts(registered: tuple[Client, Registered], context: Context, tmp_path: Path) -> None:
    client, answer = registered
    file = tmp_path / "a"
    file.write_bytes(b"timings")
    digest = hashlib.sha256(b"timings").hexdigest()
    client.put_artifact("round-1/progress.jsonl", file, digest)
    client.put_artifact("round-1/progress.jsonl", file, digest)
    key = f"runs/{answer.spec.run}/{answer.spec.instance}/_artifacts/round-1/progress.jsonl"
    assert context.store.get(key, 100) == b"timings"
    for name in ("../up", "a/../../b", ".hidden", "a//b", "con", "a\\b"):
        with pytest.raises(Refused) as refusal:
            client.put_artifact(name, file, digest)
        assert refusal.value.status in (400, 404), name
    with pytest.raises(Refused, match="bad_artifact"):
        client.put_artifact("other", file, "0" * 64)


def test_the_bootstrap_token_opens_nothing_else(
    address: str, rented: tuple[str, str], registered: tuple[Client, Registered]
) -> None:
    stranger = Client(address, rented[1])
    with pytest.raises(Refused, match="401 unknown_token"):
        stranger.lease(Lease(Progress("params")))
    with pytest.raises(Refused, match="401 unknown_token"):
        registered[0].register(Register({}, "1"))


def test_chunks_that_are_refused(registered: tuple[Client, Registered]) -> None:
    client, _ = registered
    first, second = chunks("bench", "one\n", "two\n")
    other = chunks("bench", "another\n")[0]
    with pytest.raises(Refused, match="409 out_of_order"):
        client.put_chunk("bench", *second)
    with pytest.raises(Refused, match="400 bad_chunk"):
        client.put_chunk("bench", first[0], b"no zstd")
    with pytest.raises(Refused, match="400 bad_chunk"):
        client.put_chunk("bench", other[0], first[1])
    with pytest.raises(Refused, match="400 bad_chunk"):
        client.put_chunk("BENCH", *first)
    client.put_chunk("bench", *first)
    with pytest.raises(Refused, match="409 conflict"):
        client.put_chunk("bench", *other)


def test_many_chunks_in_one_call(registered: tuple[Client, Registered]) -> None:
    client, _ = registered
    many = chunks("bench", *(f"line {n}\n" for n in range(10)))
    assert client.put_chunks("bench", many[:6]).next_seq == 6
    assert client.put_chunks("bench", many[3:]).next_seq == 10
    with pytest.raises(Refused, match="400 bad_chunk"):
        client.put_chunks("bench", [(many[0][0], b"no zstd")])
    with pytest.raises(Refused, match="400 bad_chunk: at most 64"):
        client.put_chunks("bench", many * 7)


def test_a_destroyed_instance_is_told_to_end(
    scene: Scene, registered: tuple[Client, Registered], context: Context
) -> None:
    client, answer = registered
    with context.sessions() as session:
        session.get_one(type(scene.instance(answer.spec.instance)), answer.spec.instance).state = "destroyed"
        session.commit()
    with pytest.raises(Refused, match="410 gone"):
        client.lease(Lease(Progress("params")))


def test_what_is_away_is_503(registered: tuple[Client, Registered], context: Context, s3_config: S3Config) -> None:
    client, _ = registered
    dead = S3Config("http://127.0.0.1:9", s3_config.bucket, s3_config.region, "k", "s")
    store, context.store = context.store, type(context.store)(dead)
    chunk = chunks("bench", "one\n")[0]
    with pytest.raises(Unreachable, match="503 unavailable"):
        client.put_chunk("bench", *chunk)
    context.store = store
    assert client.put_chunk("bench", *chunk).stored
    redis, context.tail_redis = context.tail_redis, tail.connect("unix:///nonexistent/valkey.sock")
    with pytest.raises(Unreachable, match="503 unavailable"):
        client.put_tail("bench", 1, b"x")
    context.tail_redis = redis


# What strangers may try.


@pytest.fixture
def call(context: Context) -> Callable[..., TestResponse]:
    browser = create_machine_app(context).test_client()

    def send(method: str, path: str, **more: Any) -> TestResponse:
        more.setdefault("headers", {"Authorization": "Bearer nobody"})
        return browser.open(path if path.startswith("/!") else PREFIX + path, method=method, **more)

    return send


CALLS = [
    ("POST", "/register"),
    ("POST", "/lease"),
    ("POST", "/tasks/pull"),
    ("POST", "/tasks/result"),
    ("POST", "/seal"),
    ("PUT", "/chunks/bench/0"),
    ("POST", "/chunks/bench"),
    ("PUT", "/tail/bench"),
    ("PUT", "/artifacts/a"),
]
BODIES: dict[str, Any] = {
    "/register": {"facts": {}, "agent_version": "1"},
    "/lease": {"progress": {"stage": "params"}},
    "/tasks/pull": {"stage": "benchmark"},
    "/tasks/result": {"index": 0, "round": 1, "ok": False},
    "/seal": {"streams": {}, "exit_codes": {}, "signals": {}, "stages_ms": {}},
}


def arguments(path: str) -> dict[str, Any]:
    """What makes that call well-formed but for its token."""
    record, frame = chunks("bench", "x\n")[0]
    extra = {"X-Chunk-Record": record.to_json(), "X-First-Line": "1", "X-Sha256": hashlib.sha256(b"x").hexdigest()}
    if path in BODIES:
        return {"json": BODIES[path]}
    data = {"/chunks/bench/0": frame, "/chunks/bench": pack_batch([(record, frame)])}.get(path, b"x")
    return {"data": data, "headers": {"Authorization": "Bearer nobody", **extra}}


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_every_call_asks_for_a_token(call: Callable[..., TestResponse], method: str, path: str) -> None:
    unknown = call(method, path, **arguments(path))
    assert (unknown.status_code, unknown.json["error"]) == (401, "unknown_token")
    assert unknown.headers["WWW-Authenticate"] == "Bearer"
    for header in ("", "Basic dXNlcjpwYXNz", "Bearer", "Bearer  "):
        given = {**arguments(path)}
        given["headers"] = {**given.get("headers", {}), "Authorization": header}
        assert call(method, path, **given).status_code == 401


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_sizes_are_checked_before_anything_is_read(address: str, method: str, path: str) -> None:
    """The answer comes although no body is ever sent."""
    headers = {"Authorization": "Bearer nobody", **arguments(path).get("headers", {})}
    for length, status in ((f"Content-Length: {MAX_ARTIFACT_BYTES + 1}", 413), ("", 411)):
        lines = [f"{method} {PREFIX}{path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items()), length]
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall("\r\n".join(line for line in lines if line).encode() + b"\r\n\r\n")
            assert connection.recv(4096).startswith(f"HTTP/1.1 {status} ".encode())


def test_answers_are_json_without_cookies(call: Callable[..., TestResponse]) -> None:
    for method, path, status in (
        ("GET", "/no/such/thing", 404),
        ("GET", "/lease", 405),
        ("POST", "/chunks/bench/0", 405),
        ("PUT", "/chunks/bench/-1", 404),
        ("PUT", "/chunks/a/b/0", 404),
    ):
        answer = call(method, path)
        assert (answer.status_code, answer.mimetype) == (status, "application/json")
        assert set(answer.json) == {"error", "message"}
        assert "Set-Cookie" not in answer.headers


def test_the_site_is_not_here(context: Context) -> None:
    browser = create_machine_app(context).test_client()
    assert browser.get("/healthz").json == {"ok": True}
    for path in ("/", "/login", "/runs", "/static/site.css", "/api/v1/runs", "/agent/v2/lease"):
        assert browser.get(path).status_code == 404
    rules = {rule.rule for rule in create_machine_app(context).url_map.iter_rules()}
    assert all(rule == "/healthz" or rule.startswith(PREFIX) for rule in rules)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "bad_json"),
        (b"\xff\xfe", "bad_json"),
        (b"[" * 100_000, "bad_json"),
        (b"[]", "bad_message"),
        (b'{"progress": {"stage": 7}}', "bad_message"),
        (b'{"progress": {"stage": "params", "done": NaN}}', "bad_message"),
    ],
)
def test_messages_that_are_none(call: Callable[..., TestResponse], body: bytes, code: str) -> None:
    answer = call("POST", "/lease", data=body)
    assert (answer.status_code, answer.json["error"]) == (400, code)


def test_headers_of_chunks_and_tails_are_checked(call: Callable[..., TestResponse]) -> None:
    for header in ("", "{", "[]", '{"seq": 0}'):
        headers = {"Authorization": "Bearer nobody", "X-Chunk-Record": header}
        assert call("PUT", "/chunks/bench/0", data=b"x", headers=headers).json["error"] == "bad_chunk"
    for line in ("", "0", "-1", "x", "9" * 30, "١"):
        headers = {"Authorization": "Bearer nobody", "X-First-Line": line}
        assert call("PUT", "/tail/bench", data=b"x", headers=headers).json["error"] == "bad_tail"


def test_a_database_that_is_gone_is_503_and_a_bug_of_ours_shows_no_trace(
    address: str, context: Context, tmp_path: Path
) -> None:
    (tmp_path / "provefleet.db").write_bytes(b"no database at all, but bytes enough to be looked at" * 100)
    answer = _raw(address, "POST", "/lease", json.dumps(BODIES["/lease"]).encode())
    assert answer[0] == 503
    assert b"Traceback" not in answer[1]
    del context.sessions
    context.__dict__["sessions"] = None
    answer = _raw(address, "POST", "/lease", json.dumps(BODIES["/lease"]).encode())
    assert (answer[0], json.loads(answer[1])["error"]) == (500, "broken")
    assert b"Traceback" not in answer[1]


def _raw(address: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, PREFIX + path, body, {"Authorization": "Bearer nobody"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
