"""What reading alone tells of an account at Vast.ai: what its key may do, and what the service does where its documents
leave it open. `vast_trial` adds what takes a rented machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from jobs.context import Context
from jobs.market.providers import vast_offers
from jobs.market.providers.base import KeyRefused, Listing, ProviderError
from jobs.market.providers.vast import VastProvider
from jobs.market.providers.vast_fields import number, whole
from jobs.market.providers.vast_http import ACCOUNT, SHOW, Answer, Route
from jobs.services.finding import Finding, fail, ok, warn

TRIAL_LABEL = "provefleet-check:"
OLD_LIST = Route("old_list", "GET", "/api/v0/instances/")
NEEDS_SPEND = "needs --spend"
DAY_MS = 86_400_000

QUESTIONS: dict[str, str] = {
    "credit": "Which field of the account is the money: `credit`, or `balance`?",
    "clock": "How far is Vast's clock from ours?",
    "search default": "How many offers does a search show that names no limit?",
    "search cap": "How many does it show with limit 1000, and does paging by price find more?",
    "filters": "Does the search honour each numeric filter?",
    "storage": "Does `allocated_storage` change the price by the disk's cost?",
    "bids": "Is `min_bid` the same in a search on demand as in one for bids?",
    "limits": "Which headers tell how often one may ask?",
    "old list": "Does this account still have the list of v0?",
    "unknown id": "What does showing an instance say that does not exist: null, or 404?",
    "bill": "How far does the bill lag behind?",
    "env object": "Does an `env` that is an object reach the container?",
    "env length": "Is the limit of 256 characters a value enforced?",
    "visibility": "How long after a create do the list and the single read show the machine?",
    "is_bid": "Does a rental without a price show as not interruptible?",
    "loading": "Is the GPU charged while the image loads?",
    "429": "What does too frequent look like, and is there a Retry-After?",
    "log address": "Has a second request for logs the same address as the first?",
    "stale log": "Was a previous log still there when the next one was asked for?",
    "destroyed": "How long after a destroy do the single read and the list still show it?",
    "cancel_unavail": "What is its default?",
    "onstart": "How long may `onstart` be?",
    "ssh keys": "Does a new account key reach instances that run already?",
    "queued start": "Does a start that was queued fire later?",
    "exited": "Is the GPU charged after the container's process ended?",
    "quota": "How many searches a day are allowed?",
    "spend limit": "Which status has `spend_rate_limit`?",
}
# What we never do, or what no rented machine can show.
MOOT = {
    "cancel_unavail": "does not matter: it is sent with every create",
    "onstart": "does not matter: none is sent, the image's entrypoint runs",
    "ssh keys": "does not matter: no machine is entered by ssh",
    "queued start": "does not matter: machines are destroyed, never stopped and started",
    "exited": "counted as charged until the destroy is proven",
    "quota": "not tried, it would use them up; when they are, no search is sent until the end that Vast.ai names",
    "spend limit": "only a new account can tell; any status of it counts as lack of credit",
}


@dataclass
class Report:
    """What was found, in order; `answers` by question; `dollars` as far as the credit shows it."""

    findings: list[Finding] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    dollars: float | None = None

    def to_json(self) -> dict[str, Any]:
        """For scripts: findings, each question with its answer, what the trial cost."""
        return {
            "findings": [vars(finding) for finding in self.findings],
            "questions": [
                {"name": name, "question": text, "answer": self.answer(name)} for name, text in QUESTIONS.items()
            ],
            "trial_dollars": self.dollars,
        }

    def answer(self, name: str) -> str:
        return self.answers.get(name) or MOOT.get(name) or NEEDS_SPEND


class Look:
    """One look at one account. Each step yields what it found and leaves answers in the report; `tell` hears of each
    finding as it comes."""

    def __init__(self, context: Context, vast: VastProvider, tell: Callable[[Finding], None]):
        self.context, self.vast, self.http = context, vast, vast.http
        self.report = Report()
        self._tell = tell
        self._limits: set[str] = set()

    def run(self) -> None:
        """All steps; one that fails does not keep the others from being made."""
        for step in (self.settings, self.account, self.list, self.search, self.bill, self.oddities):
            try:
                for finding in step():
                    self.note(finding)
            except ProviderError as error:
                no_key = isinstance(error, KeyRefused)
                fix = "docs/vast.md says which permissions the key needs" if no_key else "Try again"
                self.note(fail(step.__name__, str(error), fix))
        self.report.answers["limits"] = ", ".join(sorted(self._limits)) or "none was sent"

    def note(self, finding: Finding) -> None:
        """Keep it, and tell."""
        self.report.findings.append(finding)
        self._tell(finding)

    def settings(self) -> Iterator[Finding]:
        """What we would rent with."""
        settings = self.context.settings
        if settings.vast_url == "https://console.vast.ai":
            yield ok("address", settings.vast_url)
        else:
            yield warn("address", f"{settings.vast_url} is not the real Vast.ai", "Unset PROVEFLEET_VAST_URL for that")
        if "@sha256:" in settings.payload_image:
            yield ok("image", settings.payload_image)
        else:
            yield warn("image", "no payload image by its digest", "Set PROVEFLEET_PAYLOAD_IMAGE, see docs/images.md")

    def account(self) -> Iterator[Finding]:
        """user_read: the credit, and the clocks."""
        answer = self.http.call(ACCOUNT)
        self._see_limits(answer)
        credit = number(answer.fields, "credit", low=-1e9)
        self.report.answers["credit"] = ", ".join(f"`{n}`: {_kind(answer.fields, n)}" for n in ("credit", "balance"))
        self.report.answers["clock"] = self._clock(answer)
        floor = self.context.settings.credit_floor_dollars
        if not answer.good or credit is None:
            yield fail("credit", f"can't be read: {self.http.says(answer)}", "The key needs the permission user_read")
        elif credit < floor:
            yield warn(
                "credit", f"${credit:.2f}, below the floor of ${floor:.2f}: nothing is rented", "Pay in at Vast.ai"
            )
        else:
            yield ok("credit", f"${credit:.2f}")

    def list(self) -> Iterator[Finding]:
        """instance_read: everything under this account."""
        listing = self.vast.list()
        count = len(listing.instances)
        if not listing.complete:
            yield fail(
                "instances", f"{count} are listed, and the list does not add up", "Try again; report it if it stays"
            )
            return
        left = leftovers(listing)
        yield ok("instances", f"{count} listed, all pages")
        if left:
            yield warn("leftovers", f"{', '.join(left)} of an earlier trial still run", "--spend destroys them first")

    def search(self) -> Iterator[Finding]:
        """misc: the search, its cap, its filters, its prices."""
        settings, answers = self.context.settings, self.report.answers
        wanted = vast_offers.filters(settings)
        query = vast_offers.query(wanted, settings.rent_disk_gb)
        unlimited = {name: value for name, value in query.items() if name != "limit"}
        answers["search default"] = f"{len(vast_offers.search(self.http, unlimited))}"
        rows = vast_offers.search(self.http, {**query, "limit": 1000})
        answers["search cap"] = f"{len(rows)} with limit 1000"
        if rows:
            last = max(number(row, "dph_total") or 0.0 for row in rows)
            more = vast_offers.search(self.http, vast_offers.query(wanted, settings.rent_disk_gb, price={"gte": last}))
            fresh = {whole(row, "id") for row in more} - {whole(row, "id") for row in rows}
            answers["search cap"] += f"; the next page by price shows {len(fresh)} more"
        ignored = sorted({f.field for f in wanted for row in rows if not f.fits(row)})
        answers["filters"] = (
            f"no: offers break {', '.join(ignored)}" if ignored else f"yes, in all of {len(rows)} offers"
        )
        larger = vast_offers.search(self.http, vast_offers.query(wanted, settings.rent_disk_gb + 100.0))
        answers["storage"] = _storage(rows, larger)
        bids = vast_offers.search(self.http, vast_offers.query(wanted, settings.rent_disk_gb, "bid"))
        answers["bids"] = _bids(rows, bids)
        offers = [o for row in rows if (o := vast_offers.facts(row, settings.rent_disk_gb, None))]
        if offers:
            best = min(offers, key=lambda offer: offer.dollars_per_hour)
            words = f"the cheapest {best.num_gpus} x {best.gpu_model}, ${best.dollars_per_hour:.4f}/h with disk"
            yield ok("offers", f"{len(offers)} fit the payload image; {words}")
        else:
            yield warn("offers", "none fits the payload image now", "Are PROVEFLEET_RENT_* narrower than they need be?")

    def bill(self) -> Iterator[Finding]:
        """billing_read: the last week."""
        now = self.context.now_ms()
        lines = self.vast.charges(now - 7 * DAY_MS, now)
        newest = max((line.end_ms for line in lines), default=None)
        lag = "nothing was rented in the last 7 days" if newest is None else f"{(now - newest) / 3.6e6:.1f} h at most"
        self.report.answers["bill"] = lag
        yield ok("bill", f"${sum(line.dollars for line in lines):.2f} in 7 days")

    def oddities(self) -> Iterator[Finding]:
        """What is only asked to know it."""
        answer, lost = self.http.exchange(OLD_LIST)
        self.report.answers["old list"] = self.http.says(answer) if answer else lost
        self._see_limits(answer)
        answer, lost = self.http.exchange(SHOW, "1")
        empty = answer is not None and "instances" in answer.fields and answer.fields["instances"] is None
        self.report.answers["unknown id"] = "null" if empty else self.http.says(answer) if answer else lost
        self._see_limits(answer)
        yield ok("write", "not tried: it would rent or destroy; --spend does both")

    def _see_limits(self, answer: Answer | None) -> None:
        names = (name.lower() for name in (answer.headers if answer else ()))
        self._limits |= {name for name in names if "ratelimit" in name or name == "retry-after"}

    def _clock(self, answer: Answer) -> str:
        try:
            there_s = parsedate_to_datetime(str(answer.headers.get("Date"))).timestamp()
        except (ValueError, TypeError):
            return "it does not say"
        return f"{there_s - self.context.now_ms() / 1000:+.0f} s"


def leftovers(listing: Listing) -> list[str]:
    """Machines of earlier trials, by id: only ours carry this label."""
    return [i.provider_id for i in listing.instances if i.label.startswith(TRIAL_LABEL)]


def _kind(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return (
        "absent" if name not in fields else f"${value:.2f}" if isinstance(value, float | int) else type(value).__name__
    )


def _by_id(rows: Sequence[Mapping[str, Any]]) -> dict[int | None, Mapping[str, Any]]:
    return {whole(row, "id"): row for row in rows}


def _storage(rows: Sequence[Mapping[str, Any]], larger: Sequence[Mapping[str, Any]]) -> str:
    """Does 100 GB more cost what they should?"""
    there, right = _by_id(larger), 0
    pairs = [(row, there[id_]) for id_, row in _by_id(rows).items() if id_ in there]
    for small, large in pairs:
        rise = (number(large, "dph_total") or 0.0) - (number(small, "dph_total") or 0.0)
        cost = (number(small, "storage_cost") or 0.0) * 100 / vast_offers.HOURS_PER_MONTH
        right += abs(rise - cost) < 0.02 * cost + 1e-4
    return f"yes for {right} of {len(pairs)} offers" if pairs else "no offer was in both searches"


def _bids(rows: Sequence[Mapping[str, Any]], bids: Sequence[Mapping[str, Any]]) -> str:
    there = _by_id(bids)
    pairs = [(number(row, "min_bid"), number(there[i], "min_bid")) for i, row in _by_id(rows).items() if i in there]
    same = sum(one == other for one, other in pairs)
    return f"{same} of {len(pairs)} offers in both searches have the same" if pairs else "no offer was in both searches"
