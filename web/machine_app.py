"""The other WSGI app: only what a rented machine may call (`docs/agent-protocol.md`). Its own port, never the site's.

Thin HTTP: sizes are checked before anything is read, tokens and meaning by `jobs.domain`. All answers are JSON,
without cookies and without traces; an error says {"error": code, "message": what, why, what next}.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar, cast

from flask import Blueprint, Flask, Response, current_app, request
from sqlalchemy.exc import DBAPIError
from werkzeug.exceptions import HTTPException

from gpu.protocol import MAX_JSON_BYTES, PREFIX, Lease, Message, ProtocolError, Pull, Register, Result, Seal
from jobs.context import Context, current
from jobs.domain import agents, evidence
from jobs.domain.agents import AgentRefused
from jobs.domain.db import DatabaseUnavailable
from logs.batch import unpack_batch
from logs.errors import StoreError
from logs.tail import TailUnavailable
from logs.wire import MAX_ARTIFACT_BYTES, MAX_BATCH_BYTES, MAX_FRAME_BYTES, TAIL_FRAME_BYTES, ChunkRecord, WireError
from web import relay

REGISTER_BYTES = 128 * 1024
RETRY_AFTER_S = 2
M = TypeVar("M", bound=Message)

routes = Blueprint("machine", __name__)


def create_machine_app(context: Context | None = None) -> Flask:
    """The app; `context` is this process's own where none is given."""
    app = Flask("provefleet-machine", static_folder=None)
    app.extensions["context"] = context
    app.extensions["relay"] = relay.Busy()
    for blueprint in (routes, relay.routes):
        app.register_blueprint(blueprint, url_prefix=PREFIX)
    app.add_url_rule("/healthz", "healthz", _healthz, methods=["GET"])
    app.register_error_handler(AgentRefused, _refused)
    app.register_error_handler(HTTPException, _http_error)
    for kind in (StoreError, TailUnavailable, DatabaseUnavailable, DBAPIError):
        app.register_error_handler(kind, _unavailable)
    app.register_error_handler(500, _broken)
    app.after_request(_bare)
    return app


@routes.post("/register")
def register() -> Response:
    return _json(agents.register(_context(), _token(), _message(Register, REGISTER_BYTES)))


@routes.post("/lease")
def lease() -> Response:
    return _json(agents.lease(_context(), _token(), _message(Lease)))


@routes.post("/tasks/pull")
def pull() -> Response:
    return _json(agents.pull(_context(), _token(), _message(Pull)))


@routes.post("/tasks/result")
def result() -> Response:
    agents.store_result(_context(), _token(), _message(Result))
    return _json({})


@routes.post("/seal")
def seal() -> Response:
    return _json(agents.seal(_context(), _token(), _message(Seal)))


@routes.put("/chunks/<stream>/<int:seq>")
def chunk(stream: str, seq: int) -> Response:
    token = _token()
    try:
        record = ChunkRecord.from_json(request.headers.get("X-Chunk-Record", ""))
    except WireError as error:
        raise AgentRefused(400, "bad_chunk", f"header X-Chunk-Record: {error}") from error
    frame = _body(MAX_FRAME_BYTES, "a chunk")
    return _json(evidence.store_chunk(_context(), token, stream, seq, record, frame))


@routes.post("/chunks/<stream>")
def chunks(stream: str) -> Response:
    token = _token()
    try:
        several = unpack_batch(_body(MAX_BATCH_BYTES, "a batch of chunks"))
    except WireError as error:
        raise AgentRefused(400, "bad_chunk", str(error)) from error
    return _json(evidence.store_chunks(_context(), token, stream, several))


@routes.put("/tail/<stream>")
def tail(stream: str) -> Response:
    token, first_line = _token(), request.headers.get("X-First-Line", "")
    if not first_line.isascii() or not first_line.isdigit() or not 1 <= int(first_line[:16]) < 1 << 53:
        raise AgentRefused(400, "bad_tail", "header X-First-Line must be the line that the first byte belongs to")
    data = _body(TAIL_FRAME_BYTES, "a tail frame")
    if not data:
        raise AgentRefused(400, "bad_tail", "a tail frame has at least one byte")
    evidence.store_tail(_context(), token, stream, int(first_line), data)
    return _json({})


@routes.put("/artifacts/<path:name>")
def artifact(name: str) -> Response:
    token, sha256 = _token(), request.headers.get("X-Sha256", "")
    length = _length(MAX_ARTIFACT_BYTES, "an artifact")
    evidence.store_artifact(_context(), token, name, cast("Any", request.stream), length, sha256)
    return _json({})


def _healthz() -> Response:
    return _json({"ok": True})


def _context() -> Context:
    return current_app.extensions["context"] or current()


def _token() -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise AgentRefused(401, "no_token", "send the instance's token as Authorization: Bearer")
    return token.strip()


def _length(limit: int, what: str) -> int:
    """The announced length, before a byte is read. Raises `AgentRefused` 411 or 413."""
    if request.content_length is None:
        raise AgentRefused(411, "length_required", "send Content-Length; chunked bodies are not taken")
    if request.content_length > limit:
        raise AgentRefused(413, "too_large", f"{what} is at most {limit:,} bytes, not {request.content_length:,}")
    return request.content_length


def _body(limit: int, what: str) -> bytes:
    length = _length(limit, what)
    data = request.stream.read(length)
    if len(data) != length:
        raise AgentRefused(400, "cut_off", f"{len(data)} of {length} announced bytes came; send it again")
    return data


def _message(kind: type[M], limit: int = MAX_JSON_BYTES) -> M:
    data = _body(limit, "a message")
    try:
        return kind.from_json(json.loads(data))
    except ProtocolError as error:
        raise AgentRefused(400, "bad_message", str(error)) from error
    except (ValueError, RecursionError) as error:
        raise AgentRefused(400, "bad_json", "the body must be one JSON object in UTF-8") from error


def _json(value: Message | dict[str, Any], status: int = 200) -> Response:
    told = value.to_json() if isinstance(value, Message) else value
    return Response(json.dumps(told), status, mimetype="application/json")


def _error(status: int, code: str, message: str) -> Response:
    return _json({"error": code, "message": message}, status)


def _refused(error: AgentRefused) -> Response:
    response = _error(error.status, error.code, error.message)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if error.status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _unavailable(error: Exception) -> Response:
    """What we stand on is away. The reason goes to our log; a stranger's machine only needs to come again."""
    current_app.logger.warning("%s %s: %s: %s", request.method, request.path, type(error).__name__, error)
    response = _error(503, "unavailable", "a part of the controller is away; send it again after Retry-After seconds")
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    code = (error.name or "error").lower().replace(" ", "_")
    return _error(status, code, f"{request.method} {request.path[:200]}: see docs/agent-protocol.md for what is here")


def _broken(error: Exception) -> Response:
    """Flask has logged the trace already."""
    del error
    return _error(500, "broken", "the controller failed at this call; send it again later")


def _bare(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
