"""The page: topology, figures, refused events and the log, without scripts, secrets and foreign HTML."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from producer.agent.monitoring import MonitoringServer, server
from producer.agent.monitoring.recent_log import RecentLog
from producer.cli.agent_top import lines_of
from producer.runtime.loggers import get_logger
from tests.support.waiting import eventually

from ..monitored import CONFIG, Monitored
from ..parts import plug_in

#: A group of sinks, with secrets and hostile names.
GROUP = """
key = "literal-key"
[channels."<i>c2"]
type = "memory"
[sinks.k2]
type = "keep"
hub = "b"
channel = "<i>c2"
key = "https://me:pass-of-url@host/"
[sinks."k\\n<3>"]
type = "keep"
hub = "b"
channel = "<i>c2"
key = "${{env:OF_ENVIRONMENT}}"
[groups."g<b>"]
type = "failover"
sinks = ["k2", "k\\n<3>"]
"""
_SECRETS = ("literal-key", "pass-of-url", "of-environment", "user1", "pw1", "hunter2", "abc.def")
_WHY = (
    "no literal-key, pass-of-url, of-environment at http://user1:pw1@h/: "
    "password=hunter2, Authorization: Bearer abc.def"
)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    monkeypatch.setenv("OF_ENVIRONMENT", "of-environment")
    texts = {
        "name": "@TABLES@ <1>",
        "options": "tap = true",
        "channels": '"c1", "<i>c2"',
        "interceptors": 'interceptors = [{type = "timestamp"}, {type = "host"}]',
    }
    with Monitored(tmp_path, plug_in(monkeypatch, "a", "b"), CONFIG + GROUP, **texts) as watched:
        yield watched


class _Page(HTMLParser):
    """A parser that records open tags, references to elsewhere, the text of each part, and the rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.flows: list[str] = []
        self.rows: list[list[str]] = []
        self._id = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._id = dict(attributes).get("id") or self._id
        if tag not in ("meta", "input"):
            self.open.append(tag)
        self.outside += [str(value) for name, value in attributes if name in ("src", "href") and "//" in str(value)]
        if tag == "li" and self._id == "topology":
            self.flows.append("")
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._id == "topology" and self.flows:
            self.flows[-1] += f" {data.strip()}"
        if "td" in self.open:
            self.rows[-1][-1] += data


def page_of(watched: Monitored, path: str = "/") -> _Page:
    status, kind, text = watched.get(path)
    assert (status, kind) == (200, "text/html; charset=utf-8")
    return _Page(text)


def test_the_page_is_well_formed_and_escapes_each_name(watched: Monitored) -> None:
    """The page closes every tag, loads nothing from elsewhere, allows only its own script, and escapes names: one that
    is a placeholder's text, or HTML, is shown as it is.
    """
    text = watched.get("/")[2]
    page = _Page(text)
    assert (page.open, page.outside) == ([], [])
    assert "<title>@TABLES@ &lt;1&gt; · agent</title>" in text
    assert {"r1", "c1", "<i>c2", "g<b>", "k\\n<3>"} <= {row[0] for row in page.rows if row}
    assert re.findall(r"@[A-Z]+@", text.replace("@TABLES@ &lt;1&gt;", "")) == []
    assert len(re.findall("<script", text)) == 1


def test_the_topology_shows_the_path_of_events(watched: Monitored) -> None:
    """Each channel has its sources with interceptors, its sinks, members of groups, and those whose dead letters it
    gets.
    """
    eventually(lambda: "lag 2 s" in watched.get("/")[2] and watched.get("/health/ready")[0] == 200)
    first, letters, second = (" ".join(flow.split()) for flow in page_of(watched).flows)
    source = "r1 feed running → timestamp → host → replicating selector lag 2 s, 0 events"
    assert first == f"{source} c1 memory open 0 waiting, 0 B 0% k1 keep running refused events → dead"
    assert second.startswith(f"{source} <i>c2 memory")
    assert second.endswith("g<b> failover group running • k2 (keep) • k\\n<3> (keep)")
    assert letters == "refused events of k1 dead memory open 0 waiting, 0 B 0%"


def test_page_and_top_have_the_same_tables(watched: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has the tables of ``producer agent top``, with rates from its second request on, without scripts."""
    monkeypatch.setattr(server, "_LEAST_SECONDS", 0.0)
    before = watched.json("/status.json")
    page_of(watched)
    watched.hub.lines.put(b"one\ntwo\n")
    eventually(lambda: watched.hub.delivered)
    eventually(lambda: watched.agent.health_of("sinks.k1").counters.get("EventDrainSuccessCount") == 2)
    (row,) = [row for row in page_of(watched).rows if row[:2] == ["k1", "keep"]]
    assert row[3] != "", "events a second"
    assert row[4:] == ["2", "0", "0", "0", ""]
    now = watched.json("/status.json")
    (line,) = [line for line in lines_of(before, now, "here") if line.startswith("k1 ")]
    assert [line.split()[place] for place in (0, 1, 2, 4, 5, 6, 7)] == [*row[:3], *row[4:8]]


def test_refused_events_have_their_reasons_and_a_sample_without_secrets(watched: Monitored) -> None:
    """Dead letters are counted by reason; the last ones are shown, without secrets, where events may be shown."""
    watched.hub.refusing, watched.hub.why = True, "of-environment is not a <field>"
    watched.hub.lines.put(b"token=abc.def <b>\ntwo\n")
    eventually(lambda: watched.agent.health_of("sinks.k1").counters.get("EventRefusedCount") == 2)
    rows = page_of(watched).rows
    assert ["k1", "2", "${env:OF_ENVIRONMENT} is not a <field>"] in rows
    assert any("token=*** <b>" in row[-1] for row in rows if row)
    (sink,) = [row for row in watched.json("/status.json")["sinks"] if row["name"] == "k1"]
    assert [each["body"] for each in sink["refused"]["sample"]] == ["two", "token=*** <b>"]


def test_the_page_shows_no_event_where_taps_are_refused(watched: Monitored) -> None:
    """Without ``tap = true``, or not on loopback, the page shows the reasons but no events, and says why."""
    watched.hub.refusing = True
    watched.hub.lines.put(b"an event\n")
    eventually(lambda: watched.agent.health_of("sinks.k1").counters.get("EventRefusedCount") == 1)
    watched.agent.reload(watched.config(options=""))
    everywhere = MonitoringServer(watched.agent, "0.0.0.0", 0)  # the case
    try:
        for port, told in ((watched.server.port, "set tap = true under"), (everywhere.port, "listens on loopback")):
            watched.server.port, own = port, watched.server.port
            text = watched.get("/")[2] + watched.get("/status.json")[2]
            watched.server.port = own
            assert "the test's sink refuses" in text.replace("&#x27;", "'")
            assert told in text
            assert "an event" not in text
            watched.agent.reload(watched.config())
    finally:
        everywhere.close()


def test_the_page_shows_no_secret(watched: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither errors, reasons, samples nor the log show values of secret options, of the environment, in URLs, or
    passwords and tokens; those of the former configuration neither.
    """
    monkeypatch.setattr("producer.agent.flow.health.FAILING", 0.0)
    watched.hub.why = watched.hubs[1].why = _WHY
    watched.hub.refusing = watched.hubs[1].failing = True
    watched.hub.lines.put(_WHY.encode())
    eventually(lambda: watched.agent.health_of("sinks.k1").counters.get("EventRefusedCount"))
    eventually(lambda: watched.get("/health/ready")[0] == 503)
    for number in range(2):
        watched.agent.reloads.failed(_WHY)
        searched = "/log?text=literal", "/?text=pass-of"
        paths = ("/", "/log", *searched, "/status.json", "/health/ready", "/metrics", "/metrics.json")
        pages = {path: watched.get(path)[2] for path in paths}
        found = {(path, secret) for path, text in pages.items() for secret in _SECRETS if secret in text}
        assert found == set()
        assert pages["/log?text=literal"] == "", "a search shows whether a secret is in a line"
        assert "no ***, ***, " in pages["/log"]
        if not number:
            monkeypatch.setenv("OF_ENVIRONMENT", "changed")
            watched.agent.reload(watched.config())


def test_the_log_is_searched_by_text_and_level(watched: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last 50 of 1,000 lines are shown, the newest first; a search finds text and level in all of them, on the page
    and for curl. No event is a line.
    """
    log = get_logger("loghub.agent")
    log.error("a name\nof two lines")
    log.warning("line %d of <x>", -1)
    events = get_logger("loghub.agent.sink.logger")
    monkeypatch.setattr(events, "level", logging.INFO)
    events.info("an event")
    for number in range(997):
        log.error("line %d", number)
    lines = watched.json("/status.json")["log"]
    assert [line["text"] for line in lines] == [f"line {n}" for n in range(996, 946, -1)]
    assert re.fullmatch(r"\d{4}-\S+ \S+ ERROR a name\\nof two lines\n", watched.get("/log?text=TWO")[2])
    assert watched.get("/log?text=line%20-1&level=error")[2] == ""
    assert watched.get("/log?text=event")[2] == ""
    text = watched.get(f"/?text={quote('<X>')}&level=warning")[2]
    assert "WARNING line -1 of &lt;x&gt;" in text
    assert 'value="&lt;X&gt;"' in text
    assert "<option selected>warning</option>" in text
    for path in ("/", "/log"):
        assert watched.get(f"{path}?level=all")[::2] == (400, "level must be info, warning or error, got 'all'.\n")
    log.error("x" * 9999)
    assert len(watched.json("/status.json")["log"][0]["text"]) == 500
    log.error("the oldest is gone")
    assert watched.get("/log?text=two")[2] == ""
    watched.server.close()
    assert not any(isinstance(each, RecentLog) for each in get_logger("loghub").handlers)
