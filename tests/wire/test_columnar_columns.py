"""Columns with a special role are found, checked, and used."""

from typing import Any

import pyarrow as pa
import pytest

from producer.model.errors import InvalidArgumentError
from producer.wire.columnar import ColumnarEncoder, Names

from .arrow_values import NOW
from .twins import columnar_twin

SCHEMA = pa.schema(
    {
        "at": pa.timestamp("us", "UTC"),
        "naive": pa.timestamp("us"),
        "topic": pa.string(),
        "number": pa.int64(),
        "pairs": pa.map_(pa.int8(), pa.string()),
    }
)
OPTIONS = ["time_column", "topic_column", "source_column", "shard_hash_column", "contents_column"]

pytestmark = pytest.mark.usefixtures(columnar_twin.__name__)


def refusal(schema: pa.Schema, **options: Any) -> str:
    """Return the error for these options."""
    with pytest.raises(InvalidArgumentError) as caught:
        ColumnarEncoder(schema, **options)
    return str(caught.value)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_missing_column_is_refused_with_similar_names_or_all_names(option: str) -> None:
    """A missing column is refused with similar names, or all names."""
    assert refusal(SCHEMA, **{option: "topics"}) == f"{option}: there is no column 'topics'; similar: 'topic'"
    assert refusal(SCHEMA, **{option: "zzz"}).endswith("the columns: 'at', 'naive', 'topic', 'number', 'pairs'")
    assert refusal(SCHEMA, **{option: 1}) == f"{option}: must be None or the name of a column, got 1"


@pytest.mark.parametrize("option", OPTIONS)
def test_a_column_that_is_there_twice_is_refused(option: str) -> None:
    """A column name that occurs twice is refused as ambiguous."""
    twice = pa.schema([("k", pa.string()), ("k", pa.string())])
    assert refusal(twice, **{option: "k"}) == f"{option}: there are 2 columns named 'k'"


@pytest.mark.parametrize(
    ("option", "column", "words"),
    [
        ("time_column", "topic", "column 'topic' is string, but must be a timestamp with a time zone, or an integer"),
        ("time_column", "naive", "a timestamp without a zone is ambiguous: add its zone"),
        ("topic_column", "number", "column 'number' is int64, but must be text: string, large_string, string_view"),
        ("source_column", "at", "is timestamp[us, tz=UTC], but must be text"),
        ("shard_hash_column", "number", "is int64, but must be text"),
        ("contents_column", "topic", "is string, but must be a map with text as its keys"),
        ("contents_column", "pairs", "is map<int8, string>, but must be a map with text as its keys"),
    ],
)
def test_a_column_of_a_wrong_type_is_refused_with_its_type_and_the_allowed_ones(
    option: str, column: str, words: str
) -> None:
    """A column of a wrong type is refused with its type and the allowed ones."""
    assert words in refusal(SCHEMA, **{option: column})
    assert refusal(SCHEMA, **{option: column}).startswith(f"{option}: column {column!r} is ")


@pytest.mark.parametrize(
    "kind",
    [
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.list_(pa.duration("us")),
        pa.struct([("a", pa.int8()), ("b", pa.map_(pa.string(), pa.duration("ns")))]),
        pa.dictionary(pa.int8(), pa.duration("s")),
    ],
    ids=str,
)
def test_lengths_of_time_are_refused_where_the_schema_is_known(kind: pa.DataType) -> None:
    """Durations are refused when the schema is known, as ``send`` has no text for them."""
    assert refusal(pa.schema({"lasted": kind})).startswith(f"column 'lasted' is {kind}, which has no text: cast it")
    contents = pa.schema({"c": pa.map_(pa.string(), kind)})
    assert "whose values have no text" in refusal(contents, contents_column="c")


def picked(batch: pa.RecordBatch, **options: str) -> list[tuple[Names, list[Any], list[int]]]:
    """Return for each stream its names, its numbers, and their positions."""
    streams = ColumnarEncoder(batch.schema, **options).streams(batch)
    return [(names, part.column("n").to_pylist(), list(rows)) for names, part, rows in streams]


def test_columns_pick_the_stream_row_by_row() -> None:
    """Rows with equal values go to one stream, in order; streams are in the order of first rows; null is None."""
    batch = pa.record_batch(
        {
            "t": ["a", "b", None, "a", "b", "a"],
            "s": pa.array(["x", "x", "x", "y", "x", "x"]).dictionary_encode(),
            "h": pa.array(["F", "F", None, "F", "F", "F"], pa.large_string()),
            "n": [0, 1, 2, 3, 4, 5],
        }
    )
    found = picked(batch, topic_column="t", source_column="s", shard_hash_column="h")
    assert found == [
        (Names("a", "x", "F"), [0, 5], [0, 5]),
        (Names("b", "x", "F"), [1, 4], [1, 4]),
        (Names(None, "x", None), [2], [2]),
        (Names("a", "y", "F"), [3], [3]),
    ]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_text_of_any_kind_picks(kind: pa.DataType) -> None:
    """Text columns of any type, as from Spark, pandas or Polars, select the stream, also in slices."""
    values = pa.array(["p", "q", None, "q"])
    column = values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values.cast(kind)
    batch = pa.record_batch({"t": column, "n": [0, 1, 2, 3]}).slice(1)
    assert picked(batch, topic_column="t") == [(Names("q"), [1, 3], [0, 2]), (Names(), [2], [1])]


@pytest.mark.parametrize("values", [["a", "a", "a"], [None, None, None], ["a", "b", "b"]])
def test_rows_that_stand_in_the_order_of_their_streams_are_not_copied(values: list[str | None]) -> None:
    """Rows already grouped by stream are not copied."""
    batch = pa.record_batch({"t": pa.array(values, pa.string()), "n": [0, 1, 2]})
    encoder = ColumnarEncoder(batch.schema, topic_column="t")
    assert encoder.group(batch).rows == range(3)
    assert all(
        part.column("n").buffers()[1].address == batch.column("n").buffers()[1].address
        for _, part, _ in encoder.streams(batch)
    )


def test_without_selecting_columns_there_is_one_stream_none_for_an_empty_batch() -> None:
    """Without selecting columns there is one stream; none for an empty batch."""
    batch = pa.record_batch({"n": [0, 1]})
    assert picked(batch) == [(Names(), [0, 1], [0, 1])]
    assert picked(batch.slice(2)) == []


def test_columns_that_select_the_stream_or_hold_the_time_do_not_become_fields() -> None:
    """Columns that select the stream or hold the time do not become fields."""
    batch = pa.record_batch({"t": ["a"], "at": [NOW], "n": [7]})
    encoded = ColumnarEncoder(batch.schema, topic_column="t", time_column="at").encode(batch, 0)
    assert bytes(encoded.body) == b"\n\x0e\x08\x80\xe2\xcf\xaa\x06\x12\x06\n\x01n\x12\x017"
