"""The agent's monitoring page in a browser: its updates, its search, its accessibility and narrow screens."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ..agent.monitored import Monitored
from ..agent.parts import plug_in
from .pages import accessibility_faults, picture

Open = Callable[..., Page]
CONFIG = """
[agent]
name = "web-logs"
state = "{state}"
tap = true
[sources.access-log]
type = "feed"
hub = "in"
channels = ["spool"]
interceptors = [{{type = "timestamp"}}, {{type = "redact", kinds = ["email"]}}]
[sources.web-servers-of-all-regions-by-syslog]
type = "feed"
hub = "other"
channels = ["spool"]
[channels.spool]
type = "memory"
capacity = 100
[channels.refused]
type = "memory"
[sinks.loghub]
type = "keep"
hub = "in"
channel = "spool"
dead_letters = "refused"
"""


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    with Monitored(tmp_path, plug_in(monkeypatch, "in", "other"), CONFIG) as running:
        yield running


def feed(running: Monitored, count: int) -> None:
    for number in range(count):
        running.hub.lines.put(f"line {number}".encode())


def test_the_page_shows_new_figures_by_itself_and_keeps_the_search(running: Monitored, open_page: Open) -> None:
    """Every two seconds the page shows new rates, flows and lines of the log that match the search, and keeps the text
    that is being typed; when the agent has ended, it says so.
    """
    page = open_page(running.server.url)
    sink = page.locator("#tables tr", has_text="loghub")
    expect(page.locator("#health")).to_have_text("ready")
    expect(page.locator("#topology .box")).to_have_count(6)
    feed(running, 40)
    expect(sink.locator("[data-title=Events]")).to_have_text("40")
    feed(running, 40)
    expect(page.locator("#topology .flows")).not_to_have_count(0)
    picture(page, "agent-page", 520)
    page.get_by_label("Text in the log").fill("REFUSED")
    page.get_by_role("button", name="Search").click()
    page.get_by_label("Text in the log").fill("being typed")
    running.hub.refusing = True
    feed(running, 1)
    expect(page.locator("#log li")).to_contain_text("1 event refused permanently, and put into channel refused")
    expect(page.locator("#refused td.event")).to_contain_text("line 0")
    expect(page.get_by_label("Text in the log")).to_have_value("being typed")
    running.server.close()
    expect(page.locator("#health")).to_contain_text("The agent does not answer")


def test_nothing_keeps_people_out(running: Monitored, open_page: Open) -> None:
    """The page has no serious accessibility fault in light or dark mode, and all of it fits a telephone's width."""
    running.hub.refusing, running.hub.why = True, "a-reason-without-any-space" * 9
    running.hub.lines.put(b"x" * 999)
    page = open_page(running.server.url, viewport={"width": 375, "height": 700})
    expect(page.locator("#log li").last).to_contain_text("put into channel refused: a-reason")
    expect(page.locator("#refused td.event")).to_contain_text("xxx")
    assert accessibility_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.set_viewport_size({"width": 1000, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000
