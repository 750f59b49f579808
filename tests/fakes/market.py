"""A marketplace of machines that do not exist, with faults on order.

Its state is a file, so that a killed process leaves what it had bought, as a real marketplace would. It stands
behind `jobs.market.providers.base.Provider`: `context.providers["local"] = FakeMarket(folder / "market.json", clock)`.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.market.providers.base import (
    EXITED,
    RUNNING,
    AccountFacts,
    ChargeFacts,
    Listing,
    NoSuchInstance,
    OfferFacts,
    OfferGone,
    Order,
    ProviderInstance,
    ProviderUnavailable,
)

Fault = Callable[[], None]


def lost() -> None:
    """The answer never arrives."""
    raise ProviderUnavailable("connection reset by peer")


class FakeMarket:
    """Offers and rentals. `calls` counts this object's calls; `sold` and `deleted` are what the market has seen."""

    name = "local"
    remote = False
    bills = False

    def __init__(self, file: Path, now_ms: Callable[[], int]):
        self._file = file
        self._now_ms = now_ms
        self.calls: dict[str, int] = {}
        self.complete = True
        self.empty = False
        self.appears_after_ms = 0
        self.envs: dict[str, dict[str, str]] = {}
        self._faults: dict[tuple[str, str], list[Fault]] = {}
        if not file.exists():
            file.write_text(json.dumps({"offers": [], "instances": {}, "sold": [], "deleted": [], "next": 1}))

    # What a test arranges.

    def offer(self, offer_id: str, dollars_per_hour: float = 0.36, machine_id: str = "") -> None:
        with self._state() as state:
            state["offers"].append([offer_id, dollars_per_hour, machine_id or f"m-{offer_id}"])

    def withdraw(self, offer_id: str) -> None:
        with self._state() as state:
            state["offers"] = [o for o in state["offers"] if o[0] != offer_id]

    def on(self, call: str, when: str, *faults: Fault) -> None:
        """At the next calls of `call`, one fault each, `before` or `after` it took effect."""
        self._faults.setdefault((call, when), []).extend(faults)

    def set_status(self, label: str, status: str) -> None:
        with self._state() as state:
            for instance in state["instances"].values():
                if instance["label"] == label:
                    instance["status"] = status

    def show(self, label: str, /, **fields: Any) -> None:
        """From now on it is listed with these fields of `ProviderInstance` besides."""
        with self._state() as state:
            for instance in state["instances"].values():
                if instance["label"] == label:
                    instance["shown"] = {**instance["shown"], **fields}

    def exit(self, label: str) -> None:
        self.set_status(label, EXITED)

    def lose(self, label: str) -> None:
        """The machine is gone from one moment to the next, unlisted."""
        with self._state() as state:
            state["instances"] = {k: i for k, i in state["instances"].items() if i["label"] != label}

    def add(self, label: str, machine_id: str = "m-stranger", dollars_per_hour: float = 1.0) -> str:
        """A rental that is there for reasons of its own."""
        with self._state() as state:
            return self._sell(state, label, machine_id, dollars_per_hour)

    # What it tells a test.

    @property
    def labels(self) -> list[str]:
        with self._state() as state:
            return sorted(i["label"] for i in state["instances"].values())

    @property
    def sold(self) -> list[str]:
        with self._state() as state:
            return list(state["sold"])

    @property
    def deleted(self) -> list[str]:
        with self._state() as state:
            return list(state["deleted"])

    # The provider.

    def scan(self) -> list[OfferFacts]:
        with self._call("scan"), self._state() as state:
            taken = {i["machine_id"] for i in state["instances"].values()}
            return [OfferFacts(o, m, price) for o, price, m in state["offers"] if m not in taken]

    def rent(self, order: Order) -> str:
        offer_id, label, env = order.offer_id, order.label, order.env
        with self._call("rent"), self._state() as state:
            found = next((o for o in state["offers"] if o[0] == offer_id), None)
            taken = {i["machine_id"] for i in state["instances"].values()}
            if found is None or found[2] in taken:
                raise OfferGone(f"offer {offer_id} is gone")
            self.envs[label] = dict(env)
            return self._sell(state, label, found[2], found[1])

    def list(self) -> Listing:
        with self._call("list"), self._state() as state:
            if self.empty:
                return Listing(self.complete, [])
            shown = [
                ProviderInstance(
                    **{
                        "provider_id": pid,
                        **{name: i[name] for name in ("label", "status", "machine_id", "dollars_per_hour")},
                        **i["shown"],
                    }
                )
                for pid, i in state["instances"].items()
                if i["visible_ms"] <= self._now_ms()
            ]
            return Listing(self.complete, shown if self.complete else shown[:-1])

    def request_logs(self, provider_id: str) -> dict[str, Any]:
        with self._call("request_logs"), self._state() as state:
            if provider_id not in state["instances"]:
                raise NoSuchInstance(provider_id)
            return {"provider_id": provider_id}

    def fetch_logs(self, ticket: dict[str, Any], max_bytes: int) -> dict[str, bytes]:
        with self._call("logs"):
            return {"provider.log": f"container of {ticket['provider_id']} says hello\n".encode()[-max_bytes:]}

    def account(self) -> AccountFacts | None:
        return None

    def charges(self, begin_ms: int, end_ms: int) -> Sequence[ChargeFacts]:
        return ()

    def destroy(self, provider_id: str) -> None:
        with self._call("destroy"), self._state() as state:
            state["deleted"].append(provider_id)
            state["instances"].pop(provider_id, None)

    def _sell(self, state: dict[str, Any], label: str, machine_id: str, price: float) -> str:
        provider_id = str(1000 + state["next"])
        state["next"] += 1
        state["sold"].append(label)
        state["instances"][provider_id] = {
            "label": label,
            "status": RUNNING,
            "machine_id": machine_id,
            "dollars_per_hour": price,
            "visible_ms": self._now_ms() + self.appears_after_ms,
            "shown": {},
        }
        return provider_id

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        self.calls[name] = self.calls.get(name, 0) + 1
        self._fault(name, "before")
        yield
        self._fault(name, "after")

    def _fault(self, name: str, when: str) -> None:
        waiting = self._faults.get((name, when))
        if waiting:
            waiting.pop(0)()

    @contextmanager
    def _state(self) -> Iterator[dict[str, Any]]:
        with self._file.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.load(file)
            yield state
            file.seek(0)
            file.truncate()
            json.dump(state, file)
