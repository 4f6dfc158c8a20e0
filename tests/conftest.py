"""Configure all tests: Hypothesis profiles, a working Ctrl-C, and tests that never run concurrently."""

import logging
import signal
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from producer.runtime import loggers

from .support.measurement import paused_coverage

# With all lower bounds (`make test-lowest`) there is no Spark.
pytest_plugins = [
    *("tests.support.lasting", "tests.support.rare", "tests.support.skips"),
    *(["tests.support.spark_session"] if find_spec("pyspark") else []),
]

_TESTS = Path(__file__).parent

#: Where several processes run the tests, those of a group all run in one of them: one Spark session serves them all, as
#: does one cluster and one browser, what is published is built once, documents may name the same port, and what counts
#: bytes and CPU time has no rival of its kind. Those that take longest come first, by their number of tests: no process
#: should be left alone with one of them at the end.
_GROUPS = {
    "spark": (
        *("ship/follow/test_query.py", "ship/test_outcome_ledger.py", "ship/test_command.py", "ship/test_demo.py"),
        *("ship/test_exactly_once.py", "ship/test_names.py", "ship/test_remote.py", "ship/test_session.py"),
        *("spark/reading/test_on_spark.py", "spark/test_benchmark.py", "spark/test_executor_on_spark.py"),
        "spark/writing/test_datasource.py",
    ),
    "programs": (
        *("spark/cluster", "spark/test_example.py", "spark/writing/test_stream_kill.py"),
        *("ship/test_interrupts.py", "ship/test_java.py"),
    ),
    "documents": ("test_docs.py",),
    "packages": ("processes/test_packages.py",),
    "pages": ("browser",),
    "measuring": ("processes/test_resources.py", "benchmarks"),
}

# The same examples in every run, so that a failure in CI is repeatable; no deadlines, since the machine may be busy.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
# For `make test-lowest`, which tests libraries, not rare values.
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=10)

# No test captures the log between tests, and logging would write it to the terminal.
logging.getLogger().addHandler(logging.NullHandler())

# A shell's background job ignores SIGINT, and so would all programs that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep each group in one process, without xdist's own marks, which pytest 9.2 does not show it."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid) or nodeid

    return Groups(config, log)


def _group_of(nodeid: str) -> str | None:
    own = Path(nodeid.partition("::")[0]).relative_to(_TESTS.name)
    return next((name for name, places in _GROUPS.items() if any(own.is_relative_to(place) for place in places)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Require tests with the session to be in the group ``spark``: a second session costs a minute."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and _group_of(item.nodeid) != "spark":
            raise pytest.UsageError(f"{item.nodeid} needs the session: put its file into _GROUPS of tests/conftest.py")


@pytest.fixture
def quick_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """End searches for users' patterns after 50 ms."""
    monkeypatch.setattr("producer.wire.patterns.SECONDS", 0.05)


@pytest.fixture
def without_coverage() -> Iterator[None]:
    """Pause coverage for a test that runs a few lines very often, and is several times slower with it."""
    with paused_coverage():
        yield


class _Raising(logging.Handler):
    """An application's log handler that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(f"a defect, at: {record.getMessage()}")


@pytest.fixture(autouse=True)
def shown_of_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fail the test if a log line cannot be formatted; yield the shown errors."""
    shown: list[str] = []

    def show() -> None:
        shown.append(traceback.format_exc())

    monkeypatch.setattr(loggers, "show", show)
    yield shown
    assert shown == []


@pytest.fixture
def raising_handler(shown_of_logging: list[str]) -> Iterator[list[str]]:
    """Let every log call raise inside the test; yield the shown errors."""
    logger, handler = logging.getLogger("loghub"), _Raising()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield shown_of_logging
    logger.removeHandler(handler)
    logger.setLevel(level)
    assert all("a defect, at: " in each for each in shown_of_logging)
    shown_of_logging.clear()
