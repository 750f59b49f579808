"""Pages, sizes and the driver for the screenshots. `python -m tests.browser.shots FOLDER [word ...]` takes them by hand."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.fakes.s3 import running_s3
from tests.fakes.valkey import running_valkey
from tests.web.seed import PASSWORD, Fleet
from tests.web.site import seeded, served, settings_of

WIDTHS = (360, 768, 1440, 2560)
THEMES = ("light", "dark")
FLAGS = [
    "--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pages(fleet: Fleet) -> dict[str, str]:
    """Every page by a name for its picture."""
    run, instance = fleet.runs, fleet.instances
    done = instance["destroyed"]
    return {
        "overview": "/", "runs": "/runs", "runs-filtered": "/runs?state=broken", "runs-nothing": "/runs?state=passed&by=nobody",
        "run-active": f"/runs/{run['active']}", "run-passed": f"/runs/{run['passed']}", "run-broken": f"/runs/{run['broken']}",
        "run-failed": f"/runs/{run['failed']}", "run-queued": f"/runs/{run['queued']}", "run-hostile": f"/runs/{fleet.hostile_run}",
        "proofs": f"/runs/{run['passed']}/proofs", "instance-benchmarking": f"/instances/{instance['benchmarking']}",
        "instance-destroyed": f"/instances/{done}", "instance-hostile": f"/instances/{fleet.hostile_instance}",
        "instance-force": f"/instances/{instance['ready']}/force", "artifacts": f"/instances/{done}/artifacts",
        "offers": "/offers", "new-run": "/runs/new", "new-run-own": f"/runs/new?source=own&zkey_id={fleet.zkey}&offer=offer-48801",
        "archive": "/archive", "lines": f"/archive/{done}/bench", "lines-gap": f"/archive/{fleet.gaps}/bench?from=501",
        "machines": "/machines", "inputs": "/inputs", "queues": "/queues", "audit": "/audit", "settings": "/settings", "users": "/users",
        "search": "/search?q=27", "search-nothing": "/search?q=zzz", "not-found": "/runs/0000",
    }  # fmt: skip


@dataclass
class Watched:
    """A browser context and what went wrong in it: console errors, CSP reports, page errors, failed requests."""

    context: BrowserContext
    complaints: list[str] = field(default_factory=list)

    def page(self) -> Page:
        page = self.context.new_page()
        page.on(
            "console",
            lambda m: self.complaints.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        return page


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield running
        finally:
            running.close()


def sign_in(page: Page, address: str, name: str = "admin") -> None:
    page.goto(f"{address}/sign-in")
    page.fill("#name", name)
    page.fill("#password", PASSWORD)
    page.click("button.main")
    page.wait_for_url(f"{address}/")


def watched(running: Browser, width: int, theme: str, state: object = None) -> Watched:
    height = {360: 740, 768: 1024, 1440: 900, 2560: 1440}[width]
    context = running.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, storage_state=state,  # type: ignore[arg-type]
    )  # fmt: skip
    return Watched(context)


def main(folder: Path, words: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pf-") as temporary:
        root = Path(temporary)
        for name in ("s3", "valkey", "state"):
            (root / name).mkdir()
        with running_s3(root / "s3" / "server") as s3, running_valkey(root / "valkey") as valkey, browser() as running:
            settings = settings_of(root / "state", s3, valkey.url)
            _, fleet = seeded(settings, with_bytes=True)
            with served(settings) as address:
                first = watched(running, 1440, "light")
                page = first.page()
                page.goto(f"{address}/sign-in")
                page.screenshot(path=folder / "sign-in.1440.light.png")
                sign_in(page, address)
                state = first.context.storage_state()
                for theme in THEMES:
                    for width in WIDTHS:
                        one = watched(running, width, theme, state)
                        for name, path in pages(fleet).items():
                            if words and not any(word in f"{name}.{width}.{theme}" for word in words):
                                continue
                            page = one.page()
                            page.goto(address + path)
                            page.wait_for_timeout(900 if "active" in name or "benchmarking" in name else 150)
                            wide = page.evaluate(
                                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                            )
                            page.screenshot(path=folder / f"{name}.{width}.{theme}.png", full_page=width < 2000)
                            page.close()
                            if wide > 0:
                                print(f"{name} {width}: {wide} px too wide")
                        for complaint in one.complaints:
                            print(f"{width} {theme}: {complaint}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
