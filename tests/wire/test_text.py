"""Conversion of values and times."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer import InvalidArgumentError, LogItem, StreamKey
from producer.wire import text
from producer.wire.text import text_of, time_of


@given(st.floats())
def test_a_float_is_the_shortest_text_that_reads_back_equal(value: float) -> None:
    """The text of a float is its repr, for infinities and NaN as well."""
    text = text_of(value, "f")
    assert isinstance(text, str)
    assert float(text) == value or math.isnan(value)


@given(st.integers(-(10**4000), 10**4000))
def test_an_integer_is_its_decimal_digits(value: int) -> None:
    """Any integer that Python can format is restored."""
    assert int(text_of(value, "i")) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_a_structure_is_compact_json_that_reads_back(value: Any) -> None:
    """Lists and mappings are JSON without spaces, and without escapes of text."""
    if not isinstance(value, list | dict):
        return
    text = text_of(value, "s")
    assert isinstance(text, str)
    assert json.loads(text) == value
    assert text == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_values_inside_a_structure_follow_the_same_table() -> None:
    """Decimal, datetime, UUID and bytes inside JSON are strings."""
    value = {
        "d": Decimal("0.10"),
        "t": datetime(2026, 1, 2, tzinfo=UTC),
        "u": UUID(int=0),
        "b": b"\xff\x41",
        "m": memoryview(b"x"),
    }
    assert json.loads(text_of(value, "v")) == {
        "d": "0.10",
        "t": "2026-01-02T00:00:00+00:00",
        "u": str(UUID(int=0)),
        "b": "\\xffA",
        "m": "x",
    }


def test_an_exception_of_a_signal_handler_is_raised_unchanged_as_plain_values_run_no_foreign_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception of a signal handler is raised unchanged, as plain values run no foreign code."""

    class HandlerError(Exception):
        pass

    def interrupted(_value: str) -> str:
        raise HandlerError

    monkeypatch.setitem(text._QUICK, str, interrupted)
    with pytest.raises(HandlerError):
        text_of("x", "f")
    with pytest.raises(InvalidArgumentError, match="field 'f': Exceeds the limit"):
        text_of(10**5000, "f")


def test_a_time_may_be_none_now_seconds_or_an_aware_datetime_which_is_split_at_the_second() -> None:
    """A time may be None (now), seconds, or an aware datetime, which is split at the second; before 1970 is refused."""
    assert time_of(LogItem({}), 7) == (7, 0)
    assert time_of(LogItem({}, 5, 6), 7) == (5, 6)
    assert time_of(LogItem({}, datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)), 7) == (1, 5000)
    assert time_of(LogItem({}, datetime(1970, 1, 1, tzinfo=UTC), 9), 7) == (0, 9)
    with pytest.raises(InvalidArgumentError, match="got -1"):
        time_of(LogItem({}, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)), 7)


def test_stream_keys_are_equal_by_value() -> None:
    """Stream keys with the same parts are equal."""
    assert StreamKey("p", "l") == StreamKey("p", "l", "", "", None, ())
    assert hash(StreamKey("p", "l")) == hash(StreamKey("p", "l"))


def test_numbers_that_json_lacks_are_text_inside_structures() -> None:
    """``nan`` and the infinities are text inside structures, as JSON lacks them."""
    assert text_of({"x": float("nan"), "y": [float("-inf"), 1.5]}, "f") == '{"x":"nan","y":["-inf",1.5]}'
