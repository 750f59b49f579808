"""Makes the stores usable: schema, first admin, bucket. Run by `up` as a process of its own, because SQLAlchemy
and boto3 would otherwise stay in its memory. Writes one JSON line a step; `{"error": ...}` is the last one on failure.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from typing import Any

from jobs.services import child
from jobs.services.errors import ServiceError
from jobs.settings import Settings, load_settings

# weed takes 3 s from a cold start on 2 free cores.
STORE_DEADLINE_S = 60.0


def database(settings: Settings) -> dict[str, Any]:
    """Schema at its newest revision; the one-time password of the admin when this made one."""
    from jobs.context import Context
    from jobs.domain import controller, db
    from jobs.domain.users import ensure_first_admin

    try:
        db.migrate(settings)
        password = ensure_first_admin(settings)
        # Before any process could need it: two that made one at the same moment would be strangers to each other.
        context = Context(settings)
        with db.writing(context.sessions) as session:
            controller.controller_id(session, context)
    except db.DatabaseUnavailable as error:
        raise ServiceError("the database can't be used", str(error), "See docs/operations.md, Database") from error
    except controller.ControllerMismatch as error:
        raise ServiceError("database and state folder differ", str(error), "See PROVEFLEET_STATE_DIR") from error
    return {"step": "database", "password": password}


def redis(settings: Settings) -> dict[str, Any]:
    """Redis answers. The embedded one was asked already; this is for the operator's own."""
    from redis import Redis, RedisError

    url = settings.redis_url.get_secret_value()
    try:
        with Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
            client.ping()
    except (RedisError, ValueError) as error:
        raise ServiceError(
            "Redis does not answer",
            str(error),
            "Start it, or unset PROVEFLEET_REDIS_URL to use the embedded one",
        ) from error
    return {"step": "redis"}


def archive(settings: Settings, deadline_s: float = STORE_DEADLINE_S) -> dict[str, Any]:
    """The bucket is there and takes an object of ours, written and read back."""
    from jobs.context import Context
    from logs.errors import StoreError

    store = Context(settings).store
    key = f"_probe/up-{secrets.token_hex(8)}"
    until = time.monotonic() + deadline_s
    while True:
        try:
            made = store.ensure_bucket()
            store.put(key, b"up")
            store.get(key, 16)
            store.delete(key)
        except StoreError as error:
            if time.monotonic() > until:
                raise ServiceError(
                    "the S3 store can't be used",
                    str(error),
                    "Check the PROVEFLEET_S3_* settings, or unset them all",
                ) from error
            time.sleep(0.2)
        else:
            return {"step": "archive", "made_bucket": made}


def steps(wanted: list[str]) -> Iterator[dict[str, Any]]:
    settings = load_settings()
    table = {"database": database, "redis": redis, "archive": archive}
    for name in wanted:
        yield table[name](settings)


def main() -> int:
    child.die_with_parent(int(os.environ[child.PARENT]))
    try:
        for result in steps(sys.argv[1:]):
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
    except ServiceError as error:
        sys.stdout.write(json.dumps({"error": [error.what, error.why, error.fix]}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
