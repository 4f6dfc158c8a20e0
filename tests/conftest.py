"""What all tests share: the profile of Hypothesis, a Ctrl-C that works, and which tests never run side by side."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .support.measurement import paused_coverage

_TESTS = Path(__file__).parent

#: Where several processes run the tests, those of a group all run in one of them: one Spark session serves them all, as
#: does one cluster, documents may name the same port, and what counts bytes and CPU time has no rival of its kind. A
#: test in two groups is in a third, that of both.
_GROUPS = {
    "spark": ("spark",),
    "programs": ("spark/cluster", "spark/test_example.py", "spark/writing/test_stream_kill.py"),
    "documents": ("test_docs.py",),
    "measuring": ("processes/test_resources.py", "benchmarks"),
}

# The same examples in every run, so that a failure in CI is a failure here; the clock of a busy machine is no failure.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# A shell's background job ignores SIGINT, and so would every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in a hook of the same name
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the groups for ``--dist loadgroup``."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            for group in _groups_of(item.path.relative_to(_TESTS)):
                item.add_marker(pytest.mark.xdist_group(group))


def _groups_of(path: Path) -> list[str]:
    return [name for name, places in _GROUPS.items() if any(path.is_relative_to(place) for place in places)]


@pytest.fixture
def without_coverage() -> Iterator[None]:
    """For a test that runs the same few lines very often: measured it takes several times as long."""
    with paused_coverage():
        yield
