"""The time of a line is used only with date, year and zone."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from freezegun import freeze_time

from producer.cli.ship import job_of
from producer.ship import line_times
from producer.ship.errors import InputError
from producer.ship.figures import Figures
from producer.ship.line_times import LineTimes
from producer.ship.lines.columns import LINE_TIMES, BlockColumns
from producer.ship.lines.line import Block
from producer.wire.json_object import parse_json
from tests.ship.conftest import parse_ship

_NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
#: Nanoseconds since 1970.
NOON = 1_706_702_400_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        *("2024-01-31T12:00:00Z", "2024-01-31T13:00:00+01:00", "2024-01-31 12:00:00.000+00:00"),
        *("31/Jan/2024:12:00:00 +0000", "31/Jan/2024:07:00:00 -0500"),
    ],
)
def test_time_with_a_zone_is_known(text: str) -> None:
    """Times with a zone are read, of ISO 8601 and of access logs."""
    assert LineTimes().reader()(text) == NOON


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
    """A time without a zone, or out of LogHub's range, is ignored."""
    assert LineTimes().reader()(text) is None


def test_lines_of_a_block_have_their_own_times() -> None:
    """The lines of a block have their own times, in columns and parsed one by one; other lines are null."""
    access = '192.0.2.1 - - [31/Jan/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 -'
    lines = [access, '{"timestamp":"2024-01-31T12:00:00.5Z"}', "text", access.replace("12:", "13:", 1)]
    block = Block(0, "\n".join(lines).encode())
    batch = BlockColumns("auto", None, offset=False, times=LineTimes()).batch(block, Figures())
    told = [NOON, NOON + 500_000_000, None, NOON + 3600 * 10**9]
    assert batch.column(LINE_TIMES).cast(pa.int64()).to_pylist() == told


def test_first_field_that_a_line_has_counts() -> None:
    """The first time field of each line is used; an unreadable time is none."""
    lines = ['{"timestamp":"2024-01-31T12:00:00Z"}', '{"time":"x","timestamp":"2024-01-31T12:00:00Z"}'] * 3
    batch = BlockColumns("json", None, offset=False, times=LineTimes()).batch(
        Block(0, "\n".join(lines).encode()), Figures()
    )
    assert batch.column(LINE_TIMES).to_pylist() == [_NOON, None] * 3


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2024-01-31 20:00:00", "Asia/Shanghai"),
        ("2024-01-31T13:00:00.000", "+01:00"),
        ("2024-01-31T12:00:00Z", "+0100"),
        ("31/Jan/2024:07:00:00", "America/New_York"),
        ("Wed Jan 31 12:00:00.000000 2024", "UTC"),
        ("Wed Jan 31 12:00:00 2024", "UTC"),
        ("2024/01/31 12:00:00", "UTC"),
    ],
)
def test_named_zone_is_that_of_times_without_one(text: str, zone: str) -> None:
    """The user's zone applies to times without one; others keep their zone."""
    times = LineTimes(zone)
    times.check()
    assert times.reader()(text) == NOON
    if not text.endswith("Z"):
        assert LineTimes().reader()(text) is None


@pytest.mark.parametrize(
    ("now", "text", "moment"),
    [
        ("2026-03-01T00:00:00Z", "Feb 28 23:59:59", datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC)),
        ("2026-01-01T00:00:01Z", "Dec 31 23:59:59", datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2025-12-31T23:59:59Z", "Jan  1 00:00:01", datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("2026-11-22T12:00:00Z", "Feb 29 12:00:00", datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ],
)
def test_time_without_a_year_is_the_last_that_is_not_ahead(now: str, text: str, moment: datetime) -> None:
    """A time without a year is the latest one that is not in the future, with a tolerance of a day."""
    with freeze_time(now):
        assert LineTimes("+00:00").reader()(text) == int(moment.timestamp()) * 10**9
    line_times._reader.cache_clear()


@pytest.mark.parametrize(
    ("text", "zone", "form"),
    [
        ("31.01.2024 12-00-00,000", "UTC", "%d.%m.%Y %H-%M-%S,%f"),
        ("2024-01-31 20:00 +0800", None, "%Y-%m-%d %H:%M %z"),
        ("1706702400", None, "unix"),
        ("1706702400.0", "Asia/Shanghai", "unix"),
        ("1706702400000", None, "unix-ms"),
        ("1706702400000000", None, "unix-us"),
        ("1706702400000000000", None, "unix-ns"),
    ],
)
def test_named_format_is_the_only_one(text: str, zone: str | None, form: str) -> None:
    """With the user's format, times of other forms are ignored."""
    times = LineTimes(zone, form)
    times.check()
    read = times.reader()
    assert read(text) == NOON
    assert [read(other) for other in ("2024-01-31T12:00:00Z", "", "nan", "inf", "-1e400", f"{text}x")] == [None] * 6


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2024-01-31T12:00:00.123456789Z", None),
        ("2024-01-31 12:00:00,1234567891", None),
        ("Jan 31 2024 12:00:00.123456789", None),
        ("31.01.2024 12:00:00.123456789", "%d.%m.%Y %H:%M:%S.%f"),
        ("1706702400.123456789", "unix"),
        ("1706702400123.456789", "unix-ms"),
        ("1706702400123456789", "unix-ns"),
    ],
)
def test_nine_digits_after_the_second_are_kept(text: str, form: str | None) -> None:
    """Nine digits after the second are kept, in a column and for a single line, in every form."""
    times = LineTimes("UTC", form)
    line = json.dumps({"time": text}).encode()
    batch = BlockColumns("json", None, offset=False, times=times).batch(Block(0, line), Figures())
    assert batch.column(LINE_TIMES).cast(pa.int64()).to_pylist() == [NOON + 123_456_789]
    assert times.of_fields({"time": text}) == NOON + 123_456_789


@pytest.mark.parametrize(
    ("zone", "form", "said"),
    [
        ("Mars/Olympus", None, "use a name such as Asia/Shanghai"),
        ("../etc", None, "is unknown"),
        ("+25:00", None, "is unknown"),
        (None, "%Y-%m-%d %H:%M", "add it, or use --line-time-zone"),
        ("UTC", "%Y-%q", "is not a format of times"),
        ("UTC", "noon", "is not a format of times"),
    ],
)
def test_an_invalid_zone_or_format_is_refused_before_anything_is_read(
    zone: str | None, form: str | None, said: str
) -> None:
    """An invalid zone or format is refused before anything is read."""
    with pytest.raises(InputError, match=re.escape(said)):
        LineTimes(zone, form).check()


def test_columns_and_single_lines_tell_the_same() -> None:
    """Columns and single lines yield the same times."""
    options = ["--line-time-zone=Asia/Shanghai", "--line-time-format=%d.%m.%Y %H:%M", "--access-key-id=a"]
    target = ["--endpoint=http://e", "--project=project", "--logstore=store", "--access-key-secret=b"]
    job = job_of(parse_ship(["x.log", *options, *target, "--parser=json"]), {})
    assert job.line_time == LineTimes("Asia/Shanghai", "%d.%m.%Y %H:%M")
    line = b'{"time":"31.01.2024 20:00"}'
    batch = BlockColumns("json", None, offset=False, times=job.line_time).batch(Block(0, line), Figures())
    assert batch.column(LINE_TIMES).to_pylist() == [_NOON]
    assert job.line_time.of_fields(parse_json(line.decode()) or {}) == NOON
