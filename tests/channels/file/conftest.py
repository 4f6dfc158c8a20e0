"""What the tests of the file channel share."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

from producer.channels.file.queue import recent
from tests.support.measurement import paused_coverage

#: Thousands of histories: measured, they take three times as long, and cover nothing that the others do not.
_UNMEASURED = {"test_model", "test_mutations", "test_every_byte", "test_nth_error"}


@pytest.fixture(scope="module", autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the channel log nothing there: to keep it for a report that nobody reads takes most of the time."""
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
    """Let every take read the disk, as one does that is behind, or comes after a restart."""
    monkeypatch.setattr(recent, "MOST", 0)
