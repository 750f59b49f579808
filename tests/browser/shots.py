"""Pages, sizes and the driver for the pictures. By hand: `python -m tests.browser.shots FOLDER [word ...]`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from pydantic import SecretStr

from jobs.context import Context
from tests.fakes.s3 import running_s3
from tests.fakes.valkey import running_valkey
from tests.web.seed import PASSWORD, Fleet
from tests.web.seed_vast import BAD, machine_id
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
        "overview": "/",
        "runs": "/runs",
        "runs-filtered": "/runs?state=broken",
        "runs-nothing": "/runs?state=passed&by=nobody",
        "run-active": f"/runs/{run['active']}",
        "run-passed": f"/runs/{run['passed']}",
        "run-broken": f"/runs/{run['broken']}",
        "run-failed": f"/runs/{run['failed']}",
        "run-queued": f"/runs/{run['queued']}",
        "run-hostile": f"/runs/{fleet.hostile_run}",
        "proofs": f"/runs/{run['passed']}/proofs",
        "instance-benchmarking": f"/instances/{instance['benchmarking']}",
        "instance-bid": f"/instances/{instance['bid']}",
        "instance-pulling": f"/instances/{instance['pulling']}",
        "run-tried": f"/runs/{run['tried']}",
        "instance-destroyed": f"/instances/{done}",
        "instance-hostile": f"/instances/{fleet.hostile_instance}",
        "instance-force": f"/instances/{instance['ready']}/force",
        "artifacts": f"/instances/{done}/artifacts",
        "offers": "/offers",
        "offers-filtered": "/offers?gpu=rtx&gpus=2&price=2.5&min_proofs_per_hour=300",
        "offers-none": "/offers?gpu=voodoo",
        "offers-local": "/offers?provider=local",
        "new-run": "/runs/new",
        "new-run-own": f"/runs/new?source=own&zkey_id={fleet.zkey}&offer=offer-48801&provider=local",
        "new-run-offers": "/runs/new?provider=vast&offer=9400000&offer=9400074",
        "archive": "/archive",
        "lines": f"/archive/{done}/bench",
        "lines-gap": f"/archive/{fleet.gaps}/bench?from=501",
        "lines-merged": f"/archive/{done}/setup+bench+daemon",
        "lines-hostile": f"/archive/{fleet.hostile_instance}/bench",
        "diagnosis": f"/runs/{run['broken']}/diagnosis",
        "diagnosis-none": f"/runs/{run['passed']}/diagnosis",
        "diagnosis-hostile": f"/runs/{fleet.hostile_run}/diagnosis",
        "diff": f"/runs/{run['broken']}/diff",
        "diff-parts": f"/runs/{run['broken']}/diff?line=500",
        "diff-nothing": f"/runs/{fleet.hostile_run}/diff?stream=bench",
        "waterfall": f"/runs/{run['passed']}/waterfall",
        "waterfall-active": f"/runs/{run['active']}/waterfall",
        "failures": "/failures",
        "log-search": "/archive/search?q=cudaErrorNoKernelImage",
        "log-search-empty": "/archive/search",
        "machines": "/machines",
        "machine-marked": f"/machines/vast/{machine_id(BAD['broken'])}",
        "machine-measured": f"/machines/vast/{machine_id(9)}",
        "machine-hostile": "/machines/local/661",
        "costs": "/costs",
        "costs-machines": "/costs?by=machine&period=week",
        "decisions": "/decisions",
        "decisions-tried": "/decisions?rule=verdict&min_rate=400",
        "inputs": "/inputs",
        "queues": "/queues",
        "audit": "/audit",
        "settings": "/settings",
        "users": "/users",
        "search": "/search?q=27",
        "search-nothing": "/search?q=zzz",
        "not-found": "/runs/0000",
    }


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


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

# Text whose colour stands out from what lies behind it by less than WCAG AA asks: [ratio, words].
CONTRAST = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] > 250) return c;
    }
    return [255, 255, 255, 255];
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent.trim()).join("");
    if (!words || !element.checkVisibility() || element.closest("svg, option, :disabled")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgba(style.color)), light(behind(element))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) bad.push([Math.round(ratio * 100) / 100, words.slice(0, 40)]);
  }
  return bad.slice(0, 5);
}
"""


@dataclass
class Stage:
    """The served, seeded site, a signed-in browser's cookies, and what the site is served from."""

    context: Context
    address: str
    fleet: Fleet
    browser: Browser
    cookies: object


@contextmanager
def stage() -> Iterator[Stage]:
    """Real S3, Valkey, gunicorn and Chromium around a seeded database."""
    with tempfile.TemporaryDirectory(prefix="pf-") as temporary:
        root = Path(temporary)
        for name in ("s3", "valkey", "state"):
            (root / name).mkdir()
        with running_s3(root / "s3" / "server") as s3, running_valkey(root / "valkey") as valkey, browser() as running:
            market = {"vast_api_key": SecretStr("0" * 64), "public_url": "https://agents.provefleet.dev"}
            settings = settings_of(root / "state", s3, valkey.url, **market)
            context, fleet = seeded(settings, with_bytes=True)
            with served(settings) as address:
                first = watched(running, 1440, "light")
                sign_in(first.page(), address)
                yield Stage(context, address, fleet, running, first.context.storage_state())


def look(stage: Stage, one: Watched, name: str, path: str, picture: Path) -> list[str]:
    """Open a page, keep its picture, and say what is wrong with it."""
    page = one.page()
    page.goto(stage.address + path)
    if page.locator("#viewer").count():
        page.wait_for_selector("#viewer[data-ready='1']")
    page.wait_for_timeout(700 if "active" in name or "benchmarking" in name else 50)
    page.screenshot(path=picture, full_page=(page.viewport_size or {"width": 0})["width"] < 2000)
    wide = page.evaluate(OVERFLOW)
    wrong = [f"{picture.stem}: {wide} px too wide"] if wide > 0 else []
    wrong += [f"{picture.stem}: contrast {ratio} of {words!r}" for ratio, words in page.evaluate(CONTRAST)]
    page.close()
    return wrong


def main(folder: Path, words: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with stage() as staged:
        for theme in THEMES:
            for width in WIDTHS:
                one = watched(staged.browser, width, theme, staged.cookies)
                for name, path in pages(staged.fleet).items():
                    if not words or any(word in f"{name}.{width}.{theme}" for word in words):
                        print(*look(staged, one, name, path, folder / f"{name}.{width}.{theme}.png"), sep="\n", end="")
                print(*(f"{width} {theme}: {complaint}" for complaint in one.complaints), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
