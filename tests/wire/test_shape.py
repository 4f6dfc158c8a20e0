"""Shapes, heads and runs: the pieces of records of one shape and second, put together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.wire import shape as module
from producer.wire.log_group import LogEncoder
from producer.wire.shape import Heads, Room, Run, Shape, join_records

NOW = 1_700_000_000


def _fields(shape: Shape, log: dict[str, Any]) -> str:
    fields = shape.fields_of(log.values())
    return shape.fields_of_any(log) if fields is None else fields


_values = st.one_of(st.text(max_size=9), st.none(), st.integers(), st.binary(max_size=9), st.just("x" * 130))


@given(st.lists(st.tuples(_values, _values), max_size=12), st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_a_run_encodes_to_the_records_of_its_logs_in_order(values: list[tuple[Any, Any]], now: int, lot: int) -> None:
    """Joined they are what LogEncoder makes of each log at that second, whatever lots they are joined in."""
    shape, run = Shape(("a", "é"), Room()), Run(Heads(now))
    logs = [dict(zip(shape.names, pair, strict=True)) for pair in values]
    run.fields += [_fields(shape, log) for log in logs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LOT", lot)
        encoded = run.encode()
    assert b"".join(encoded) == b"".join(LogEncoder().encode(log, now) for log in logs)
    assert len(encoded) == -(-len(logs) // lot)


@pytest.mark.parametrize("logs", [1, module._LOT - 1, module._LOT, module._LOT + 1, 3 * module._LOT])
def test_a_run_of_any_length_loses_nothing(logs: int) -> None:
    """Also where its last lot is full, or has one log; and to encode it twice is to get the same."""
    shape, run = Shape(("n",), Room()), Run(Heads(NOW))
    run.fields += [_fields(shape, {"n": number}) for number in range(logs)]
    expected = b"".join(LogEncoder().encode({"n": number}, NOW) for number in range(logs))
    assert b"".join(run.encode()) == b"".join(run.encode()) == expected


def test_a_run_without_logs_is_no_bytes() -> None:
    """Neither is what joins no records."""
    assert b"".join(Run(Heads(NOW)).encode()) == join_records(Heads(NOW), []) == b""


@pytest.mark.parametrize("now", [0, 127, 128, NOW, 2**32 - 1])
@pytest.mark.parametrize("length", [0, 1, 100, 105, 110, 119, 120, 121, 16_360, 16_370, 16_380, 3_000_000])
def test_what_precedes_the_fields_is_right_for_any_second_and_length(now: int, length: int) -> None:
    """Also where the length of the record takes one byte more."""
    (shape, log) = Shape(("m",), Room()), {"m": "x" * length}
    fields = _fields(shape, log)
    assert (Heads(now)[len(fields)] + fields).encode("latin-1") == LogEncoder().encode(log, now)


def test_the_heads_of_a_second_are_bounded() -> None:
    """Logs of ever new lengths are right, but not remembered without end."""
    heads = Heads(NOW)
    before = [heads[size] for size in range(10_000)]
    assert len(heads) == module._MAX_HEADS_KEPT
    assert [heads[size] for size in range(10_000)] == before


def test_values_that_are_not_text_itself_are_left_to_the_slower_function() -> None:
    """``fields_of`` answers None for them, rather than something wrong."""
    shape = Shape(("a", "b"), Room())

    class Text(str):
        """Not ``str`` itself."""

    for value in (None, 1, b"x", Text("x"), "\ud800", ["x"]):
        assert shape.fields_of({"a": "x", "b": value}.values()) is None
        assert shape.fields_of({"b": value, "a": "x"}.values()) is None
    assert shape.fields_of({"a": "x", "b": "é"}.values()) == shape.fields_of_any({"a": "x", "b": "é"})


def test_a_log_with_other_names_than_its_shape_is_an_error_and_not_a_wrong_record() -> None:
    """One that loses or gains a field while it is encoded."""
    shape = Shape(("a", "b"), Room())
    for log in ({"a": "x"}, {"a": "x", "b": "y", "c": "z"}, {}):
        with pytest.raises(ValueError, match="values to unpack"):
            shape.fields_of(log.values())
        with pytest.raises(ValueError, match=r"values to unpack"):
            shape.fields_of_any(log)
        with pytest.raises(ValueError, match=r"shorter|longer"):
            shape.fields_of_any({**log, "a": None})
