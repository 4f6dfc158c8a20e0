"""The agent's monitoring page: its drawing, its updates, and its accessibility."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from producer.agent import Agent
from producer.agent.config import parse_toml
from producer.agent.monitoring import MonitoringServer

from ..agent.parts import Hub, plug_in
from .pages import accessibility_faults, picture

Open = Callable[..., Page]
CONFIG = """
[agent]
name = "web-logs"
state = "{state}"
[sources.access-log]
type = "feed"
hub = "in"
channels = ["spool"]
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


class Running:
    def __init__(self, folder: Path, hubs: tuple[Hub, ...]) -> None:
        self.hub = hubs[0]
        self.agent = Agent(parse_toml(CONFIG.format(state=folder)))
        self.agent.start()
        # Playwright runs an event loop in this thread.
        with ThreadPoolExecutor(1) as thread:
            self.monitoring = thread.submit(MonitoringServer, self.agent, port=0).result()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    running = Running(tmp_path, plug_in(monkeypatch, "in", "other"))
    yield running
    running.monitoring.close()
    running.agent.stop(60)


def feed(running: Running, count: int) -> None:
    for number in range(count):
        running.hub.lines.put(f"line {number}".encode())


def test_the_page_shows_sources_channels_and_sinks_with_states_and_rates_and_marks_active_flows(
    running: Running, open_page: Open
) -> None:
    """The page shows sources, channels and sinks with states and rates, and marks active flows."""
    page = open_page(running.monitoring.url)
    boxes = page.locator("#drawing g")
    expect(boxes).to_have_count(5)
    expect(page.locator("h1")).to_have_text("web-logs")
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.locator("#health")).to_have_text("ready")
    feed(running, 40)
    expect(page.locator("tr[data-row='sink.loghub'] .total")).to_have_text("40")
    expect(page.locator("tr[data-row='sink.loghub'] .rate")).not_to_have_text("")
    feed(running, 40)
    expect(page.locator("#drawing path.flows")).not_to_have_count(0)
    picture(page, "agent-page", 520)
    for box in boxes.all():
        assert box.evaluate(
            "box => Math.max(...[...box.querySelectorAll('text')].map(text => text.getBBox().width)) <= 205"
        )


def test_nothing_keeps_people_out(running: Running, open_page: Open) -> None:
    """The page has no serious accessibility fault in light or dark mode, and fits a telephone's width; the list of the
    last minutes has the dead letters with their reasons.
    """
    running.hub.refusing = True
    feed(running, 1)
    page = open_page(running.monitoring.url, viewport={"width": 375, "height": 700})
    expect(page.locator("#drawing g").first).to_be_visible()
    expect(page.locator("#log li").last).to_contain_text("put into channel refused: the test's sink refuses")
    assert accessibility_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_when_the_agent_has_ended_the_page_says_so_instead_of_showing_old_figures(
    running: Running, open_page: Open
) -> None:
    """When the agent has ended, the page says so instead of showing old figures."""
    page = open_page(running.monitoring.url)
    expect(page.locator("#health")).to_have_text("ready")
    running.monitoring.close()
    expect(page.locator("#health")).to_contain_text("The agent does not answer")
