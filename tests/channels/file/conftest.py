"""What the tests of the file channel share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import pytest

#: Thousands of histories: measured, they take three times as long, and cover nothing that the others do not.
_UNMEASURED = {"test_model", "test_mutations", "test_every_byte", "test_nth_error"}


@pytest.fixture(scope="module", autouse=True)
def unmeasured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pause the measurement of coverage for the modules that repeat the same lines most often."""
    coverage = sys.modules.get("coverage")
    measurement = None if coverage is None else coverage.Coverage.current()
    if measurement is None or request.module.__name__.rpartition(".")[2] not in _UNMEASURED:
        yield
        return
    measurement.stop()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it finds modules that were imported before, as they should be
            measurement.start()
