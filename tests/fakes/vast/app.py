"""The two ways to talk to a market: in process, and on a socket."""

from __future__ import annotations

from tests.fakes.vast.market import Market
from tests.fakes.vast.server import Served, wall_clock
from tests.fakes.vast.wsgi import App


def create_app(market: Market) -> App:
    """The WSGI app: `httpx.Client(transport=httpx.WSGITransport(app=create_app(market)))`."""
    return App(market)


def serve(market: Market, port: int = 0, speed: float = 1.0, host: str = "127.0.0.1") -> Served:
    """Serve on a socket until `close()`; 0 takes a free port, `url` of the result says where.

    The market's time passes by itself from now on, `speed` times as fast as the wall's, unless it follows
    a clock of its own already.
    """
    if not market.clock.follows:
        market.clock.follow(wall_clock(market.now_ms, speed))
    return Served(market, host, port)
