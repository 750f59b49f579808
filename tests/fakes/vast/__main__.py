"""`python -m tests.fakes.vast`: a marketplace to try things on."""

from __future__ import annotations

import signal
import threading
import time

import click

from tests.fakes.vast.app import serve
from tests.fakes.vast.market import Market
from tests.fakes.vast.motion import keep_moving

KEY = "fake0000000000000000000000000000000000000000000000000000000f4ce1"


@click.command()
@click.option("--port", default=8085, show_default=True, help="0 takes a free one.")
@click.option("--seed", default=0, show_default=True)
@click.option("--offers", default=64, show_default=True)
@click.option("--speed", default=1.0, show_default=True, help="Virtual seconds a second.")
@click.option("--credit", default=25.0, show_default=True, help="Dollars of the account.")
@click.option("--key", default=KEY, help="The account's key.")
@click.option("--churn", default=60.0, show_default=True, help="Seconds between moves of the market; 0 for none.")
@click.option("--unreliable", is_flag=True, help="Rentals go wrong by chance, on some machines often.")
@click.option("--scenario", "names", multiple=True, help="A nasty case, such as N8 or N25:stale. May be repeated.")
def main(
    port: int,
    seed: int,
    offers: int,
    speed: float,
    credit: float,
    key: str,
    churn: float,
    unreliable: bool,
    names: tuple[str, ...],
) -> None:
    """A fake Vast.ai on 127.0.0.1, until SIGTERM or Ctrl-C."""
    market = Market(seed, time.time_ns() // 1_000_000)
    market.add_account(key, credit, name="operator")
    market.seed_offers(offers)
    market.life.unreliable = unreliable
    if churn:
        keep_moving(market, churn)
    try:
        for name in names:
            market.scenario(name)
    except ValueError as no:
        raise click.UsageError(str(no)) from None
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    served = serve(market, port, speed)
    click.echo(f"vast: {served.url} with {offers} offers, key {key}")
    click.echo(f"use it: PROVEFLEET_VAST_URL={served.url} PROVEFLEET_VAST_API_KEY={key} provefleet vast check")
    stop.wait()
    served.close()
    click.echo(f"vast: {len(market.requests)} requests, ${market.bill():.4f} billed, {len(market.live())} still rented")


if __name__ == "__main__":
    main()
