"""Fixtures of the file channel's tests."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

from producer.channels.file.queue import recent
from tests.support.measurement import paused_coverage

#: Tests with thousands of histories: with coverage they take three times as long, and cover nothing more.
_UNMEASURED = {"test_model", "test_mutations", "test_every_byte", "test_nth_error"}


@pytest.fixture(scope="module", autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """Silence the channel's log in tests with many histories, where capturing it takes most of the time."""
    quiet = request.module.__name__.rpartition(".")[2] in _UNMEASURED
    log = logging.getLogger("loghub.channel")
    log.disabled = quiet
    yield
    log.disabled = False


@pytest.fixture(scope="module", autouse=True)
def unmeasured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pause the measurement of coverage for the modules that repeat the same lines most often."""
    unmeasured = request.module.__name__.rpartition(".")[2] in _UNMEASURED
    with paused_coverage() if unmeasured else contextlib.nullcontext():
        yield


@pytest.fixture
def read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every take read from the disk, as after a restart."""
    monkeypatch.setattr(recent, "MOST", 0)
