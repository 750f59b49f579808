"""Renting a machine on Vast.ai for less than ten cents, to measure what reading alone can't tell; behind `--spend`.

Whatever happens meanwhile, Ctrl-C included, the machine is destroyed, and its absence seen twice, before this returns.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jobs.market.providers import vast_logs, vast_rent
from jobs.market.providers.base import (
    EXITED,
    LOADING,
    LogsNotReady,
    OfferFacts,
    OfferGone,
    Order,
    ProviderError,
    ProviderInstance,
    RentalRefused,
)
from jobs.market.providers.vast_fields import whole
from jobs.market.providers.vast_http import CREATE, LIST, SHOW
from jobs.market.vast_look import Look, leftovers
from jobs.services.finding import Finding, fail, ok, warn

MOST_DOLLARS = 0.10
MOST_S = 600.0
IMAGE_GB = 4.0  # what the payload image may bring over the line, roughly
APPEAR_S = 120.0
LOGS_S = 100.0
DESTROY_TRIES = 20
APART_S = 3.0
LONG_VALUE = "x" * 300


class Trial:
    """One machine, once."""

    def __init__(self, look: Look, confirm: Callable[[str], bool], label: str):
        self.look, self.vast, self.http = look, look.vast, look.http
        self.answers, self._confirm, self._label = look.report.answers, confirm, label
        self._now_ms, self._sleep = look.context.now_ms, look.context.sleep
        self._rented: list[str] = []
        self._in_doubt = False

    def run(self) -> None:
        """Findings go to the look's report. Raises nothing of a provider."""
        try:
            offer, most = self._prepare()
            if offer is None:
                words = f"no offer costs less than ${MOST_DOLLARS:.2f} for the trial"
                self.look.note(fail("trial", words, "Try again later"))
                return
            words = f"{offer.num_gpus} x {offer.gpu_model} at ${offer.dollars_per_hour:.4f}/h, ${most:.3f} at most"
            if not self._confirm(words):
                self.look.note(warn("trial", "not made", "Confirm it, or give --yes"))
                return
            before = self._credit()
        except ProviderError as error:
            self.look.note(fail("trial", f"nothing was rented: {error}", "See above"))
            return
        with _interrupted_once():
            try:
                self._measure(offer, before)
            except KeyboardInterrupt:
                self.look.note(warn("trial", "interrupted", "What was rented is destroyed now"))
            except ProviderError as error:
                self.look.note(fail("trial", str(error), "What was rented is destroyed now"))
            finally:
                self._clean()
        self._tell_cost(before)

    def _prepare(self) -> tuple[OfferFacts | None, float]:
        for left in leftovers(self.vast.list()):
            self.look.note(self._destroyed(left))
        return self._choose()

    def _clean(self) -> None:
        """Ends what was rented. An interrupt comes once: what it breaks off here is done again."""
        try:
            self._end_all()
        except KeyboardInterrupt:
            self._end_all()

    def _end_all(self) -> None:
        if self._in_doubt and not self._rented:
            self._rented = self._found()
        for provider_id in self._rented:
            self.look.note(self._destroyed(provider_id, measure=True))

    def _tell_cost(self, before: float | None) -> None:
        self._sleep(10.0)
        try:
            after = self._credit()
        except ProviderError:
            after = None
        if before is not None and after is not None and self._rented:
            self.look.report.dollars = before - after
            self.look.note(ok("cost", f"the credit fell by ${before - after:.4f}; the bill follows within a day"))

    def _choose(self) -> tuple[OfferFacts | None, float]:
        """The machine that costs least for the trial, and what that is at most."""
        costs = [(o, self._most_dollars(o)) for o in self.vast.scan()]
        fitting = [(o, dollars) for o, dollars in costs if dollars < MOST_DOLLARS]
        return min(fitting, key=lambda pair: pair[1], default=(None, 0.0))

    def _most_dollars(self, offer: OfferFacts) -> float:
        return offer.dollars_per_hour * MOST_S / 3600 + IMAGE_GB * float(offer.facts.get("dollars_per_gb_down", 0.01))

    def _measure(self, offer: OfferFacts, before: float | None) -> None:
        begun = self._now_ms()
        provider_id = self._rent(offer)
        self.look.note(ok("rented", f"machine {provider_id}, the answer took {self._since(begun):.1f} s"))
        self._appear(provider_id, self._now_ms())
        self.look.note(self._boot(provider_id, offer, before))
        self._too_frequent()
        self.look.note(self._logs(provider_id))

    def _rent(self, offer: OfferFacts) -> str:
        """Raises `ProviderError`; what may exist all the same is found by its label."""
        settings = self.look.context.settings
        order = Order(offer.offer_id, self._label, {}, image=settings.payload_image, disk_gb=settings.rent_disk_gb)
        body = vast_rent.body(order, settings.vast_url)
        body["env"]["PROVEFLEET_CHECK"] = LONG_VALUE
        self._in_doubt = True
        answer = self.http.call(CREATE, item=order.offer_id, body=body)
        if answer.status == 400 and "env" in answer.message.lower():
            self.answers["env length"] = f"yes: {self.http.says(answer)}"
            body["env"]["PROVEFLEET_CHECK"] = "short"
            answer = self.http.call(CREATE, item=order.offer_id, body=body)
        number = whole(answer.fields, "new_contract")
        if number is not None:
            self._rented = [str(number)]
        if not answer.good or number is None:
            error = vast_rent.refusal(self.http, answer)
            self._in_doubt = not isinstance(error, OfferGone | RentalRefused)
            raise error
        self.answers.setdefault("env length", f"no: {len(LONG_VALUE)} characters were accepted")
        return str(number)

    def _appear(self, provider_id: str, begun: int) -> None:
        """Reads until both ways show it."""
        seen: dict[str, float] = {}
        while len(seen) < 2 and self._since(begun) < APPEAR_S:
            if "list" not in seen and self._listed(provider_id):
                seen["list"] = self._since(begun)
            if "single read" not in seen and self._shown(provider_id):
                seen["single read"] = self._since(begun)
        told = (f"{name} {s:.1f} s" for name, s in seen.items())
        self.answers["visibility"] = ", ".join(told) or f"neither within {APPEAR_S:.0f} s"

    def _boot(self, provider_id: str, offer: OfferFacts, before: float | None) -> Finding:
        """Until it runs or can't; what the row says of our order, and the credit of loading."""
        begun, instance = self._now_ms(), None
        while self._since(begun) < MOST_S / 2:
            instance = self._listed(provider_id)
            if instance and (instance.status != LOADING or instance.boot_failed):
                break
            self._sleep(2.0)
        loading_s = self._since(begun)
        fell = None if before is None or (now := self._credit()) is None else before - now
        if fell is not None:
            gpu = float(offer.facts.get("gpu_dollars_per_hour", offer.dollars_per_hour)) * loading_s / 3600
            self.answers["loading"] = (
                f"${fell:.5f} were gone after {loading_s:.0f} s; the GPU alone would be ${gpu:.5f}"
            )
        env = self._shown(provider_id).get("extra_env")
        names = [pair[0] for pair in env if isinstance(pair, list) and pair] if isinstance(env, list) else []
        self.answers["env object"] = "yes" if "PROVEFLEET_CHECK" in names else f"its row names {names or 'nothing'}"
        if instance is None:
            return warn("boot", "it is not listed", "See whether the next check says so too")
        self.answers["is_bid"] = f"it says {instance.interruptible}"
        words = f"{instance.status} after {loading_s:.0f} s: {instance.boot_failed or instance.detail or 'no message'}"
        # The agent has no controller to speak to here, and ends: exited is as good as running.
        fine = instance.status in ("running", EXITED) and not instance.boot_failed
        return ok("boot", words) if fine else warn("boot", words, "Does PROVEFLEET_PAYLOAD_IMAGE exist, for everybody?")

    def _too_frequent(self) -> None:
        """Three calls at once, on purpose."""
        for _ in range(3):
            answer, _ = self.http.exchange(LIST)
            if answer is not None and answer.status == 429:
                after = answer.headers.get("Retry-After")
                self.answers["429"] = f"{self.http.says(answer)}; Retry-After: {after or 'none'}"
                return
        self.answers["429"] = "three lists in a row were answered"

    def _logs(self, provider_id: str) -> Finding:
        first = vast_logs.request(self.http, provider_id, self._now_ms)
        logs = self._fetch(first)
        second = vast_logs.request(self.http, provider_id, self._now_ms)
        self.answers["log address"] = "yes, the same" if first["url"] == second["url"] else "no, another"
        try:
            self.vast.fetch_logs(second, 1)
        except LogsNotReady:
            status, _, _ = self.http.download(second["url"], {"Range": "bytes=-1"}, 1)
            self.answers["stale log"] = (
                "yes" if status in (200, 206) else f"no: HTTP {status} until the new one was there"
            )
        else:
            self.answers["stale log"] = "not seen: the new one was there at once"
        sizes = ", ".join(f"{name}: {len(data)} bytes" for name, data in logs.items())
        if not logs:
            return warn("logs", f"none within {LOGS_S:.0f} s", "The host may be slow or offline")
        return ok("logs", sizes)

    def _fetch(self, ticket: dict[str, Any]) -> dict[str, bytes]:
        begun = self._now_ms()
        while self._since(begun) < LOGS_S:
            try:
                return self.vast.fetch_logs(ticket, 1 << 20)
            except LogsNotReady:
                self._sleep(1.0)
        return {}

    def _destroyed(self, provider_id: str, measure: bool = False) -> Finding:
        """Ends it, and sees twice that it is gone."""
        begun, absent, told = self._now_ms(), 0, ""
        gone: dict[str, float] = {}
        for _ in range(DESTROY_TRIES):
            try:
                self.vast.destroy(provider_id)
                if "single read" not in gone and not self._shown(provider_id):
                    gone["single read"] = self._since(begun)
                listing = self.vast.list()
                here = any(i.provider_id == provider_id for i in listing.instances)
                absent = absent + 1 if listing.complete and not here else 0
                if absent == 1:
                    gone["list"] = self._since(begun)
                if absent == 2:
                    if measure:
                        self.answers["destroyed"] = ", ".join(f"{name} {s:.1f} s" for name, s in gone.items())
                    return ok("destroyed", f"machine {provider_id} is gone")
            except ProviderError as error:
                told = f": {error}"
            self._sleep(APART_S)
        fix = "Destroy it at https://cloud.vast.ai/instances/"
        return fail("destroyed", f"machine {provider_id} may still run{told}", fix)

    def _found(self) -> list[str]:
        """What our label shows, after a create whose answer is not known: looked for as long as it may be hidden."""
        begun = self._now_ms()
        while self._since(begun) < APPEAR_S:
            try:
                found = [i.provider_id for i in self.vast.list().instances if i.label == self._label]
            except ProviderError:
                found = []
            if found:
                return found
            self._sleep(APART_S)
        return []

    def _listed(self, provider_id: str) -> ProviderInstance | None:
        return next((i for i in self.vast.list().instances if i.provider_id == provider_id), None)

    def _shown(self, provider_id: str) -> dict[str, Any]:
        """The row of the single read; empty where it shows none."""
        answer = self.http.call(SHOW, item=provider_id)
        row = answer.fields.get("instances")
        return row if isinstance(row, dict) else {}

    def _credit(self) -> float | None:
        account = self.vast.account()
        return None if account is None else account.credit_dollars

    def _since(self, begun_ms: int) -> float:
        return (self._now_ms() - begun_ms) / 1000


@contextmanager
def _interrupted_once() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM interrupts; what comes after it can't keep a machine from being destroyed."""
    interrupts = iter([KeyboardInterrupt])

    def interrupt(*_: object) -> None:
        for kind in interrupts:
            raise kind

    kept = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
