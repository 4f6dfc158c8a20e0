"""The time that a line tells: with date, year and zone, or not at all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from producer.ship.figures import Figures
from producer.ship.lines.columns import LINE_TIMES, BlockColumns
from producer.ship.lines.line import Block
from producer.ship.lines.times import moment_of

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("2024-01-31T12:00:00Z", "2024-01-31T13:00:00+01:00", "2024-01-31 12:00:00.000+00:00"),
        *("31/Jan/2024:12:00:00 +0000", "31/Jan/2024:07:00:00 -0500"),
    ],
)
def test_time_with_a_zone_is_known(text: str) -> None:
    """ISO 8601, and as access logs write it."""
    assert moment_of(text) == NOON


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "noon", "2024-01-31T12:00:00", "2024-01-31", "Jan 31 12:00:00", "31/Jan/2024:12:00:00"),
        *(
            "1706702400",
            "1969-12-31T23:59:59Z",
            "2106-02-07T06:28:16Z",
            "0001-01-01T00:00:00+23:00",
            "2024-13-01T00:00Z",
        ),
    ],
)
def test_time_without_a_zone_or_out_of_range_is_none(text: str) -> None:
    """Nothing is guessed, and nothing is taken that LogHub has no number for."""
    assert moment_of(text) is None


def test_lines_of_a_block_have_their_own_times() -> None:
    """Those in columns, those parsed one by one, and null for those that tell none."""
    access = '192.0.2.1 - - [31/Jan/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 -'
    lines = [access, '{"timestamp":"2024-01-31T12:00:00.5Z"}', "text", access.replace("12:", "13:", 1)]
    block = Block(0, "\n".join(lines).encode())
    batch = BlockColumns("auto", None, offset=False, times=True).batch(block, Figures())
    told = [NOON, NOON.replace(microsecond=500_000), None, NOON.replace(hour=13)]
    assert batch.column(LINE_TIMES).to_pylist() == told


def test_first_field_that_a_line_has_counts() -> None:
    """Each line by itself, whatever the others have; a time that cannot be read is none."""
    lines = ['{"timestamp":"2024-01-31T12:00:00Z"}', '{"time":"x","timestamp":"2024-01-31T12:00:00Z"}'] * 3
    batch = BlockColumns("json", None, offset=False, times=True).batch(Block(0, "\n".join(lines).encode()), Figures())
    assert batch.column(LINE_TIMES).to_pylist() == [NOON, None] * 3
