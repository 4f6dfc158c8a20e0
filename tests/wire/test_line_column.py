"""The lines of a block as a column: both twins divide it as the lines themselves say."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.ship.lines.line import Block
from producer.wire.line_column import LineColumn, line_column
from tests.wire.twins import TWINS

_BLOCKS = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\0", b"\xc3\xa9", b"\xff", b"x" * 100]), min_size=1
).map(b"".join)


@pytest.mark.parametrize("twin", TWINS)
@given(data=_BLOCKS)
@example(data=b"\r\n")
@example(data=b"a\r")
@example(data=b"\n\r\n\n")
def test_the_lines_of_the_column_are_those_of_the_block(twin: str, data: bytes) -> None:
    """Where each begins, and its bytes without the line end; a last line without one keeps its carriage return."""
    block = Block(0, data)
    starts, offsets, text = _divided(twin, data, block.count)
    lines = list(block.lines())
    assert list(array("q", starts)) == [line.offset for line in lines]
    assert [text[begin:end] for begin, end in pairwise(array("i", offsets))] == [line.data for line in lines]


def _divided(twin: str, data: bytes, rows: int) -> LineColumn:
    if twin == "pure":
        return line_column(data, rows)
    from producer.wire import _line_column

    return _line_column.line_column(data, rows)
