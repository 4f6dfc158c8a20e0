"""Lines as a column, and columns as Arrow buffers, natively and purely."""

import importlib
from array import array
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.ship.lines.line import Block
from producer.wire.text_column import TextColumn
from tests.wire.twins import TWINS

_BLOCKS = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\0", b"\xc3\xa9", b"\xff", b"x" * 100]), min_size=1
).map(b"".join)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@pytest.fixture(scope="module", params=TWINS)
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"producer.wire.{'_' if request.param == 'native' else ''}arrow_text")


@given(data=_BLOCKS)
@example(data=b"\r\n")
@example(data=b"a\r")
@example(data=b"\n\r\n\n")
def test_the_column_has_the_start_and_the_bytes_of_each_line(twin: ModuleType, data: bytes) -> None:
    """The column has the start and the bytes of each line; a last line without an end keeps its carriage return."""
    block = Block(0, data)
    starts, column = twin.line_column(data, block.count)
    lines = list(block.lines())
    assert list(array("q", starts)) == [line.offset for line in lines]
    assert column.values() == [line.data for line in lines]


@given(
    values=st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)), max_size=20)
)
@example(values=[None] * 9)
@example(values=["é"] * 8 + [None])
def test_arrow_reads_the_values_of_a_column(twin: ModuleType, values: list[str | None]) -> None:
    """A string array of the buffers has the values, without a bitmap if each row has one."""
    column = TextColumn.of(values)
    validity, offsets = twin.arrow_buffers(column)
    assert (validity is None) == (None not in values)
    bits = None if validity is None else pa.py_buffer(validity)
    array = pa.StringArray.from_buffers(len(column), pa.py_buffer(offsets), pa.py_buffer(column.data), bits)
    array.validate(full=True)
    assert array.to_pylist() == values
