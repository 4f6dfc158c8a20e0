"""Pause the coverage measurement where it is expensive and adds nothing."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_coverage() -> Iterator[None]:
    """Measure nothing inside the block; does nothing without coverage.py."""
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
            warnings.simplefilter("ignore")  # it reports modules that were imported before, which is intended here
            measurement.start()
