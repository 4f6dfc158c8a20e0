"""LogGroups become record batches."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from producer.spark.errors import MalformedValueError
from producer.spark.reading import arrow
from producer.spark.reading.arrow import Batches
from producer.spark.reading.schema import arrow_schema, default_schema
from producer.wire.read_columns import ReadGroups, read_groups
from producer.wire.schema import LogGroupList


def groups_of(*groups: list[dict[str, Any]], tags: dict[str, str] | None = None, time_ns: int = 0) -> ReadGroups:
    """Return LogGroups whose logs have these fields."""
    made = LogGroupList()
    for number, logs in enumerate(groups):
        group = made.LogGroups.add(Topic=f"topic {number}", Source="10.0.0.1")
        for key, value in (tags or {}).items():
            group.LogTags.add(Key=key, Value=value)
        for second, fields in enumerate(logs):
            log = group.Logs.add(Time=1_700_000_000 + second, Time_ns=time_ns)
            for key, value in fields.items():
                log.Contents.add(Key=key, Value=value if isinstance(value, bytes) else str(value).encode())
    return read_groups(made.SerializeToString())


def batches_of(groups: ReadGroups, schema: StructType | None = None, *, failfast: bool = False) -> list[Any]:
    batches = Batches(schema or default_schema(), "3", failfast=failfast)
    cursors = [f"cursor {number}" for number in range(len(groups.sizes))]
    return [*batches.add(groups, cursors, 1000), *batches.rest()]


def columns(*fields: tuple[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


def test_every_fixed_column_is_filled() -> None:
    """Every fixed column is filled; times are cut to microseconds, and tags lack the pack id."""
    groups = groups_of([{"a": "1", "b": "2"}], [{}], tags={"env": "prod", "__pack_id__": "ABC-1"}, time_ns=123_456_789)
    (batch,) = batches_of(groups)
    time = datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC)
    same = {"__source__": "10.0.0.1", "__tags__": [("env", "prod")], "__pack_id__": "ABC-1"}
    assert batch.to_pylist() == [
        {
            "__time__": time,
            "__topic__": "topic 0",
            "contents": [("a", "1"), ("b", "2")],
            "__cursor__": "3/cursor 0",
            **same,
        },
        {"__time__": time, "__topic__": "topic 1", "contents": [], "__cursor__": "3/cursor 1", **same},
    ]
    assert batch.schema.equals(arrow_schema(default_schema()))


def test_a_missing_topic_or_source_is_empty_text_and_a_missing_pack_id_is_null() -> None:
    """A missing topic or source is empty text, and a missing pack id is null."""
    made = LogGroupList()
    made.LogGroups.add().Logs.add(Time=1)
    (batch,) = batches_of(read_groups(made.SerializeToString()))
    (row,) = batch.to_pylist()
    assert (row["__topic__"], row["__source__"], row["__tags__"], row["__pack_id__"]) == ("", "", [], None)


def test_columns_of_the_user_come_from_fields_by_name() -> None:
    """Columns of the user come from fields by name, with casts, and null for a missing field."""
    schema = columns(("n", IntegerType()), ("__topic__", StringType()), ("raw", BinaryType()), ("x", DoubleType()))
    (batch,) = batches_of(groups_of([{"n": 5, "raw": b"\xff", "x": "+1e3"}, {"x": 2}]), schema)
    assert batch.schema.names == ["n", "__topic__", "raw", "x"]
    assert [list(row.values()) for row in batch.to_pylist()] == [
        [5, "topic 0", b"\xff", 1000.0],
        [None, "topic 0", None, 2.0],
    ]


def test_in_the_mode_permissive_an_invalid_value_is_null_and_changes_nothing_else() -> None:
    """In the mode PERMISSIVE an invalid value is null, and changes nothing else."""
    logs = [{"n": number} for number in range(5)] + [{"n": "many"}, {"n": 2**40}, {"n": 7}]
    (batch,) = batches_of(groups_of(logs), columns(("n", IntegerType())))
    assert batch.column(0).to_pylist() == [0, 1, 2, 3, 4, None, None, 7]


def test_in_the_mode_failfast_an_invalid_value_raises_an_error_with_shard_cursor_place_column_value() -> None:
    """In the mode FAILFAST an invalid value raises an error with shard, cursor, place, column, value and type."""
    groups = groups_of([{"n": 1}], [{"n": 2}, {"n": "x" * 1000}])
    with pytest.raises(MalformedValueError) as raised:
        batches_of(groups, columns(("n", LongType())), failfast=True)
    text = str(raised.value)
    assert text.startswith("shard 3, cursor cursor 1, log 1 of that LogGroup: the field n is 'xxx")
    assert "which is not of type bigint" in text
    assert len(text) < 500


@pytest.mark.parametrize("kind", [StringType(), LongType()])
def test_a_column_that_must_have_values_has_them(kind: Any) -> None:
    """A missing value of a NOT NULL column is an error in either mode."""
    schema = StructType([StructField("n", kind, nullable=False)])
    with pytest.raises(MalformedValueError, match=r"log 1 of that LogGroup: no value for the column n, which is NOT"):
        batches_of(groups_of([{"n": 1}, {}]), schema)


def test_batches_have_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small LogGroups are joined up to the limit, large ones are cut, and all rows come in order."""
    monkeypatch.setattr(arrow, "BATCH_ROWS", 10)
    sizes = [4, 4, 4, 25, 1]
    numbers = iter(range(sum(sizes)))
    groups = groups_of(*([{"n": next(numbers)} for _ in range(size)] for size in sizes))
    batches = batches_of(groups, columns(("n", LongType())))
    assert [batch.num_rows for batch in batches] == [10, 2, 10, 10, 5, 1]
    assert [number for batch in batches for number in batch.column(0).to_pylist()] == list(range(38))


def test_large_logs_do_not_wait_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is made once its LogGroups have the bytes, even with few rows."""
    monkeypatch.setattr(arrow, "BATCH_BYTES", 900)
    batches = Batches(default_schema(), "0", failfast=False)
    assert sum(batch.num_rows for batch in batches.add(groups_of([{"a": 1}], [{"a": 2}]), ["x", "y"], 1000)) == 2
    assert list(batches.rest()) == []
