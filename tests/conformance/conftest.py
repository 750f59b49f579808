"""A fake market on a socket, Vast's own client pointed at it, and the table of what that client did."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from tests.conformance.exchanges import Recorder
from tests.conformance.real import VENV, Driver, RealClient, running_driver
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.app import create_app
from tests.fakes.vast.market import Market

KEY = "0123456789abcdef" * 4
STRANGERS_KEY = "f" * 64

_done: list[tuple[str, str, bool]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write what Vast's client said and heard to recorded/")


@pytest.fixture
def market() -> Market:
    """64 offers, and no account yet."""
    market = Market(seed=7)
    market.seed_offers(64)
    return market


@pytest.fixture
def account(market: Market) -> Account:
    """A customer with $25 whose key may do everything."""
    return market.add_account(KEY, credit=25.0)


@pytest.fixture
def recorder(market: Market) -> Recorder:
    return Recorder(create_app(market), market.advance, [KEY, STRANGERS_KEY])


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the client keeps what it likes to keep. Without one it would read the key of whoever runs this."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def driver(home: Path) -> Iterator[Driver]:
    if not (VENV / ".made").exists():
        pytest.skip("Vast's client is not installed: make test-vast-conformance")
    with running_driver(home) as driver:
        yield driver


@pytest.fixture
def real(
    market: Market, account: Account, recorder: Recorder, driver: Driver, home: Path, request: pytest.FixtureRequest
) -> Iterator[RealClient]:
    """Vast's client in the account's hands."""
    server = make_server("127.0.0.1", 0, recorder, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = RealClient(f"http://127.0.0.1:{server.server_port}", account.key, home, recorder, driver)
    market.logs.base = client.url
    failed_before = request.session.testsfailed
    yield client
    server.shutdown()
    passed = request.session.testsfailed == failed_before
    _done.extend((result.name, ", ".join(dict.fromkeys(result.routes)), passed) for result in client.results)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _done:
        return
    terminalreporter.section("what vastai 1.9.1 did")
    width = min(60, max(len(name) for name, _, _ in _done))
    for name, routes, passed in _done:
        terminalreporter.write_line(f"{'ok  ' if passed else 'FAIL'} {name[:width]:<{width}}  {routes}")
    terminalreporter.write_line(f"{len(_done)} calls, {sum(not ok for *_, ok in _done)} in failed tests")
