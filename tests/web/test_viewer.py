"""What the log viewer is told: rows, the next error or match, and how much was written when."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.domain.db import writing
from jobs.domain.models import Instance
from logs.levels import LEVELS
from logs.store import S3Config
from tests.web.seed import Fleet, Seeder
from tests.web.site import Browser, Clock, seeded, settings_of
from web import create_app

Site = tuple[Browser, Fleet]
ODD = (
    "\x1b[31mred\x1b[0m and \x1b[1;44mloud\x1b[m",
    "\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "<b>\u202eevil\u2066 \x00\x9b31m</b>",
    "WARNING: slow disk",
    "token " + "ghp_" + "a1B2" * 9,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, s3_config: S3Config) -> Site:
    """The fleet, with streams that have their bytes on a machine that had none."""
    context, fleet = seeded(settings_of(tmp_path_factory.mktemp("viewer"), s3_config), Clock())
    seeder = Seeder(context, context.store)
    with writing(context.sessions) as session:
        instance = session.get_one(Instance, fleet.instances["ready"])
        bench = seeder.lines(1400)
        seeder.stream(session, instance, "bench", bench)
        seeder.stream(session, instance, "holes", bench, lose=(11, 12))
        seeder.stream(session, instance, "setup", seeder.lines(60))
        seeder.stream(session, instance, "daemon", seeder.lines(220))
        seeder.stream(session, instance, "odd", "\n".join(ODD).encode() + b"\nnot finished: fatal")
        seeder.stream(
            session, instance, "wide", b"x" * 9000 + b" error\nsecond\n" + b"y" * 7000 + b" needle in hay\nend\n"
        )
    browser = Browser(create_app(context).test_client())
    browser.sign_in("viewer")
    return browser, fleet


def told(site: Site, path: str) -> Any:
    browser, fleet = site
    answer = browser.get(f"/archive/{fleet.instances['ready']}/{path}")
    assert answer.status_code == 200, answer.text
    assert answer.mimetype == "application/json"
    return answer.json


def test_rows_are_numbered_and_graded(site: Site) -> None:
    answer = told(site, "bench/rows?row=40&count=4")
    assert answer["total"] == 1400
    assert not answer["open"]
    rows = answer["rows"]
    assert [row[0] for row in rows] == [40, 41, 42, 43]
    assert [LEVELS[row[3]] for row in rows] == ["info", "info", "error", "info"]
    assert rows[0][6].endswith("took 39 ms")
    assert told(site, "bench/rows?row=1399&count=1000")["rows"][-1][0] == 1400
    assert told(site, "bench/rows?row=999999")["rows"] == []
    assert len(told(site, "bench/rows?row=-3&count=nonsense")["rows"]) == 250


def test_colours_are_names_and_the_rest_is_visible_text(site: Site) -> None:
    answer = told(site, "odd/rows")
    texts = [row[6] for row in answer["rows"]]
    assert texts[0] == [["red", "ink-red"], [" and ", ""], ["loud", "paper-blue sgr-bold"]]
    assert texts[1] == "␛]8;;https://evil.example␇link␛]8;;␇"
    assert texts[2] == "<b>⟨U+202E⟩evil⟨U+2066⟩ ␀⟨U+009B⟩31m</b>"
    assert LEVELS[answer["rows"][3][3]] == "warn"
    assert texts[4] == "token [redacted]"  # masked when shown, whatever the agent did
    assert texts[5] == "not finished: fatal"
    assert answer["open"]
    assert answer["total"] == 6


def test_what_is_missing_is_marked_and_has_no_rows(site: Site) -> None:
    rows = told(site, "holes/rows?row=400&count=400")["rows"]
    marks = [row for row in rows if isinstance(row[6], list) and row[6][-1][1] == "gap"]
    assert len(marks) == 1
    assert "missing" in marks[0][6][-1][0]
    numbers = [row[0] for row in rows]
    assert numbers == sorted(set(numbers))
    assert 300 < len(numbers) < 400


def test_errors_are_stepped_through_both_ways(site: Site) -> None:
    found, at = [], 1000
    while at := told(site, f"bench/seek?row={at}")["found"] or 0:
        found.append(at)
    assert found == [n for n in range(1001, 1401) if (n - 1) % 97 == 41]
    assert told(site, "bench/seek?row=139&back=1")["found"] == 42
    assert told(site, "bench/seek?row=42&back=1") == {"found": None, "looked": 0}
    assert told(site, "wide/seek?row=0")["found"] is None  # the word is beyond what is read of a line
    assert told(site, "odd/seek?row=0")["found"] == 6


def test_finding_words_and_expressions(site: Site) -> None:
    assert told(site, "bench/seek?row=0&q=onerror")["found"] is not None
    assert told(site, "bench/seek?row=42&q=%22took+50+ms%22")["found"] == 51
    assert told(site, "bench/seek?row=500&back=1&q=%22took+50+ms%22")["found"] == 411
    assert told(site, "bench/seek?row=0&q=window%3D1%5B67%5D.*took+7+ms&regex=on")["found"] == 98
    assert told(site, "bench/seek?row=0&q=nowhere-to-be-found") == {"found": None, "looked": 0}
    # A line that runs over three chunks, with a word in each.
    assert told(site, "wide/seek?row=0&q=yyyy+needle")["found"] == 3
    assert "not an expression" in told(site, "bench/seek?row=0&q=(&regex=on")["wrong"]


def test_how_much_was_written_when(site: Site) -> None:
    answer = told(site, "bench/density?bins=50")
    bars = answer["bars"]
    assert len(bars) == 50
    assert sum(bar[1] for bar in bars) == 1400
    assert sum(bar[3] for bar in bars) == len([n for n in range(1400) if n % 97 == 41])
    assert bars[0][0] == 1
    assert [bar[0] for bar in bars] == sorted(bar[0] for bar in bars)
    middle = (answer["from"] + answer["to"]) // 2
    later = told(site, f"bench/density?bins=10&from={middle}&to={answer['to']}")
    assert 500 < sum(bar[1] for bar in later["bars"]) < 800
    assert told(site, f"bench/rows?t={middle}&count=1")["row"] == later["bars"][0][0]


def test_several_streams_on_one_clock(site: Site) -> None:
    whole = told(site, "bench+daemon+setup/rows?count=1000")
    assert whole["total"] == 1400 + 220 + 60
    rest = told(site, f"bench+daemon+setup/rows?row=1001&count=1000&until={whole['until']}")
    rows = whole["rows"] + rest["rows"]
    assert [row[0] for row in rows] == list(range(1, 1681))
    for stream, lines in enumerate((1400, 220, 60)):
        assert [row[2] for row in rows if row[1] == stream] == list(range(1, lines + 1))
    times = [row[4] for row in rows]
    assert times == sorted(times)
    early = told(site, "bench+daemon/rows?count=1000&until=0,0")
    assert early["total"] < 110
    assert told(site, "daemon+bench/seek?row=0")["found"] == 42


def test_an_unknown_stream_is_a_calm_page(site: Site) -> None:
    browser, fleet = site
    ready = fleet.instances["ready"]
    for path in ("nothing", "bench+nothing", "+", "a+b+c+d+e+f+g+h+i"):
        for what in ("", "/rows", "/seek", "/density"):
            assert browser.get(f"/archive/{ready}/{path}{what}").status_code == 404
    assert browser.get("/archive/unknown/bench/rows").status_code == 404


def test_the_page_without_scripts(site: Site) -> None:
    browser, fleet = site
    page = browser.get(f"/archive/{fleet.instances['ready']}/odd").text
    assert '<span class="ink-red">red</span> and <span class="paper-blue sgr-bold">loud</span>' in page
    assert "ghp_" not in page
    merged = browser.get(f"/archive/{fleet.instances['ready']}/setup+daemon").text
    assert "setup + daemon" in merged
    assert "Lines 1–280 of 280" in merged
