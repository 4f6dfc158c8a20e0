"""Written: what the writer told of itself adds up, however long the job runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.ship import written
from producer.ship.written import Written
from producer.spark.writing.metrics import WriteMetrics, report


def test_lines_of_every_write_are_added_up() -> None:
    """Each look adds what came since; none is counted twice."""
    with Written() as told:
        assert told.total() == WriteMetrics()
        for number in (1, 2, 3):
            report(WriteMetrics(rows=number, retries=1), "a write", told.path)
            told.total()
        assert (told.total().rows, told.total().retries) == (6, 3)


def test_file_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is large is put aside, and the sum stays right."""
    monkeypatch.setattr(written, "_MOST_BYTES", 500)
    with Written() as told:
        for number in range(20):
            report(WriteMetrics(rows=1), "a write", told.path, batch=number)
            assert told.total().rows == number + 1
            assert not Path(told.path).exists() or Path(told.path).stat().st_size <= 500


def test_line_that_is_being_written_is_left_for_the_next_look() -> None:
    """Half of a line is neither counted nor an error."""
    with Written() as told:
        report(WriteMetrics(rows=1), "a write", told.path)
        whole = Path(told.path).read_text()
        Path(told.path).write_text(whole + whole[:20])
        assert told.total().rows == 1
        Path(told.path).write_text(whole * 2)
        assert told.total().rows == 2


def test_nothing_is_left_behind() -> None:
    """The file goes with the block."""
    with Written() as told:
        folder = Path(told.path).parent
    assert not folder.exists()
