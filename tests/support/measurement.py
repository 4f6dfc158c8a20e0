"""Pauses the measurement of coverage where it costs much and learns nothing."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_coverage() -> Iterator[None]:
    """Nothing that runs inside the block is measured; without coverage.py it does nothing."""
    coverage = sys.modules.get("coverage")
    measurement = None if coverage is None else coverage.Coverage.current()
    if measurement is None:
        yield
        return
    measurement.stop()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it finds modules that were imported before, as they should be
            measurement.start()
