import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from producer.server import LogHubServer

from . import chromium
from .pages import PATIENCE, Watched

_FLAGS = ["--no-sandbox", "--no-zygote", "--in-process-gpu", "--disable-gpu"]


# Playwright runs an event loop in this thread while it is open, so only this folder opens it.
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
    """Yield one page for all tests without special needs: a new page takes half a second."""
    watched = Watched(browser, {})
    yield watched
    watched.close()


@pytest.fixture
def open_page(browser: Browser, usual: Watched) -> Iterator[Callable[..., Page]]:
    """Yield a function that opens a page. At the end no page may have asked another host, failed, or logged errors."""
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
