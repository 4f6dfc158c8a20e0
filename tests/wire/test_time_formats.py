"""time_formats."""

from datetime import UTC, datetime, timedelta

import pytest

from producer.wire.time_formats import NAMED, named
from producer.wire.times import placed_in

NOON = 1_706_702_400_000_000_000
LATEST = datetime(2024, 6, 1, tzinfo=UTC)
TEXTS = {
    "iso8601": ["2024-01-31T13:00:00+01:00", "2024-01-31 12:00:00", "2024-01-31T12:00"],
    "rfc3339": ["2024-01-31T12:00:00Z", "2024-01-31T12:00:00.000+00:00"],
    "rfc2822": ["Wed, 31 Jan 2024 13:00:00 +0100", "31 Jan 2024 12:00:00 GMT", "Wed, 31 Jan 2024 12:00:00"],
    "apache": ["31/Jan/2024:13:00:00 +0100"],
    "clf": ["31/Jan/2024:12:00:00 +0000"],
    "apache_error": ["Wed Jan 31 12:00:00.000000 2024"],
    "nginx_error": ["2024/01/31 12:00:00"],
    "ctime": ["Wed Jan 31 12:00:00 2024"],
    "syslog": ["Jan 31 12:00:00", "2024-01-31T12:00:00Z"],
    "unix": ["1706702400", "1706702400.0"],
    "unix_ms": ["1706702400000"],
    "unix_us": ["1706702400000000"],
    "unix_ns": ["1706702400000000000"],
}


@pytest.mark.parametrize("name", NAMED)
def test_each_named_format_reads_its_texts_and_no_others(name):
    """Each named format reads its own texts, and returns None for others."""
    read, place = NAMED[name], placed_in(UTC)
    assert [read(text, place, LATEST) for text in TEXTS[name]] == [NOON] * len(TEXTS[name])
    others = ["", "x", "nan", "-1", "9" * 5000, "99:99", "2024-13-01T00:00:00Z", "Wed, 31 Foo 2024 12:00:00 GMT"]
    assert [read(text, place, LATEST) for text in others] == [None] * len(others)


def test_zones_are_needed_where_the_format_has_them():
    """rfc3339 needs a zone, and no time without one is read if the caller has no zone for it."""
    assert NAMED["rfc3339"]("2024-01-31T12:00:00", placed_in(UTC), LATEST) is None
    for name, text in (("iso8601", "2024-01-31T12:00:00"), ("rfc2822", "31 Jan 2024 12:00:00")):
        assert NAMED[name](text, None, LATEST + timedelta()) is None


def test_a_hyphen_counts_as_an_underscore():
    """unix-ms and unix_ms are one format; a pattern of strptime has no name."""
    assert named("unix-ms") is named("unix_ms") is not None
    assert named("%Y") is None
