"""Fail skipped tests with ``--nothing-skipped``, a pytest plugin. CI has all that tests need."""

from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nothing-skipped", action="store_true", help="a test that is skipped has failed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    return _failed(report) if item.config.getoption("nothing_skipped") else report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Fail a whole module that skips itself."""
    report = yield
    return _failed(report) if collector.config.getoption("nothing_skipped") else report


def _failed(report: Any) -> Any:
    # pytest reports an expected failure as skipped.
    if report.skipped and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr
        report.outcome, report.longrepr = "failed", f"{reason}, and --nothing-skipped lets no test be skipped"
    return report
