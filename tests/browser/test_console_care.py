"""The console's accessibility, access control, error messages, and safety against hostile logs."""

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from producer.server import LogHubServer
from producer.wire.schema import LogGroup

from ..server.client import Client
from .pages import accessibility_faults, fill, put

Open = Callable[..., Page]
VIEWS = ["logstores", "search", "tail", "requests", "faults", "producers"]


def go(page: Page, view: str, **wanted: str) -> None:
    given = "&".join(f"{name}={value}" for name, value in wanted.items())
    page.goto(f"{page.url.partition('#')[0]}#{view}?{given}")
    if view == "search":
        expect(page.locator("#search:not([aria-busy])")).to_be_visible()


def test_nothing_keeps_people_out(server: LogHubServer, open_page: Open) -> None:
    """No view has a serious accessibility fault in light or dark mode."""
    fill(server, 5)
    server.faults.add(lambda _request: None, logstore="none", label="mine")
    page = open_page(f"{server.endpoint}/console")
    expect(page.locator("#logstores tbody tr")).to_have_count(9)
    wrong = accessibility_faults(page)
    ready = {"search": "#fields details", "tail": "#tailing:has-text('Waiting')", "faults": "#installed tbody tr"}
    for view in VIEWS[1:]:
        go(page, view, logstore="shop/access-log", span="3600")
        expect(page.locator(ready.get(view, f"#{view} tbody tr")).first).to_be_visible()
        if view == "search":
            page.locator("#logs summary").first.click()
            expect(page.locator("#logs .log")).to_be_visible()
        wrong += [f"{view}: {one}" for one in accessibility_faults(page, "header, form:not([hidden]), section.shown")]
    go(page, "search", logstore="shop/nothing", span="3600")
    expect(page.locator("#message")).to_contain_text("does not exist")
    wrong += accessibility_faults(page, "#message")
    go(page, "search", logstore="shop/access-log", span="3600")
    page.locator("#logs summary").first.click()
    page.get_by_role("button", name="Logs around it").click()
    expect(page.locator("#neighbours .here")).to_be_visible()
    assert wrong + accessibility_faults(page, "#neighbours") == []


def test_every_view_fits_a_telephone_and_shows_its_name(server: LogHubServer, open_page: Open) -> None:
    """Every view fits a telephone and shows its name; in a wide window a long name leaves room for the query."""
    fill(server)
    put(server, [(1, {"a": "b"})], f"{'p' * 63}/{'l' * 63}")
    page = open_page(f"{server.endpoint}/console", viewport={"width": 375, "height": 700})
    for view in VIEWS:
        go(page, view, logstore="shop/access-log", span="3600")
        expect(page.locator(f"#{view}")).to_be_visible()
        page.wait_for_load_state("networkidle") if view == "search" else None
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, view
        expect(page.locator("nav [aria-current]")).to_be_in_viewport(ratio=0.99)
    page.set_viewport_size({"width": 1280, "height": 700})
    go(page, "search", logstore="shop/access-log", span="3600")
    assert page.locator("#query").evaluate("input => input.getBoundingClientRect().width") > 400


def test_a_key_opens_the_console(open_page: Open) -> None:
    """A server with its own keys shows nothing before sign-in; the key stays in the tab until sign-out."""
    with LogHubServer(access_keys={"me": "s€cret"}) as server:
        put(server, [(int(time.time()), {"a": "b"})])
        page = open_page(f"{server.endpoint}/console")
        expect(page.locator("#login")).to_be_visible()
        expect(page.locator("#logstores")).to_be_hidden()
        assert accessibility_faults(page) == []
        for secret in ("wrong", "s€cret"):
            page.get_by_label("Access key id").fill("me")
            page.get_by_label("Access key secret").fill(secret)
            page.get_by_role("button", name="Sign in").click()
            if secret == "wrong":
                expect(page.locator("#message")).to_contain_text("does not know this access key")
        expect(page.locator("#logstores tbody tr").first).to_contain_text("shop")
        expect(page.locator("#login")).to_be_hidden()
        page.reload()
        expect(page.locator("#logstores tbody tr").first).to_contain_text("shop")
        assert "s€" not in page.content()
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#login")).to_be_visible()
        expect(page.locator("#logstores")).to_be_hidden()


def test_with_the_default_key_on_this_machine_the_console_needs_no_sign_in_and_offers_no_sign_out(
    server: LogHubServer, open_page: Open
) -> None:
    """With the default key on this machine the console needs no sign-in, and offers no sign-out."""
    page = open_page(server.endpoint)
    expect(page.locator("#logstores .empty")).to_be_visible()
    expect(page.locator("#login")).to_be_hidden()
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()


def test_the_address_that_serve_prints_opens_the_console(open_page: Open) -> None:
    """The address that serve prints contains the user's key, which moves into the tab at once."""
    with LogHubServer(access_keys={"local-me": "s cret&"}) as server:
        page = open_page(f"{server.endpoint}/console#key=local-me&secret=s+cret%26")
        expect(page.locator("#logstores .empty")).to_contain_text("--profile local")
        expect(page.locator("#login")).to_be_hidden()
        assert "cret" not in page.url


def test_an_invalid_query_an_invalid_fault_and_an_unreachable_server_are_shown_in_words(
    server: LogHubServer, open_page: Open
) -> None:
    """An invalid query, an invalid fault and an unreachable server are shown in words, and the message disappears."""
    fill(server, 10)
    page = open_page(f"{server.endpoint}/console")
    message = page.locator("#message")
    go(page, "search", logstore="shop/access-log", span="3600", query="(error")
    expect(message).to_contain_text("the query cannot be read: '(' is not closed")
    expect(page.locator("#logs > li")).to_have_count(0)
    page.fill("#query", "")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#total")).to_contain_text("10 logs")
    expect(message).to_be_empty()
    go(page, "faults")
    page.get_by_label("Kind").select_option("drip_answer")
    page.get_by_label("Seconds").fill("1000")
    page.get_by_role("button", name="Install").click()
    expect(message).to_contain_text("seconds is '1000': it must be a number from 0 to 10")
    server.stop()
    expect(message).to_contain_text("The server does not answer")
    server.start()
    expect(message).to_be_empty()
    page.get_by_label("Seconds").fill("1")
    page.get_by_role("button", name="Install").click()
    expect(page.locator("#installed tbody tr")).to_contain_text("drip_answer seconds=1")


HOSTILE = {
    "html": "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>",
    "<b onclick=alert(1)>key</b>": '"><svg onload=alert(1)>',
    "__proto__": "polluted",
    "constructor": "x",
    "toString": "y",
    "control": "a\x00b\x1b[31mred\x07\u202egnp.exe",
    "rtl": "مرحبا بالعالم",
    "formula": '=HYPERLINK("http://evil.example")',
    "tab": "\t=1+1",
    "at": "@SUM(1)",
    "wide": "\uff1d1+1",
    "line": "\n=1+1",
    "negative": "-12.5",
    "plus": "+49 30",
    "quote": 'a"b,c\nd',
}


def test_markup_scripts_control_characters_and_names_special_to_javascript_are_shown(
    server: LogHubServer, open_page: Open, tmp_path: Path
) -> None:
    """Markup, scripts, control characters and names special to JavaScript are shown as text everywhere."""
    now = int(time.time()) - 5
    put(server, [(now, HOSTILE), (now - 1, {"other": "z"})], agent="<img src=x onerror=alert(2)>", topic="<i>t</i>")
    page = open_page(f"{server.endpoint}/console")
    go(page, "search", logstore="shop/access-log", span="3600")
    line = page.locator("#logs > li").first
    line.locator("summary").click()
    cells = line.locator(".log td:nth-child(2)")
    for text in (HOSTILE["html"], "polluted", "a␀b␛[31mred␇[U+202E]gnp.exe", HOSTILE["rtl"], HOSTILE["quote"]):
        assert text in cells.all_text_contents()
    assert "__proto__" in line.locator(".log th").all_text_contents()
    expect(page.locator("#fields summary", has_text="__proto__")).to_have_count(1)
    assert page.locator("#logs img, #logs svg, #fields img, #logs script, #fields b").count() == 0
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download CSV").click()
    waiting.value.save_as(tmp_path / "csv")
    saved = (tmp_path / "csv").read_text(encoding="utf-8")
    for text in (
        '"\'=HYPERLINK(""http://evil.example"")"',
        '"\'\t=1+1"',
        '"\'@SUM(1)"',
        '"\'\uff1d1+1"',
        '"\'\n=1+1"',
        '"-12.5"',
        '"\'+49 30"',
    ):
        assert text in saved
    assert "[object Object]" not in saved
    line.get_by_role("button", name="Logs around it").click()
    expect(page.locator("#neighbours .here")).to_contain_text("<script>")
    page.keyboard.press("Escape")
    for view in ("tail", "requests", "producers"):
        go(page, view, logstore="shop/access-log")
        if view == "tail":
            expect(page.locator("#tailing")).to_contain_text("Waiting")
            put(server, [(now, HOSTILE)])
            expect(page.locator("#tailed > li")).to_contain_text("<script>")
        else:
            expect(page.locator(f"#{view} tbody").first).to_contain_text("<img src=x")
    assert page.title().endswith("LogHub console")
    assert page.evaluate("({}).polluted") is None


def test_even_if_markup_got_into_the_page_none_of_its_scripts_would_run(server: LogHubServer, open_page: Open) -> None:
    """Even if markup got into the page, none of its scripts would run, and no other host would be asked."""
    page = open_page(f"{server.endpoint}/console", policy_stops=True)
    page.evaluate(
        """() => { document.body.insertAdjacentHTML("beforeend", "<img src=data:x onerror=\\"document.title='run'\\">");
        const script = document.createElement("script"); script.textContent = "document.title = 'run'"; }"""
    )
    reached = page.evaluate("fetch('http://127.0.0.2:9/').then(() => true, () => false)")
    assert not reached
    assert page.title() != "run"


def test_logs_of_any_size_are_shown(server: LogHubServer, open_page: Open) -> None:
    """A value of a megabyte is cut, and shown whole on request; 300 fields do not flood the page."""
    now = int(time.time()) - 5
    group = LogGroup()
    log = group.Logs.add(Time=now)
    for name, text in (("long", b"word " * 209_716), ("binary", b"\xff\xfe\x00")):
        log.Contents.add(Key=name, Value=text)
    for number in range(300):
        log.Contents.add(Key=f"field{number:03}", Value=f"value {number}".encode())
    with Client(server, "shop") as client:
        client.put(bytes(group.SerializeToString()), logstore="big")
    page = open_page(f"{server.endpoint}/console")
    go(page, "search", logstore="shop/big", span="3600")
    line = page.locator("#logs > li")
    expect(line).to_contain_text("long=word word")
    assert len(line.text_content() or "") < 2000
    expect(page.locator("#fields details")).to_have_count(304)
    assert page.locator("#fields details[open]").count() == 8
    line.locator("summary").click()
    shown = line.locator(".log td", has_text="word word")
    assert len(shown.text_content() or "") < 30_000
    shown.get_by_role("button", name="Show all 1.0 MiB").click()
    assert len(shown.text_content() or "") > 1_048_000
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
