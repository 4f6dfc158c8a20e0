import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from producer.server import LogHubServer

from . import chromium
from .pages import PATIENCE, Watched

_FLAGS = ["--no-sandbox", "--no-zygote", "--in-process-gpu", "--disable-gpu"]


# While it is there, this thread has an event loop: of this folder only.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path, environment = chromium.executable()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS, env={**os.environ, **environment})
        expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


@pytest.fixture(scope="package")
def usual(browser: Browser) -> Iterator[Watched]:
    """One page for all tests that want nothing special of it: a new one takes half a second."""
    watched = Watched(browser, {})
    yield watched
    watched.close()


@pytest.fixture
def open_page(browser: Browser, usual: Watched) -> Iterator[Callable[..., Page]]:
    """Opens a page, and looks at its end at whatever no page may do: ask another host, fail, or write errors."""
    opened: list[Watched] = []

    def open_page(url: str, **options: object) -> Page:
        watched = Watched(browser, options) if options else usual
        opened.append(watched)
        watched.open(url)
        return watched.page

    yield open_page
    try:
        for one in opened:
            one.leave()
    finally:
        for one in opened:
            if one is not usual:
                one.close()
