"""The log viewer in a real browser: virtual rows, permalinks, error keys, follow, and 200 hostile lines as text."""

from __future__ import annotations

import random
import re
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from jobs.domain.db import writing
from jobs.domain.evidence import add_chunks
from jobs.domain.models import Instance
from logs import tail
from logs.ansi import plain
from logs.chunks import ChunkCutter
from logs.wire import MAX_BATCH_CHUNKS
from tests.browser.hostile import EVIL, HOSTILE
from tests.browser.shots import Stage, watched
from tests.fakes.controller import wait_for

expect.set_options(timeout=30_000)  # on a busy machine a page needs more than the five seconds that are usual

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MILLION = 1_000_000


class Writer:
    """One stream of a machine, archived as its agent would have it."""

    def __init__(self, staged: Stage, instance_id: str, stream: str) -> None:
        self.staged, self.stream = staged, stream
        self.cutter = ChunkCutter(stream)
        with staged.context.sessions() as session:
            self.instance = session.get_one(Instance, instance_id)
        self.at = staged.context.now_ms() - 3_600_000

    def write(self, data: bytes) -> None:
        chunks = []
        for begin in range(0, len(data), 65_536):
            self.at += 50
            self.cutter.feed(data[begin : begin + 65_536], self.at)
            while (cut := self.cutter.cut(self.at)) is not None:
                chunks.append(cut)
        for first in range(0, len(chunks), MAX_BATCH_CHUNKS):
            add_chunks(self.staged.context, self.instance, self.stream, chunks[first : first + MAX_BATCH_CHUNKS])


def opened(staged: Stage, path: str, width: int = 1440, **more: Any) -> tuple[Page, list[str]]:
    """The viewer, ready, and what the browser complained of."""
    one = watched(staged.browser, width, "light", staged.cookies)
    page = one.page()
    page.goto(f"{staged.address}/archive/{path}")
    expect(page.locator("#viewer")).to_have_attribute("data-ready", "1")
    return page, one.complaints


def row(page: Page, number: int) -> Locator:
    return page.locator(f"#viewer .row[data-row='{number}']")


def top_row(page: Page) -> int:
    return int(page.locator("#viewer .row").first.get_attribute("data-row") or 0)


def stands_for(page: Page, share: float) -> bool:
    return abs(top_row(page) - share * MILLION) < 2_000


def test_it_opens_at_the_first_error_and_steps_through_them(staged: Stage) -> None:
    page, complaints = opened(staged, f"{staged.fleet.instances['destroyed']}/bench")
    expect(row(page, 42)).to_have_class(re.compile("marked"))
    expect(row(page, 42)).to_be_in_viewport()
    assert "#" not in page.url
    for key, number in (("n", 139), ("n", 236), ("p", 139), ("p", 42)):
        page.keyboard.press(key)
        page.wait_for_url(f"**#L{number}")
        expect(row(page, number)).to_be_in_viewport()
    page.keyboard.press("p")
    expect(page.locator("#viewer [role=status]")).to_have_text("No error before this")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_contain_text("Next and previous error")
    assert complaints == []


def test_permalinks(staged: Stage) -> None:
    page, complaints = opened(staged, f"{staged.fleet.instances['destroyed']}/bench#L620-L624")
    expect(page.locator(".row.marked")).to_have_count(5)
    expect(row(page, 620)).to_be_in_viewport()
    row(page, 630).locator("a").click()
    page.wait_for_url("**#L630")
    row(page, 633).locator("a").click(modifiers=["Shift"])
    page.wait_for_url("**#L630-L633")
    expect(page.locator(".row.marked")).to_have_count(4)
    page.go_back()
    page.go_back()
    page.wait_for_url("**#L620-L624")
    expect(page.locator(".row.marked")).to_have_count(5)
    page.fill("#to-line", "1,399")
    page.keyboard.press("Enter")
    page.wait_for_url("**#L1399")
    expect(row(page, 1399)).to_be_in_viewport()
    assert complaints == []


def test_finding_wrapping_and_times(staged: Stage) -> None:
    page, complaints = opened(staged, f"{staged.fleet.instances['destroyed']}/bench")
    page.keyboard.press("s")
    page.keyboard.type('"took 50 ms"')
    page.keyboard.press("Enter")
    page.wait_for_url("**#L51")
    page.keyboard.press("Enter")
    page.wait_for_url("**#L141")
    page.keyboard.press("Shift+Enter")
    page.wait_for_url("**#L51")
    page.locator("#viewer .log").focus()
    page.keyboard.press("t")
    expect(row(page, 51).locator("time")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    page.keyboard.press("w")
    expect(page.locator("[data-act=wrap]")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("End")
    expect(row(page, 1400)).to_be_in_viewport()
    page.keyboard.press("Home")
    expect(row(page, 1)).to_be_in_viewport()
    assert complaints == []


def test_the_strip_goes_where_it_is_clicked_and_looks_closer(staged: Stage) -> None:
    page, complaints = opened(staged, f"{staged.fleet.instances['destroyed']}/bench#L1")
    strip = page.locator(".strip")
    expect(strip.locator("rect.error").first).to_be_attached()
    strip.click(position={"x": 600, "y": 20})
    expect(row(page, 1)).to_have_count(0)
    box = strip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 20)
    page.mouse.up()
    expect(page.locator("[data-act=whole]")).to_be_visible()
    page.locator("[data-act=whole]").click()
    expect(page.locator("[data-act=whole]")).to_be_hidden()
    strip.focus()
    page.keyboard.press("Home")
    expect(row(page, 1)).to_be_in_viewport()
    assert complaints == []


def test_several_streams_on_one_clock(staged: Stage) -> None:
    page, complaints = opened(staged, f"{staged.fleet.instances['destroyed']}/setup+bench+daemon")
    page.keyboard.press("Home")
    for name in ("setup", "bench", "daemon"):
        page.fill("#find", "msm")
        expect(page.locator(".chips a", has_text=name)).to_have_attribute("aria-current", "true")
    expect(page.locator("#viewer .log")).to_have_attribute("aria-rowcount", "1680")
    link = page.locator("#viewer .row > a").first
    number = link.inner_text()
    link.click()
    page.wait_for_url(f"**/setup#L{number}")
    expect(row(page, int(number))).to_have_class(re.compile("marked"))
    assert complaints == []


def test_a_million_lines(staged: Stage) -> None:
    instance = staged.fleet.instances["ready"]
    lines = [b"line %d of a million, with some words in it\n" % n for n in range(1, MILLION + 1)]
    lines[776_543] = b"FATAL: the one line that matters\n"
    Writer(staged, instance, "million").write(b"".join(lines))
    page, complaints = opened(staged, f"{instance}/million")
    expect(row(page, 776_544)).to_contain_text("the one line that matters")
    log = page.locator("#viewer .log")
    expect(log).to_have_attribute("aria-rowcount", str(MILLION))
    most = 0
    dice = random.Random(5)
    for share in (0.0, 1.0, *(dice.random() for _ in range(12))):
        log.evaluate("(e, share) => { e.scrollTop = share * e.scrollHeight; }", share)
        # The row in sight becomes the one that the scroll bar stands for, and has its text.
        wait_for(partial(stands_for, page, share), what=f"the row at {share}")
        expect(page.locator("#viewer .words").first).to_contain_text(f"line {top_row(page)} of a million")
        most = max(most, page.locator("#viewer .row").count())
    assert 10 < most <= 500
    page.keyboard.press("Home")
    expect(row(page, 1)).to_be_in_viewport()
    box = log.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.wheel(0, 200)
    expect(page.locator("#viewer .row").first).to_have_attribute("data-row", "11")
    page.keyboard.press("End")
    expect(row(page, MILLION)).to_be_in_viewport()
    page.goto(f"{staged.address}/archive/{instance}/million#L500000-L500003")
    expect(page.locator(".row.marked")).to_have_count(4)
    page.fill("#find", "line 876543 of")
    page.keyboard.press("Enter")
    page.wait_for_url("**#L876543")
    assert complaints == []


def test_following_a_live_stream_into_the_archive(staged: Stage) -> None:
    instance = staged.fleet.instances["proving"]
    client = tail.connect(staged.context.settings.redis_url.get_secret_value())
    writer = Writer(staged, instance, "service")
    first = b"".join(b"old %d\n" % n for n in range(1, 101))
    writer.write(first)
    page, complaints = opened(staged, f"{instance}/service")
    expect(row(page, 100)).to_be_in_viewport()  # nothing is wrong: it opens at the end, and follows
    expect(page.locator("[data-act=follow]")).to_have_attribute("aria-pressed", "true")
    news = b"".join(b"new %d <b>\x1b[31m\n" % n for n in range(101, 141))
    tail.publish(client, instance, "service", 101, news)
    expect(row(page, 140)).to_contain_text("new 140 <b>")
    page.keyboard.press("Home")
    expect(row(page, 1)).to_be_in_viewport()
    more = b"".join(b"more %d\n" % n for n in range(141, 151))
    tail.publish(client, instance, "service", 141, more)
    expect(page.locator(".pill")).to_have_text("10 new lines ↓")
    writer.write(news + more)
    page.locator(".pill").click()
    expect(row(page, 150)).to_be_in_viewport()
    # From the archive now: its colours are known, and each number is there once.
    expect(row(page, 139)).to_have_text(re.compile(r"new 139 <b>$"))
    assert page.locator("#viewer .row[data-row='150']").count() == 1
    with writing(staged.context.sessions) as session:
        session.get_one(Instance, instance).state = "destroyed"
    writer.write(b"the last words\n")
    expect(row(page, 151)).to_contain_text("the last words")
    expect(page.locator("#viewer .log")).to_have_attribute("aria-rowcount", "151")
    assert complaints == []


ODD = """(rows) => {
  const tags = new Set(["DIV", "A", "SPAN", "B", "I", "TIME"]);
  const names = new Set(["class", "role", "aria-rowindex", "aria-selected", "data-row", "href", "tabindex", "title"]);
  const strange = (e) => !tags.has(e.tagName) || [...e.attributes].some((a) => !names.has(a.name)) ||
    (e.href && !/^#L\\d+$/.test(e.getAttribute("href")));
  return [...rows.querySelectorAll("*")].filter(strange).map((e) => e.outerHTML.slice(0, 200));
}"""


def test_two_hundred_hostile_lines_are_text(staged: Stage) -> None:
    assert len(HOSTILE) >= 200
    instance = staged.fleet.instances["serving"]
    data = b"".join(text.encode("utf-8", "surrogatepass") + b"\n" for text in HOSTILE)
    Writer(staged, instance, "hostile").write(data + b"A" * 10_000_000 + b"<script>window.hit=1</script>\nthe end\n")
    one = watched(staged.browser, 2560, "light", staged.cookies)
    page = one.page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: one.complaints.append(f"dialog: {dialog.message}"))
    page.goto(f"{staged.address}/archive/{instance}/hostile#L1")
    last = len(HOSTILE) + 2
    wanted = {n: plain(text).removesuffix("\r") for n, text in enumerate(HOSTILE, 1)}
    shown: dict[int, str] = {}
    for n in range(1, last + 1):
        if n not in shown:
            page.fill("#to-line", str(n))
            page.keyboard.press("Enter")
            expect(row(page, n)).to_be_in_viewport()
            expect(page.locator("#viewer .coming")).to_have_count(0)
            assert page.locator("#viewer .rows").evaluate(ODD) == []
            texts = page.locator("#viewer .rows").evaluate(
                "(rows) => [...rows.children].map((r) => [Number(r.dataset.row), r.querySelector('.words').textContent,"
                " r.offsetHeight])"
            )
            assert {height for _, _, height in texts} == {20}  # no pile of accents grows over its neighbours
            shown.update({number: text for number, text, _ in texts})
    graded = re.compile("^(?:error|warn): ")
    assert {n: graded.sub("", text) for n, text in shown.items() if n in wanted} == wanted
    assert "10,000,029 bytes in all" in shown[last - 1]
    assert shown[last] == "the end"
    assert page.evaluate("window.hit") is None
    assert page.title().startswith("hostile of ")
    assert [url for url in asked if not url.startswith(staged.address) or EVIL in url] == []
    assert one.complaints == []


def test_hostile_lines_are_text_in_the_tail_and_without_scripts(staged: Stage) -> None:
    instance = staged.fleet.instances["fetching"]
    Writer(staged, instance, "setup").write(b"begun\n")
    page, complaints = opened(staged, f"{instance}/setup")
    client = tail.connect(staged.context.settings.redis_url.get_secret_value())
    texts = [text for text in HOSTILE if len(text) < 1000]
    for n, text in enumerate(texts, 2):
        tail.publish(client, instance, "setup", n, text.encode("utf-8", "surrogatepass") + b"\n")
    expect(row(page, len(texts) + 1)).to_be_in_viewport()
    assert page.locator("#viewer .rows").evaluate(ODD) == []
    assert page.evaluate("window.hit") is None
    assert complaints == []
    context = staged.browser.new_context(java_script_enabled=False, storage_state=staged.cookies)  # type: ignore[arg-type]
    bare = context.new_page()
    asked: list[str] = []
    bare.on("request", lambda request: asked.append(request.url))
    bare.goto(f"{staged.address}/archive/{staged.fleet.hostile_instance}/bench")
    expect(bare.locator("#L1")).to_contain_text("<script>alert(1)</script>")
    assert [url for url in asked if not url.startswith(staged.address)] == []
