"""The server's clock, by the Date of its responses."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from producer.sinks.http.server_time import clock_offset


@pytest.mark.parametrize("now", [0.0, 1_795_000_000.0, 4e9])
def test_a_clock_is_corrected_however_far_it_is_off(now: float) -> None:
    """A clock is corrected even if it is at 1970, as without a battery."""
    assert clock_offset(formatdate(1_795_748_503, usegmt=True), now) == 1_795_748_503 - now


@pytest.mark.parametrize(
    "date", [None, "", "x", "Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 21 Oct 99999999999 07:28:00 GMT"]
)
def test_a_date_that_nothing_can_be_signed_by_is_none(date: str | None) -> None:
    """A date after Python's last year is invalid."""
    assert clock_offset(date, 0.0) is None
