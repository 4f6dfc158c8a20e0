"""A TextColumn has the values that were packed."""

from hypothesis import example, given
from hypothesis import strategies as st

from producer.wire.text_column import TextColumn

_VALUES = st.lists(st.one_of(st.none(), st.text(max_size=5), st.text("ab", max_size=5)), max_size=20)


@given(values=_VALUES)
@example(values=["\ud800", None, ""])
@example(values=[None, None])
@example(values=[""])
def test_a_column_is_the_list_that_was_packed(values: list[str | None]) -> None:
    """Length, values, equality and emptiness are those of the list, also with lone surrogates."""
    column = TextColumn.of(values)
    assert TextColumn.of(column) is column
    assert column == values
    assert (len(column), column[:2], repr(column)) == (len(values), values[:2], repr(values))
    assert column.is_empty == all(value is None for value in values)
    assert [column.count(value) for value in (None, "a")] == [values.count(value) for value in (None, "a")]
    encoded = [None if value is None else value.encode(errors="surrogatepass") for value in values]
    assert column.values() == encoded
    assert TextColumn.of_bytes(encoded) == column
    assert column.is_encodable == all(value is None or _encodes(value) for value in values)


def _encodes(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)
