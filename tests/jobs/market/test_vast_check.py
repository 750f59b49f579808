"""`provefleet vast check` on the fake marketplace: what it finds, what it costs, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr

from jobs import cli
from jobs.context import Context
from jobs.market import vast_check
from jobs.market.vast_look import MOOT, NEEDS_SPEND, QUESTIONS, TRIAL_LABEL
from jobs.settings import Settings
from tests.fakes.vast.accounts import SCOPES
from tests.fakes.vast.app import create_app
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import IMAGE, KEY
from tests.jobs.scene import NO_REDIS


@pytest.fixture
def market() -> Market:
    market = Market(seed=3)
    market.add_account(KEY)
    market.seed_offers(30)
    return market


class Check:
    """The command in process, on a market; the answer to its question is `confirm`."""

    def __init__(self, state_dir: Path, market: Market):
        self.state_dir, self.market = state_dir, market
        self.transport: httpx.BaseTransport = httpx.WSGITransport(create_app(market))  # type: ignore[arg-type]

    def __call__(self, *flags: str, confirm: str = "", **settings: Any) -> Result:
        fields: dict[str, Any] = {
            "state_dir": self.state_dir, "redis_url": SecretStr(NO_REDIS), "vast_api_key": SecretStr(KEY),
            "payload_image": IMAGE, **settings,
        }  # fmt: skip
        context = Context(Settings(**fields), now_ms=lambda: self.market.now_ms, sleep=self.market.advance)
        context.vast_transport = self.transport
        options = {"spend": "--spend" in flags, "yes": "--yes" in flags, "as_json": "--json" in flags}

        def command() -> None:
            raise SystemExit(vast_check.run(context, **options))

        result = CliRunner().invoke(click.command()(command), input=confirm)
        assert KEY not in result.output + repr(result.exception)
        return result


@pytest.fixture
def check(state_dir: Path, market: Market) -> Check:
    return Check(state_dir, market)


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    found["answers"] = {q["name"]: q["answer"] for q in found["questions"]}
    return found


def writes(market: Market) -> list[str]:
    """The calls that change something."""
    reading = ("GET ", "POST /api/v0/bundles", "PUT /api/v0/instances/request_logs")
    return [seen.route for seen in market.requests if not seen.route.startswith(reading)]


def test_it_only_reads(check: Check, market: Market) -> None:
    market.add_instance(market.accounts[0], "somebody else's")
    result = check()
    assert result.exit_code == 0, result.output
    assert writes(market) == []
    assert market.violations == []
    assert "ok    credit            $25.00" in result.output
    assert "ok    instances         1 listed, all pages" in result.output
    for text in QUESTIONS.values():
        assert text in result.output


def test_each_open_question_has_an_answer_or_what_it_takes(check: Check, market: Market) -> None:
    market.seed_offers(170)
    read = document(check("--json"))["answers"]
    assert list(read) == list(QUESTIONS)
    needs = {name for name, answer in read.items() if answer == NEEDS_SPEND}
    assert needs == {
        "env object", "env length", "visibility", "is_bid", "loading", "429", "log address", "stale log", "destroyed"
    }  # fmt: skip
    assert {name for name in read if read[name] == MOOT.get(name)} == set(MOOT)
    assert read["search cap"].startswith("64 with limit 1000; the next page by price shows ")
    assert read["old list"].startswith("HTTP 410, deprecated_endpoint")
    assert read["unknown id"] == "null"


def test_a_trial_answers_them_all_and_leaves_nothing(check: Check, market: Market) -> None:
    found = document(check("--json", "--spend", "--yes"))
    assert [f for f in found["findings"] if f["level"] != "ok"] == []
    assert NEEDS_SPEND not in found["answers"].values()
    assert found["answers"]["env object"] == "yes"
    assert found["answers"]["env length"].startswith("yes: HTTP 400")
    assert found["answers"]["is_bid"] == "it says False"
    assert found["answers"]["429"].startswith("HTTP 429")
    assert market.live(TRIAL_LABEL) == []
    assert len(market.instances) == 1
    assert 0 < found["trial_dollars"] < 0.1
    assert found["trial_dollars"] == pytest.approx(market.bill(), abs=1e-6)
    assert [v.what for v in market.violations] == ["too early"], "the one on purpose"


def test_a_long_value_that_is_accepted_is_said_so(check: Check, market: Market) -> None:
    market.env_value_limit = None
    answers = document(check("--json", "--spend", "--yes"))["answers"]
    assert answers["env length"] == "no: 300 characters were accepted"
    assert answers["env object"] == "yes"


@pytest.mark.parametrize("typed", ["no\n", "yes\n", "\n"])
def test_only_who_types_it_spends(check: Check, market: Market, typed: str) -> None:
    result = check("--spend", confirm=typed)
    assert "Type spend to go on" in result.output
    assert "not made" in result.output
    assert writes(market) == []


def test_typing_it_will_do(check: Check, market: Market) -> None:
    assert check("--spend", confirm="spend\n").exit_code == 0
    assert len(market.instances) == 1


def test_what_costs_more_than_ten_cents_is_not_rented(check: Check, market: Market) -> None:
    for machine in market.machines.values():
        machine.dollars_per_gpu_hour = 5.0
    result = check("--spend", "--yes")
    assert result.exit_code == 1
    assert "no offer costs less than $0.10" in result.output
    assert writes(market) == []


class Cut(httpx.BaseTransport):
    """Does something else at the nth call of a method and path, before or after it took effect."""

    def __init__(self, inner: httpx.BaseTransport, method: str, path: str, act: Any, nth: int = 1, after: bool = True):
        self.inner, self.method, self.path, self.act, self.nth, self.after = inner, method, path, act, nth, after

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        hit = request.method == self.method and request.url.path.startswith(self.path)
        self.nth -= hit
        if hit and self.nth == 0 and not self.after:
            self.act()
        response = self.inner.handle_request(request)
        if hit and self.nth == 0 and self.after:
            self.act()
        return response


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def lose() -> None:
    raise httpx.ReadError("reset")


ASKS = "/api/v0/asks/"
MOMENTS = [
    ("PUT", ASKS, 1, True),
    ("PUT", ASKS, 2, False),
    ("PUT", ASKS, 2, True),
    ("GET", "/api/v0/instances/3", 1, True),
    ("PUT", "/api/v0/instances/request_logs/", 1, False),
    ("DELETE", "/api/v0/instances/", 1, False),
    ("DELETE", "/api/v0/instances/", 1, True),
]


@pytest.mark.parametrize(("method", "path", "nth", "after"), MOMENTS)
@pytest.mark.parametrize("act", [ctrl_c, lose])
def test_whatever_breaks_in_nothing_stays(
    check: Check, market: Market, method: str, path: str, nth: int, after: bool, act: Any
) -> None:
    check.transport = Cut(check.transport, method, path, act, nth, after)
    handled_by = signal.getsignal(signal.SIGINT)  # under nohup it is ignored
    result = check("--spend", "--yes")
    assert not isinstance(result.exception, KeyboardInterrupt), result.output
    assert market.live(TRIAL_LABEL) == []
    assert len(market.instances) <= 1
    assert "interrupted" in result.output or act is lose or method == "DELETE"
    assert signal.getsignal(signal.SIGINT) is handled_by


def test_a_bid_that_left_a_machine_behind_is_cleaned_up(check: Check, market: Market) -> None:
    def change(body: dict[str, Any]) -> dict[str, Any]:
        return {"success": False, "error": "resources_unavailable", "new_contract": body["new_contract"]}

    market.fault("PUT /api/v0/asks", "change", skip=1, change=change)
    result = check("--spend", "--yes")
    assert result.exit_code == 1
    assert "did not start it" in result.output
    assert market.live() == []


def test_leftovers_of_an_earlier_trial_are_told_and_destroyed(check: Check, market: Market) -> None:
    account = market.accounts[0]
    left = market.add_instance(account, TRIAL_LABEL + "earlier", foreign=False)
    other = market.add_instance(account, "provefleet:c:i")
    told = check()
    assert f"{left.id} of an earlier trial still run" in told.output
    assert left.live
    check("--spend", confirm="no\n")
    assert not left.live
    assert other.live
    assert market.foreign_touched() == []


@pytest.mark.parametrize("lacking", sorted(SCOPES - {"user_write"}))
def test_a_permission_that_is_missing_is_named_and_spoils_nothing_else(state_dir: Path, lacking: str) -> None:
    market = Market(seed=3)
    market.add_account(KEY, scopes=frozenset(SCOPES - {lacking}))
    market.seed_offers(20)
    result = Check(state_dir, market)()
    failed = [line for line in result.output.splitlines() if line.startswith("FAIL")]
    if lacking in ("misc", "instance_write"):  # anybody may search; writing is not tried
        assert failed == []
    else:
        assert len(failed) == 1
        assert "does not accept our key" in failed[0]
        assert result.exit_code == 1


def test_a_key_that_nobody_knows_fails_and_is_not_shown(check: Check) -> None:
    result = check(vast_api_key=SecretStr("f" * 64))
    assert result.exit_code == 1
    assert "does not accept our key" in result.output
    assert "f" * 64 not in result.output


def test_without_a_key_it_says_what_to_set(check: Check, market: Market) -> None:
    result = check(vast_api_key=SecretStr(""))
    assert result.exit_code == 1
    assert "set PROVEFLEET_VAST_API_KEY" in result.output
    assert market.requests == []


def test_another_address_and_no_image_are_warned_of(check: Check) -> None:
    result = check(vast_url="http://127.0.0.1:9", payload_image="")
    assert "warn  address           http://127.0.0.1:9 is not the real Vast.ai" in result.output
    assert "warn  image" in result.output


def test_without_an_image_nothing_is_rented(check: Check, market: Market) -> None:
    result = check("--spend", "--yes", payload_image="")
    assert "PROVEFLEET_PAYLOAD_IMAGE must name an image by its digest" in result.output
    assert writes(market) == []


def test_the_command_is_there() -> None:
    result = CliRunner().invoke(cli.vast, ["check", "--help"])
    assert result.exit_code == 0
    assert "--spend" in result.output
