"""`make demo-vast`: the demo of `provefleet` on a marketplace that is only here, with real agents on what it rents.

The product is used from outside, as an operator does: `up`, then `demo --provider vast`, with the settings of an
account. In between the three machines that would be taken first are marked broken, as earlier runs would have done.
Everything lies in a folder of its own, and nothing of it is left.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from sqlalchemy import select

from jobs import scan
from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.market_models import Offer
from jobs.domain.models import Run
from jobs.market import ranking, reputation
from jobs.market.providers.base import ProviderUnavailable
from jobs.settings import load_settings
from tests.fakes.vast.app import serve
from tests.fakes.vast.boot import Boots, as_this_host
from tests.fakes.vast.market import Market

OFFERS, BAD = 64, 3
IMAGE = "registry.example.com/provefleet-payload@sha256:" + "5ca1ab1e" * 8
PULL_S = 6.0
UP_S, STOP_S = 180.0, 60.0


class Failed(Exception):
    """The demo could not be shown, and why."""


@click.command()
@click.option("--once", is_flag=True, help="Stop everything afterwards and end with one line of result.")
@click.option("--seed", default=7, show_default=True, help="Of the marketplace.")
def main(once: bool, seed: int) -> None:
    """The whole job on a marketplace of 64 offers, three of them on machines that are remembered as broken."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    outcome = "demo: failed run=none stopped by the operator"
    market = Market(seed, time.time_ns() // 1_000_000)
    try:
        with ExitStack() as everything:
            _surround(everything, market)
            _arrange(market)
            outcome = _demo()
            if not once:
                click.echo(f"{outcome}\n\n  Ctrl-C stops everything, marketplace included.")
                signal.pause()
    except Failed as error:
        outcome = f"demo: failed run=none {error}"
    except KeyboardInterrupt:
        pass
    if left := market.live():
        outcome = f"demo: failed {len(left)} instances are still rented"
    early = "".join(f"; too early: {violation}" for violation in market.violations)
    click.echo(f"bill: ${market.bill():.4f}, {len(market.requests)} calls of the marketplace's API{early}")
    click.echo(outcome)
    sys.exit(0 if outcome.startswith("demo: ok") else 1)


def _surround(everything: ExitStack, market: Market) -> None:
    """Marketplace, agents and `up`, in a state folder of their own. Raises `Failed`."""
    base = Path(tempfile.mkdtemp(prefix="provefleet-demo-vast-", dir="/tmp"))
    everything.callback(shutil.rmtree, base)
    key = secrets.token_hex(32)
    market.add_account(key, 25.0, name="operator")
    market.seed_offers(OFFERS)
    as_this_host(market)
    market.pull_s = PULL_S
    served = everything.enter_context(serve(market))
    kernels = Path(os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "provefleet" / "numba")
    kernels.mkdir(mode=0o700, parents=True, exist_ok=True)
    boots = Boots(market, base / "machines", kernels)
    everything.callback(boots.close)
    state = base / "state"
    os.environ |= {
        "PROVEFLEET_STATE_DIR": str(state),
        "PROVEFLEET_VAST_URL": served.url,
        "PROVEFLEET_VAST_API_KEY": key,
        "PROVEFLEET_PAYLOAD_IMAGE": IMAGE,
        "PROVEFLEET_RENT_DISK_GB": "8",
    }
    everything.enter_context(_up())
    # Compiling takes longer than all the rest; only now, since `up` takes an empty folder or its own.
    (state / "cache").mkdir(mode=0o700, exist_ok=True)
    (state / "cache" / "numba").symlink_to(kernels)


@contextmanager
def _up() -> Iterator[None]:
    """`provefleet up`, from the moment that everything runs. Raises `Failed`."""
    argv = [sys.executable, "-P", "-m", "provefleet", "up"]
    up = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    ready = threading.Event()
    said: list[str] = []

    def read() -> None:
        assert up.stdout is not None
        for line in up.stdout:
            said.append(line.strip())
            if "everything runs" in line:
                ready.set()
            if line.startswith("  site  ") or "sign in" in line:
                click.echo(line, nl=False)
        ready.set()

    click.echo("starting a marketplace and the services")
    threading.Thread(target=read, daemon=True).start()
    try:
        if not ready.wait(UP_S) or up.poll() is not None:
            raise Failed(f"`provefleet up` did not come up: {said[-1] if said else 'it said nothing'}")
        yield
    finally:
        click.echo("stopping everything")
        up.send_signal(signal.SIGINT)
        try:
            up.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(up.pid, signal.SIGKILL)
            up.wait()


def _arrange(market: Market) -> None:
    """The memory of earlier runs: of the offers that would be taken first, three are on machines that failed."""
    context = Context(load_settings())
    _scan(context)
    with writing(context.sessions) as session:
        offers = list(session.scalars(select(Offer).where(Offer.provider == "vast", Offer.gone_ms.is_(None))))
        click.echo(f"offers: {len(market.offers)} on the marketplace, {len(offers)} of them fit the payload image")
        ranked = ranking.rank_offers(context, session, _wanted(), offers)
        bad = _most_tempting([one.offer for one in ranked])
        for machine in sorted({offer.machine_id for offer in bad}):
            reason = "9 of 12 proofs were wrong in a run before this demo"
            reputation.mark(session, context.now_ms(), "vast", machine, reputation.BROKEN, reason, "demo")
        again = ranking.rank_offers(context, session, _wanted(), offers)
    skipped = {one.offer.offer_id: one.skipped for one in again if one.skipped}
    click.echo(f"marked: the {len(bad)} most tempting offers are on machines that are remembered as broken")
    for offer in bad:
        what = f"offer {offer.offer_id}, machine {offer.machine_id}, {offer.num_gpus}x {offer.gpu_model}"
        click.echo(f"  {what} at ${offer.dollars_per_hour:.3f}/h: {skipped.get(offer.offer_id) or 'NOT SKIPPED'}")


def _wanted() -> Run:
    """What the demo will ask for, as far as the order of offers depends on it."""
    return Run(id="none", kind="benchmark", payload="groth16", inputs={}, proofs=12, max_duration_s=3600, lease_s=900)


def _most_tempting(ranked: list[Offer]) -> list[Offer]:
    """The first `BAD` offers, but of machines whose offers are all among them: marks are for machines."""
    bad: list[Offer] = []
    for offer in ranked:
        slices = [other for other in ranked if other.machine_id == offer.machine_id]
        if offer not in bad and len(bad) + len(slices) <= BAD:
            bad += slices
    return bad


def _scan(context: Context) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            return scan.refresh_if_stale(context, "vast")
        except ProviderUnavailable as error:  # cron may be searching at this very moment
            if time.monotonic() > until:
                raise Failed(f"the marketplace can't be searched: {error}") from error
            time.sleep(2)


def _demo() -> str:
    """`provefleet demo` on the stack that runs: its line of result."""
    argv = [sys.executable, "-P", "-m", "provefleet", "demo", "--once", "--provider", "vast", "--yes"]
    outcome = ""
    demo = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("demo: "):
                outcome = line.strip()
            else:
                click.echo(line, nl=False)
        demo.wait()
    finally:
        if demo.poll() is None:
            demo.send_signal(signal.SIGINT)
            demo.wait(30)
    return outcome or f"demo: failed run=none it ended with exit code {demo.returncode}"


if __name__ == "__main__":
    main()
