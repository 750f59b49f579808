"""Calls Vast's own SDK as it is told: one JSON object a line in, one out. Runs in `.venv-vastai`, on `vastai` alone.

In: `{"url", "key", "on": "VastAI" | "SyncClient", "call": name, "args": [...], "kwargs": {...}, "retry": 3}`.
Out: `value`, or `error` with the exception's `type` and `text` and the answer's `status` and `body` if there was one;
`printed` is what the call wrote.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys


def plain(value):
    """JSON for what the SDK returns; the wrappers of `SyncClient` hold a dataclass."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    data = value.__dict__.get("_data") if hasattr(value, "__dict__") else None
    return dataclasses.asdict(data) if data is not None else value


def client(order):
    from vastai import SyncClient, VastAI

    if order["on"] == "SyncClient":
        return SyncClient(api_key=order["key"], vast_server=order["url"])
    return VastAI(api_key=order["key"], server_url=order["url"], retry=order["retry"], quiet=True)


def arguments(order):
    """`SyncClient` wants objects where JSON has dicts."""
    from vastai.data.instance import InstanceConfig
    from vastai.data.query import Query

    made = {"query": Query, "config": lambda fields: InstanceConfig(**fields)}
    kwargs = order["kwargs"]
    if order["on"] == "SyncClient":
        kwargs = {k: made[k](v) if k in made else v for k, v in kwargs.items()}
    return order["args"], kwargs


def answer(order):
    printed = io.StringIO()
    reply = {}
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            args, kwargs = arguments(order)
            reply["value"] = plain(getattr(client(order), order["call"])(*args, **kwargs))
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it raises is what the test asks about
            response = getattr(error, "response", None)
            reply["error"] = {"type": type(error).__name__, "text": str(error)}
            if response is not None:
                reply["error"].update(status=response.status_code, body=response.text)
    return {**reply, "printed": printed.getvalue()}


def main():
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
