"""The console of the embedded LogHub, from the user's side."""

import csv
import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from producer.cli import main
from producer.server import LogHubServer

from .pages import accessibility_faults, fill, picture, put

Open = Callable[..., Page]
VIEWS = ["logstores", "search", "tail", "requests", "faults", "producers"]


@pytest.fixture
def page(server: LogHubServer, open_page: Open) -> Page:
    """Return the console of a server with a shop's logs."""
    fill(server)
    return open_page(f"{server.endpoint}/console")


def search(page: Page, logstore: str = "shop/access-log", query: str = "") -> None:
    """Open a search by its address, without waiting for the answer."""
    wanted = urlencode({"logstore": logstore, **({"query": query} if query else {}), "span": "3600"})
    page.goto(f"{page.url.partition('#')[0]}#search?{wanted}")


def total(page: Page, text: str) -> None:
    expect(page.locator("#total")).to_contain_text(text)


def test_logstores_are_shown_with_their_shards(page: Page, server: LogHubServer) -> None:
    """Each logstore shows its totals, and its shards with logs, sizes and rates; new logs appear by themselves."""
    rows = page.locator("#logstores tbody tr")
    expect(rows).to_have_count(9)
    shop = rows.filter(has_text="access-log")
    expect(shop).to_contain_text("600")
    expect(shop).to_contain_text("10.0")
    expect(shop).to_contain_text("KiB/s")
    expect(rows.filter(has_text="0 readwrite").nth(1)).to_contain_text("400")
    put(server, [(int(time.time()), {"a": "b"})], "new/one")
    expect(rows.filter(has_text="new")).to_have_count(1)
    shop.get_by_role("button", name="Search shop/access-log").click()
    total(page, "600 logs")


def test_an_empty_server_says_how_to_begin(server: LogHubServer, open_page: Open) -> None:
    """On an empty server every view says what it waits for, and the command that it names works."""
    page = open_page(server.endpoint)
    expect(page.locator("#logstores .empty")).to_contain_text("the first write makes one")
    for view, text in (
        ("requests", "No requests yet"),
        ("faults", "No fault is installed"),
        ("producers", "No client has"),
    ):
        page.locator(f"nav [data-view={view}]").click()
        expect(page.locator(f"#{view} .empty")).to_contain_text(text)
    page.locator("nav [data-view=search]").click()
    expect(page.locator("#message")).to_contain_text("no logstore yet")
    page.locator("nav [data-view=logstores]").click()
    program, *arguments = shlex.split(page.locator("#logstores code").text_content() or "")
    assert (program, main(arguments)) == ("producer", 0)
    expect(page.locator("#logstores tbody tr").first).to_contain_text("my-logstore")


def test_a_search_finds_counts_and_tells_apart(page: Page) -> None:
    """Logs, histogram and commonest values are those that match; a click on a value narrows the search."""
    search(page)
    total(page, "600 logs, 1 to 50 shown, the newest first")
    expect(page.locator("#logs > li")).to_have_count(50)
    assert page.locator("#histogram rect.bar").count() > 20
    assert (
        sum(int(title.rpartition(": ")[2].split()[0]) for title in page.locator("#histogram title").all_text_contents())
        == 600
    )
    fields = page.locator("#fields")
    expect(fields.locator("summary", has_text="status")).to_contain_text("5")
    expect(fields.locator("details")).to_have_count(9)
    picture(page, "console-search", 600)
    fields.get_by_role("button", name="503").first.click()
    expect(page.locator("#query")).to_have_value('"status": "503"')
    expect(page.locator("#total")).not_to_contain_text("600")
    expect(page.locator("#logs > li").first).to_contain_text("status=503")
    fields.get_by_role("button", name="/cart").first.click()
    expect(page.locator("#query")).to_have_value('("status": "503") and "path": "/cart"')
    page.go_back()
    expect(page.locator("#query")).to_have_value('"status": "503"')
    assert "query=%22status%22" in page.url


@pytest.mark.parametrize("value", ["", "/", "-", 'say "hi" | \\', "größe 說"])
def test_any_value_can_be_clicked(page: Page, server: LogHubServer, value: str) -> None:
    """A click on a value finds the logs with it, even if it is empty or only punctuation."""
    now = int(time.time()) - 5
    put(server, [(now, {"root": value}), (now, {"root": value}), (now, {"root": "other"})], "odd/values")
    search(page, "odd/values")
    total(page, "3 logs")
    page.locator("#fields details", has_text="root").get_by_role("button").first.click()
    total(page, "2 logs")


def test_sql_gives_a_table(page: Page, tmp_path: Path) -> None:
    """SQL after a | shows rows, which can be saved; an error is shown in words; without SQL the logs return."""
    sql = 'level: ERROR | SELECT level, count(*) AS n, max(cast(latency_ms AS int)) AS "#most" GROUP BY level'
    search(page, query=sql)
    expect(page.locator("#rows th")).to_have_text(["level", "n", "#most"])
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    cells = page.locator("#rows td").all_text_contents()
    total(page, f"1 row from {cells[1]} logs")
    assert cells[0] == "ERROR"
    expect(page.locator("#logs")).to_be_hidden()
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download CSV").click()
    saved.value.save_as(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines() == [
        '"level","n","#most"',
        ",".join(f'"{one}"' for one in cells),
    ]
    expect(page.locator("#message")).to_have_text("1 row in the file.")
    assert accessibility_faults(page, "#search") == []
    search(page, query="* | SELECT nothing FROM nowhere")
    expect(page.locator("#message")).to_contain_text("cannot be run")
    expect(page.locator("#rows")).to_be_hidden()
    search(page, query="level: ERROR")
    total(page, f"{cells[1]} logs, 1 to 50")
    expect(page.locator("#logs > li")).to_have_count(50)


def test_pages_of_a_search_follow_one_another(page: Page) -> None:
    """ "Older" and "Newer" turn pages, and are disabled at the ends."""
    search(page)
    total(page, "1 to 50")
    first = page.locator("#logs > li").first.text_content()
    expect(page.get_by_role("button", name="Newer")).to_be_disabled()
    page.get_by_role("button", name="Older").click()
    total(page, "51 to 100")
    page.get_by_role("button", name="Newer").click()
    total(page, "1 to 50")
    assert page.locator("#logs > li").first.text_content() == first
    search(page, "ops/audit")
    total(page, "1 log, 1 to 1")
    expect(page.get_by_role("button", name="Older")).to_be_disabled()


def test_a_range_is_dragged_on_the_histogram(page: Page) -> None:
    """Dragging over the histogram searches that range only and shows it; the browser's "back" restores the whole."""
    search(page)
    total(page, "600 logs")
    box = page.locator("#histogram svg").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=3)
    range_text = page.locator("#how").text_content() or ""
    page.mouse.up()
    number = range_text.rpartition(": ")[2]
    assert number.endswith(" logs")
    total(page, f"{number},")
    assert 0 < int(number.split()[0]) < 600
    expect(page.locator("#span")).to_have_value("chosen")
    begin, end = page.input_value("#from"), page.input_value("#to")
    assert range_text.replace(" ", "T", 1).startswith(begin)
    assert end in range_text.replace(" ", "T")
    page.go_back()
    total(page, "600 logs")


def test_a_time_range_is_typed(page: Page, server: LogHubServer) -> None:
    """From and to are shown on request; logs outside are not found, and one click searches all times."""
    old = 1_600_000_000
    put(server, [(old, {"a": "long ago"}), (old + 86_400, {"a": "later"})], "old/logs")
    page.reload()
    expect(page.locator("#logstores tbody tr").filter(has_text="old")).to_have_count(1)
    search(page, "old/logs")
    expect(page.locator("#logs .empty")).to_contain_text("No log matches")
    expect(page.locator("#histogram .most")).to_have_text("")
    page.get_by_role("button", name="Search all times").click()
    total(page, "2 logs")
    expect(page.locator("#histogram .most")).to_have_text("1")
    assert page.locator("#histogram rect.bar").count() > 10
    page.select_option("#span", "chosen")
    page.fill("#from", "2020-09-13T12:26:40")
    page.fill("#to", "2020-09-13T12:26:41")
    page.get_by_role("button", name="Show").click()
    total(page, "1 log,")
    expect(page.locator("#logs > li")).to_contain_text("long ago")


def test_a_log_opens_and_its_neighbours_are_shown(page: Page) -> None:
    """A line opens into all its fields; its neighbours are the same sender's logs, with the log itself highlighted."""
    search(page, query="status: 503")
    line = page.locator("#logs > li").first
    line.locator("summary").click()
    expect(line.locator(".log th")).to_contain_text(["__source__", "__topic__", "level", "status"])
    line.get_by_role("button", name="Logs around it").click()
    dialog = page.locator("#neighbours")
    expect(dialog.locator("li.here")).to_have_count(1)
    expect(dialog.locator("li.here")).to_contain_text("status=503")
    assert dialog.locator("li").count() > 20
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_json_and_csv_files_contain_all_matching_logs_also_those_of_other_pages(page: Page, tmp_path: Path) -> None:
    """JSON and CSV files contain all matching logs, also those of other pages."""
    search(page, query="level: ERROR")
    expect(page.locator("#logs > li").first).to_contain_text("level=ERROR")
    saved: dict[str, list[dict[str, str]]] = {}
    for kind, read in (
        ("JSON", json.loads),
        ("CSV", lambda text: list(csv.DictReader(text.splitlines()))),
    ):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Download {kind}").click()
        waiting.value.save_as(tmp_path / kind)
        assert waiting.value.suggested_filename == f"access-log.{kind.lower()}"
        saved[kind] = read((tmp_path / kind).read_text(encoding="utf-8"))
    expect(page.locator("#message")).to_contain_text(f"{len(saved['JSON'])} logs in the file")
    assert saved["CSV"] == saved["JSON"]
    total(page, f"{len(saved['JSON'])} logs")
    assert len(saved["JSON"]) > 50
    assert {log["level"] for log in saved["JSON"]} == {"ERROR"}


def test_new_matching_logs_appear_above_the_others(page: Page, server: LogHubServer) -> None:
    """New matching logs appear above the others; paused, none appears until the tail goes on."""
    page.locator("nav [data-view=tail]").click()
    page.select_option("#logstore", "ops/audit")
    expect(page.locator("#tailing")).to_contain_text("Waiting")
    put(server, [(int(time.time()), {"who": "ann"})], "ops/audit")
    tailed = page.locator("#tailed > li")
    expect(tailed).to_have_count(1)
    put(server, [(int(time.time()), {"who": name}) for name in ("bob", "cyd")], "ops/audit")
    expect(tailed).to_have_count(3)
    expect(tailed.first).to_contain_text("cyd")
    expect(page.locator("#tailing")).to_contain_text("3 logs have arrived")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#tailing")).to_have_text("Paused")
    put(server, [(int(time.time()), {"who": "dan"})], "ops/audit")
    expect(tailed).to_have_count(3)
    page.get_by_role("button", name="Pause").click()
    expect(tailed).to_have_count(4)
    page.get_by_role("button", name="Clear").click()
    expect(tailed).to_have_count(0)


def test_faults_are_installed_and_removed_by_click(page: Page, server: LogHubServer) -> None:
    """A fault installed on the page affects requests, counts them, and is removed by a click."""
    page.locator("nav [data-view=faults]").click()
    form = page.locator("#fault")
    expect(form.get_by_label("Status")).to_be_visible()
    form.get_by_label("Kind").select_option("delay")
    expect(form.get_by_label("Status")).to_be_hidden()
    expect(page.locator("#meaning")).to_contain_text("after a delay of so many seconds")
    form.get_by_label("Kind").select_option("answer")
    form.get_by_label("Times").fill("3")
    form.get_by_role("button", name="Install").click()
    row = page.locator("#installed tbody tr")
    expect(row).to_contain_text("answer status=503 code=ServerBusy")
    put(server, [(1, {"a": "b"})])
    assert server.requests[-1].status == 503
    expect(row.locator("td").nth(2)).to_have_text("1")
    picture(page, "console-faults", 280)
    row.get_by_role("button", name="Remove").click()
    expect(page.locator("#installed .empty")).to_be_visible()
    put(server, [(1, {"a": "b"})])
    assert server.requests[-1].status == 200


def test_each_request_appears_with_status_size_and_latency(page: Page, server: LogHubServer) -> None:
    """Each request appears with status, size and latency; clients that write appear by user agent and address."""
    page.locator("nav [data-view=requests]").click()
    rows = page.locator("#requests tbody tr")
    expect(rows.first).to_contain_text("PutLogs")
    before = rows.count()
    server.faults.add(lambda _request: None)
    put(server, [(1, {"a": "b"})], "ops/audit", agent="new-agent/1")
    expect(rows).to_have_count(before + 1)
    expect(rows.first).to_contain_text("ops/audit")
    expect(rows.first).to_contain_text("new-agent/1")
    expect(rows.first).to_contain_text("200")
    expect(rows.first.locator("td").nth(7)).to_contain_text(" ms")
    page.locator("nav [data-view=producers]").click()
    writers = page.locator("#producers tbody tr")
    expect(writers.filter(has_text="billing/1.9")).to_contain_text("127.0.0.1")
    expect(writers).to_have_count(4)


def test_everything_is_done_by_keyboard(page: Page) -> None:
    """Digits change the view and / goes to the query; keys alone select a range of the histogram and a log."""
    for number, view in enumerate(VIEWS, 1):
        page.keyboard.press(str(number))
        expect(page.locator(f"nav [data-view={view}]")).to_have_attribute("aria-current", "page")
        expect(page.locator(f"#{view}")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type("level: ERROR 1")
    expect(page.locator("#query")).to_have_value("level: ERROR 1")
    page.fill("#query", "")
    page.select_option("#logstore", "shop/access-log")
    total(page, "600 logs")
    page.locator("#histogram").focus()
    page.keyboard.press("End")
    for _ in range(10):
        page.keyboard.press("Shift+ArrowLeft")
    count = (page.locator("#how").text_content() or "").rpartition(": ")[2]
    page.keyboard.press("Enter")
    total(page, f"{count},")
    page.locator("#logs summary").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#logs .log button").first).to_be_visible()


def test_the_focus_stays_while_a_view_renews_itself(page: Page, server: LogHubServer) -> None:
    """A focused control keeps the focus when figures are refreshed."""
    page.locator("nav [data-view=faults]").click()
    server.faults.add(lambda _request: None, label="mine")
    page.get_by_role("button", name="Remove mine").focus()
    server.faults.add(lambda _request: None, label="another")
    expect(page.locator("#installed tbody tr")).to_have_count(2)
    expect(page.get_by_role("button", name="Remove mine")).to_be_focused()
