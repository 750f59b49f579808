"""Ending the own instance: DELETE at the marketplace, with the key that it gave to this one instance.

Standard library only. The key goes to the one address that the order named, over https (or to loopback), and into no
log; a redirect is an answer like any other, and never followed.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 16 * 1024
FIRST_WAIT_S, MOST_WAIT_S = 3.0, 60.0  # the marketplace allows one DELETE every 3 s
SETTLE_S = 20.0
_GONE = ("no_such_instance", "not_found")


@dataclass(frozen=True)
class Answer:
    """What one DELETE came to. `taken`: it was accepted; `gone`: there is no such instance any more."""

    text: str
    taken: bool = False
    gone: bool = False
    retry_after_s: float = 0.0


def end_instance(url: str, key: str, log: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> None:
    """DELETE `url`, again and again, until the marketplace knows no such instance. Normally it ends this process first.

    There is nothing better to do than to try for ever: whoever stops trying goes on billing. Accepted once is not
    enough either, an instance was seen to come back.
    """
    wait, told = FIRST_WAIT_S, ""
    while not (answer := delete(url, key)).gone:
        if answer.text != told:
            told = answer.text
            log(told.replace(key, "***"))
        if answer.taken:
            wait = FIRST_WAIT_S
            sleep(SETTLE_S)
        else:
            sleep(max(answer.retry_after_s, wait * random.uniform(0.8, 1.2)))  # noqa: S311 - not a secret
            wait = min(wait * 2, MOST_WAIT_S)
    log("the marketplace knows this instance no more")


def delete(url: str, key: str) -> Answer:
    """One DELETE. Raises nothing: every trouble is an answer."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.netloc, timeout=TIMEOUT_S)
        try:
            connection.request("DELETE", parts.path, headers={"Authorization": f"Bearer {key}"})
            reply = connection.getresponse()
            body = reply.read(MAX_ANSWER_BYTES)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(f"the marketplace can't be asked to end this instance: {type(error).__name__}: {error}")
    return _judged(reply.status, reply.getheader("Retry-After") or "", body)


def _judged(status: int, retry_after: str, body: bytes) -> Answer:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    error = str(said.get("error", ""))[:80]
    # A wrong key is answered with 404 too, so that only the body can say "gone".
    if status == 404 and error in _GONE:
        return Answer("gone", gone=True)
    if status == 200 and said.get("success") is True:
        return Answer("the marketplace was asked to end this instance, and agreed", taken=True)
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    told = error or "in words that are none of ours"
    return Answer(
        f"the marketplace did not end this instance: {status} {told}", retry_after_s=min(seconds, MOST_WAIT_S)
    )
