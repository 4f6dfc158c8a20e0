"""Parsing and formatting of times."""

import argparse
import time
from collections.abc import Iterator

import pytest

from producer.cli.times import shown, time_of

NOW = 1_700_000_000.5


@pytest.fixture(params=["Asia/Shanghai", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_a_time_without_a_zone_is_of_this_machine_s(zone: str) -> None:
    """A time without a zone is in this machine's zone, in arguments and in the output."""
    there = {"Asia/Shanghai": "2023-11-15 06:13:20", "America/New_York": "2023-11-14 17:13:20"}[zone]
    assert shown(1_700_000_000) == there
    assert time_of(there, NOW) == time_of("2023-11-14T22:13:20Z", NOW) == 1_700_000_000


@pytest.mark.parametrize("number", ["9" * 12, "9" * 18, "9" * 30])
def test_a_number_that_is_not_a_time_is_printed_unchanged(number: str) -> None:
    """A number that is not a time is printed unchanged."""
    assert shown(number) == number


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59", "2026-13-01", "-1", "1.5", "\u00b2"])
def test_a_text_that_is_not_a_time_is_refused_with_the_rule(zone: str, text: str) -> None:
    """A text that is not a time is refused with the rule."""
    with pytest.raises(argparse.ArgumentTypeError, match="must be now, a time ago such as -15m"):
        time_of(text, NOW)


def test_a_time_ago_needs_no_sign() -> None:
    """A time ago needs no sign."""
    assert time_of("15m", NOW) == time_of("-15m", NOW) == int(NOW) - 900


def test_time_ago_ends_where_unix_time_begins() -> None:
    """A time ago is at least 0."""
    assert time_of("-999999999d", NOW) == 0
