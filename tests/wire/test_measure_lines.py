"""What must be known of each block: the compiled twin counts what the pure one does."""

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
    """For any bytes, and more line ends in a row than fit into eight bits."""
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
    """Those with a carriage return apart; a byte beyond ASCII is seen."""
    assert measure_lines(block) == figures
