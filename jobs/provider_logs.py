"""The logs that a provider itself keeps of a machine: container and daemon. Part of `collect_logs`.

They are gone with the machine, and come when it pleases the provider: they are asked for when sealing begins, fetched
until they are there, and given up in time for the evidence deadline. What did not come is named in the bundle.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.domain.instances import note_unavailable
from jobs.domain.models import Instance
from jobs.domain.work import Claim, transaction
from jobs.market import provider
from jobs.market.providers.base import LogsNotReady, NoSuchInstance, ProviderUnavailable
from logs.redact import redact

if TYPE_CHECKING:
    from jobs.context import Context

MAX_BYTES = 256 * 1024
MARGIN_MS = 10_000
LONGEST_S = 60.0
CONTAINER, DAEMON, ACCOUNT = "provider.log", "provider-daemon.log", "provider-logs.json"

T = TypeVar("T")
Output = bytes | str
"""What a log says, or, as text, why there is none."""


def ask(context: Context, claim: Claim, instance: Instance) -> None:
    """Ask for the logs, once; the ticket to fetch them with is kept in the row."""
    left_s = _left_s(context, instance)
    if instance.provider_id is None or instance.log_ticket is not None or left_s <= 0:
        return
    market, provider_id = provider(context, instance.provider), instance.provider_id
    try:
        ticket = {"ticket": _within(left_s, lambda: market.request_logs(provider_id)), "asked_ms": context.now_ms()}
    except NoSuchInstance:
        ticket = {"absent": "the provider knew the machine no more when it was asked"}
    except ProviderUnavailable as error:
        note_unavailable(context, claim, "collect_logs", error)
        return
    with transaction(context) as session:
        mine = claim.mine(session)
        if isinstance(mine, Instance):
            mine.log_ticket = ticket
    instance.log_ticket = ticket


def fetch(context: Context, instance: Instance) -> dict[str, Output] | None:
    """Each log, or why there is none; None: not yet, and there is time to wait."""
    if instance.provider_id is None:
        return {}
    ticket, left_s = instance.log_ticket, _left_s(context, instance)
    if ticket is None:
        return None if left_s > 0 else {CONTAINER: "the provider could not be asked for it in time"}
    if "absent" in ticket:
        return {CONTAINER: ticket["absent"]}
    market = provider(context, instance.provider)
    try:
        # Once the time is up it is still tried, for a moment: it may have come just now.
        found = _within(max(left_s, 1.0), lambda: market.fetch_logs(ticket["ticket"], MAX_BYTES))
    except NoSuchInstance:
        return {CONTAINER: "the provider knew the machine no more when it was to be fetched"}
    except (LogsNotReady, ProviderUnavailable) as error:
        if left_s > 0:
            return None
        waited_s = (context.now_ms() - ticket["asked_ms"]) / 1000
        return {CONTAINER: f"it did not come within {waited_s:.0f} s: {error}"}
    wanted = (CONTAINER, DAEMON) if market.remote else (CONTAINER,)
    absent = {name: "the machine's host did not upload it" for name in wanted if name not in found}
    return {**absent, **{name: data or "it is empty" for name, data in found.items()}}


def artifacts(outputs: dict[str, Output]) -> Iterator[tuple[str, bytes]]:
    """What the bundle keeps of them: each log, redacted, and an account of which are there."""
    account: dict[str, Any] = {}
    for name, output in outputs.items():
        if isinstance(output, bytes):
            kept = redact(output)
            account[name] = {"bytes": len(kept)}
            yield name, kept
        else:
            account[name] = {"absent": output}
    if account:
        yield ACCOUNT, json.dumps(account, indent=1).encode()


def _left_s(context: Context, instance: Instance) -> float:
    """Seconds in which the logs may still be waited for."""
    margin_ms = min(MARGIN_MS, context.settings.evidence_deadline_s * 250)
    until = (instance.evidence_deadline_ms or instance.state_ms) - margin_ms
    return min(LONGEST_S, (until - context.now_ms()) / 1000)


def _within(seconds: float, call: Callable[[], T]) -> T:
    """The call's result. It may wait for its pace behind others, and must not take the evidence deadline along:
    then it is left to end by itself. Raises `ProviderUnavailable`."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise ProviderUnavailable(f"the provider did not answer within {seconds:.0f} s")
    return done[0]
