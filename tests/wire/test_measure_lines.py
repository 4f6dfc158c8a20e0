"""Native and pure implementations count the same properties of a block."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.wire.measure_lines import LineFigures, measure_lines
from tests.wire.twins import native

_BLOCKS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\x7f", b"\xc3\xa9", b"x" * 100, b"\n" * 300])).map(
    b"".join
)


@native
@given(block=_BLOCKS)
@example(block=b"\n" * 1000)
def test_both_twins_count_the_same(block: bytes) -> None:
    """Both count the same for any bytes, and for more line ends in a row than fit into eight bits."""
    from producer.wire import _measure_lines

    assert _measure_lines.measure_lines(block) == measure_lines(block)


@pytest.mark.parametrize(
    ("block", "figures"),
    [
        (b"", LineFigures(0, 0, True)),
        (b"a\r\n\rb\n\xff", LineFigures(2, 1, False)),
    ],
)
def test_ends_are_counted(block: bytes, figures: LineFigures) -> None:
    """Line ends with a carriage return are counted separately, and a byte beyond ASCII is detected."""
    assert measure_lines(block) == figures
