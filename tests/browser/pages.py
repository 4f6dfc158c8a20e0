"""Helpers of page tests: a watched page, logs to show, accessibility, and screenshots."""

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import axe_playwright_python
from playwright.sync_api import Browser, ConsoleMessage, FloatRect, Page

from producer.server import LogHubServer
from producer.wire.schema import LogGroup

from ..server.client import Client

DOCS = Path(__file__).parents[2] / "docs" / "images"
#: Environment variable that enables screenshots, and their largest size in bytes.
SCREENSHOTS = "PRODUCER_SCREENSHOTS"
_PICTURE_BYTES = 150_000
_AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
#: Longest wait for anything, milliseconds.
PATIENCE = 20_000


class Watched:
    """A page in a context of its own, and a record of its forbidden actions."""

    def __init__(self, browser: Browser, options: Mapping[str, Any]) -> None:
        given = {"viewport": {"width": 1280, "height": 800}, "accept_downloads": True, **options}
        self._policy_stops = bool(given.pop("policy_stops", False))
        self._host = ""
        self._wrong: list[str] = []
        self._context = browser.new_context(**given)
        self._context.set_default_timeout(PATIENCE)
        self.page = self._context.new_page()
        self.page.on("request", lambda request: self._note_host(request.url))
        self.page.on("pageerror", lambda error: self._wrong.append(f"failed: {error}"))
        self.page.on("dialog", lambda dialog: self._wrong.append(f"dialog: {dialog.message}"))
        self.page.on("console", self._note_message)

    def open(self, url: str) -> None:
        """Open a URL; its host is the only one that the page may ask."""
        self._host = urlsplit(url).netloc
        self.page.goto(url)

    def leave(self) -> None:
        """Assert that the page asked no other host, that nothing failed, and that no foreign script ran."""
        self.page.goto("about:blank")
        wrong, self._wrong = self._wrong, []
        assert wrong == []

    def close(self) -> None:
        self._context.close()

    def _note_host(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("about", "data", "blob") and parts.netloc != self._host and not self._policy_stops:
            self._wrong.append(f"asked {url}")

    def _note_message(self, message: ConsoleMessage) -> None:
        # The page itself shows an answer with an error in words.
        is_policy = self._policy_stops and "Content Security Policy" in message.text
        if message.type == "error" and not is_policy and "Failed to load resource" not in message.text:
            self._wrong.append(f"console: {message.text}")


def put(
    server: LogHubServer, logs: list[tuple[int, dict[str, str]]], place: str = "shop/access-log", **facts: Any
) -> None:
    """Write logs, each with its time, in one LogGroup."""
    project, logstore = place.split("/")
    group = LogGroup(Topic=facts.get("topic", ""), Source=facts.get("source", ""))
    if "pack_id" in facts:
        group.LogTags.add(Key="__pack_id__", Value=facts["pack_id"])
    for when, fields in logs:
        log = group.Logs.add(Time=when)
        for name, text in fields.items():
            log.Contents.add(Key=name, Value=text.encode())
    raw = bytes(group.SerializeToString())
    with Client(server, project) as client:
        headers = {"User-Agent": facts.get("agent", "shop-backend/2.4")}
        client.put(
            raw, logstore=logstore, path="/shards/route", params={"key": facts.get("key", "00")}, headers=headers
        )


def fill(server: LogHubServer, count: int = 600) -> int:
    """Write a shop's logs of its last hour; return the time of the last one."""
    dice, now = random.Random(3), int(time.time()) - 5
    logs = []
    for number in range(count):
        status = dice.choice(["200"] * 8 + ["304", "404", "500", "503"])
        path = dice.choice(["/cart", "/api/items", "/api/orders", "/login"])
        fields = {
            "level": "ERROR" if status >= "500" else "INFO",
            "status": status,
            "method": dice.choice(["GET", "POST"]),
            "path": path,
            "latency_ms": str(dice.randint(2, 900)),
            "user": f"u{dice.randint(1, 40)}",
            "message": f"{path} answered {status} to order {dice.randint(1000, 9999)}",
        }
        # Busiest in the middle of the hour.
        logs.append((now - int(3500 * (dice.random() + dice.random()) / 2) if number else now, fields))
    logs.sort(key=lambda log: log[0])
    for begin in range(0, count, 200):
        part = logs[begin : begin + 200]
        key = f"{begin // 200 % 2 * 8:x}0"
        put(server, part, topic="web", source="10.1.0.7", pack_id=f"5A0C31D2-{begin // 200:X}", key=key)
    paid = [(now - 60 * number, {"level": "INFO", "amount": str(dice.randint(1, 500))}) for number in range(40)]
    put(server, paid, "shop/payments", agent="billing/1.9")
    put(server, [(now, {"who": "root", "did": "login"})], "ops/audit", agent="auditd-forwarder")
    return now


def accessibility_faults(page: Page, within: str = "html") -> list[str]:
    """Return axe's serious and critical findings, in light and in dark mode: rule and place of each."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_AXE)
    wrong = _violations(page, "light", within, {})
    # Dark mode differs in colours only.
    wrong += _violations(page, "dark", within, {"runOnly": ["color-contrast"]})
    page.emulate_media(color_scheme="light")
    return wrong


def _violations(page: Page, scheme: Literal["light", "dark"], within: str, options: dict[str, Any]) -> list[str]:
    page.emulate_media(color_scheme=scheme)
    run = "async ([within, options]) => (await axe.run([...document.querySelectorAll(within)], options)).violations"
    found = page.evaluate(run, [within, {"resultTypes": ["violations"], **options}])
    return [
        f"{scheme}: {one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def picture(page: Page, name: str, height: int) -> None:
    """Write the upper part of the page as a document's screenshot, if enabled; assert that it is small."""
    if os.environ.get(SCREENSHOTS):
        path = DOCS / f"{name}.png"
        page.mouse.move(0, 0)
        clip = FloatRect(x=0, y=0, width=1280, height=height)
        page.screenshot(path=path, animations="disabled", caret="hide", clip=clip)
        assert path.stat().st_size <= _PICTURE_BYTES
