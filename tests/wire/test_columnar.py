"""Columns are encoded with the same bytes as ``send`` for their rows."""

from __future__ import annotations

import gc
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.model.errors import InvalidArgumentError
from producer.model.records import LogItem
from producer.wire.columnar import ColumnarEncoder, EncodedRows
from producer.wire.columnar.rows import join_rows, measure_rows
from producer.wire.text import MAX_TIME

from .arrow_values import NOW, TICKS, arrays, batches, map_entries, maps, rows_of, sent
from .twins import columnar_twin, native

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

pytestmark = pytest.mark.usefixtures(columnar_twin.__name__)


def records(encoded: EncodedRows) -> list[bytes]:
    ends, body = encoded.ends.tolist(), encoded.body  # Some implementations join the body at each call.
    assert len(body) == (ends[-1] if ends else 0)
    return [bytes(body[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def encode(batch: pa.RecordBatch) -> list[bytes]:
    return records(ColumnarEncoder(batch.schema).encode(batch, NOW))


@SLOW
@given(batches())
def test_for_any_schema_values_nulls_and_slices_the_records_equal_those_of_send(batch: pa.RecordBatch) -> None:
    """For any schema, values, nulls and slices, the records equal those of ``send``."""
    assert encode(batch) == sent([LogItem(row) for row in rows_of(batch)])
    assert ColumnarEncoder(batch.schema).estimate(batch) >= batch.num_rows  # Each row has a minimum size in any type.


@settings(SLOW, max_examples=30)
@given(st.data(), st.integers(0, 5))
def test_contents_are_fields_behind_the_others(data: st.DataObject, rows: int) -> None:
    """The entries of a map with a value are fields, in order; equal keys are equal fields."""
    contents, other = data.draw(maps(rows + 2, 0)).slice(1, rows), data.draw(arrays(rows, 0))
    batch = pa.RecordBatch.from_arrays([contents, other], names=["contents", "other"])
    pairs = [[(key, value) for key, value in entries or ()] for entries in map_entries(contents)]
    expected = [LogItem([*row[1:], *entries]) for row, entries in zip(rows_of(batch), pairs, strict=True)]
    encoder = ColumnarEncoder(batch.schema, contents_column="contents")
    assert records(encoder.encode(batch, NOW)) == sent(expected)


@settings(SLOW, max_examples=40)
@given(st.data(), st.sampled_from(["s", "ms", "us", "ns"]))
def test_the_time_column_gives_time_and_time_ns(data: st.DataObject, unit: str) -> None:
    """Timestamps are encoded to the nanosecond; null is the time of sending."""
    per = TICKS[unit]
    ticks = data.draw(st.lists(st.none() | st.integers(0, MAX_TIME * per + per - 1), max_size=5))
    column = pa.array(ticks, pa.int64()).view(pa.timestamp(unit, "Europe/Berlin"))
    batch = pa.record_batch({"at": column, "n": pa.array(range(len(ticks)))})
    encoded = ColumnarEncoder(batch.schema, time_column="at").encode(batch, NOW)
    moments = [(None, None) if tick is None else (tick // per, tick % per * (10**9 // per)) for tick in ticks]
    assert records(encoded) == sent([LogItem({"n": n}, *moment) for n, moment in enumerate(moments)])


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.int64(), pa.uint64()], ids=str)
def test_integers_in_the_time_column_are_seconds(kind: pa.DataType) -> None:
    """Integers of any width, with and without nulls, are seconds."""
    for seconds in ([0, 1, 100], [5, None, 127], *([[MAX_TIME, NOW, None]] if kind.bit_width > 8 else [])):
        batch = pa.record_batch({"at": pa.array(seconds, kind)})
        encoded = ColumnarEncoder(batch.schema, time_column="at").encode(batch, NOW)
        assert records(encoded) == sent([LogItem({}, one) for one in seconds])


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([1, -1], pa.int64()), "-1"),
        (pa.array([1, 2**32], pa.uint64()), "4294967296"),
        (pa.array([0, -1], pa.int64()).view(pa.timestamp("ns", "UTC")), "1969-12-31 23:59:59.999999999"),
        (pa.array([0, 2**32], pa.int64()).view(pa.timestamp("s", "UTC")), "2106-02-07"),
    ],
    ids=["before", "after", "a nanosecond before", "a second after"],
)
def test_a_time_out_of_range_is_refused_with_its_row(column: pa.Array, shown: str) -> None:
    """A time out of range is refused with its row, column and value."""
    batch = pa.record_batch({"at": column})
    with pytest.raises(InvalidArgumentError, match=rf"^row 11: time_column 'at': .*{shown}"):
        ColumnarEncoder(batch.schema, time_column="at").encode(batch, NOW, range(10, 12))


FAR = pa.array([0, 253_402_300_800], pa.int64())


@pytest.mark.parametrize(
    "column",
    [
        FAR.view(pa.timestamp("s")),
        FAR.view(pa.timestamp("s", "UTC")),
        FAR.view(pa.timestamp("s", "Asia/Kathmandu")),
        pa.array([0, 253_402_300_799], pa.int64()).view(pa.timestamp("s", "Asia/Kathmandu")),
        pa.array([0, 2_932_897], pa.int32()).view(pa.date32()),
        FAR.view(pa.timestamp("s")).dictionary_encode(),
        pa.ListArray.from_arrays([0, 1, 2], FAR.view(pa.timestamp("s"))),
    ],
    ids=lambda column: str(column.type),
)
def test_a_value_that_python_cannot_express_is_refused_with_its_row(column: pa.Array) -> None:
    """A value that Python cannot express, such as a year after 9999, is refused with its row."""
    batch = pa.record_batch({"at": column})
    with pytest.raises(InvalidArgumentError, match=r"^row 1: field 'at': "):
        ColumnarEncoder(batch.schema).encode(batch, NOW)


def test_a_wrong_value_of_a_dictionary_matters_only_if_a_row_has_it() -> None:
    """An invalid value of a dictionary, which may be that of a longer table, matters only if a row has it."""
    kind = pa.timestamp("s")
    indices = pa.array([0, 0, 0])
    batch = pa.record_batch({"at": pa.DictionaryArray.from_arrays(indices, FAR.view(kind))})
    plain = pa.record_batch({"at": pa.array([0, 0, 0], pa.int64()).view(kind)})
    assert encode(batch) == encode(plain)


def test_a_json_that_cannot_be_made_is_refused_with_its_row() -> None:
    """A map with a list as key cannot become JSON, and is refused with its row."""
    batch = pa.record_batch({"m": pa.array([[], [([1], 1)]], pa.map_(pa.list_(pa.int8()), pa.int8()))})
    with pytest.raises(InvalidArgumentError, match=r"^row 1: field 'm': cannot become JSON: "):
        encode(batch)


def test_extension_types_go_as_their_values_or_their_storage() -> None:
    """A UUID has its own text, as in ``send``; most extension types are sent as their storage."""
    number = uuid.uuid4()
    columns = {
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([number.bytes, None], pa.binary(16))),
        "json": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a": 1}', None])),
        "bool": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
        "other": pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "t", "v"), pa.array([7, None])),
    }
    fields = {"uuid": number, "json": '{"a": 1}', "bool": True, "other": 7}
    assert encode(pa.record_batch(columns)) == sent([LogItem(fields), LogItem({})])


def test_two_columns_of_one_name_are_two_fields() -> None:
    """Two columns of the same name are two fields."""
    batch = pa.RecordBatch.from_arrays([pa.array(["x"]), pa.array([1])], names=["k", "k"])
    assert encode(batch) == sent([LogItem([("k", "x"), ("k", 1)])])


@pytest.mark.parametrize("length", [255, 256, 4095, 4096, 16_383, 20_000, 3_000_000])
def test_long_values_have_long_prefixes(length: int) -> None:
    """Values longer than the cached prefixes are encoded, too."""
    values = ["x" * length, None, "é", "y" * (length - 1)]
    batch = pa.record_batch({"k": values, "n" * 500: values[::-1]})
    assert encode(batch) == sent([LogItem(row) for row in rows_of(batch)])


def test_more_than_two_gigabytes_of_text_have_large_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than two gigabytes of text use 64-bit offsets (the limit is lowered for the test)."""
    rows = 2000
    columns = {
        "text": ["x" * 100] * rows,
        "number": list(range(rows)),
        "float": [n / 7 for n in range(rows)],
        "fixed": pa.array([b"abcd"] * rows, pa.binary(4)),
        "at": pa.array(range(rows), pa.int64()).view(pa.timestamp("us", "Asia/Kathmandu")),
        "list": [[n] for n in range(rows)],
        "chosen": pa.array(["p", "q"] * (rows // 2)).dictionary_encode(),
        "map": pa.array([[("k", n)] for n in range(rows)], pa.map_(pa.string(), pa.int64())),
    }
    batch = pa.record_batch(columns)
    encoder = ColumnarEncoder(batch.schema, time_column="at", contents_column="map")
    ordinary = encoder.encode(batch, NOW)
    for module in ("values", "gather", "texts", "time_fields"):
        monkeypatch.setattr(f"producer.wire.columnar.{module}.MAX_OFFSET", 1000)
    large = ColumnarEncoder(batch.schema, time_column="at", contents_column="map").encode(batch, NOW)
    assert large.ends.dtype == "int64"
    assert records(large) == records(ordinary)


def test_rows_without_columns_are_logs_without_fields() -> None:
    """Rows without columns are logs without fields, as for ``send({})``."""
    assert encode(pa.record_batch({"k": [1, 2]}).select([])) == sent([LogItem({}), LogItem({})])
    assert encode(pa.record_batch({"k": pa.nulls(2)})) == sent([LogItem({}), LogItem({})])


def test_a_batch_of_another_schema_is_refused() -> None:
    """A batch of another schema is refused."""
    with pytest.raises(InvalidArgumentError, match="the schema of a batch differs"):
        ColumnarEncoder(pa.schema({"a": pa.string()})).encode(pa.record_batch({"a": [1]}), NOW)


def test_the_estimate_is_near_for_ordinary_logs() -> None:
    """The estimate for ordinary logs is not below the size, and close to it, also for a slice."""
    rows = 1000
    columns = {
        "request": [f"GET /items/{n}?page=1 HTTP/1.1" for n in range(rows)],
        "status": pa.array(["200", "404"] * (rows // 2)).dictionary_encode(),
        "user_agent": ["Mozilla/5.0 (X11; Linux x86_64)"] * rows,
        "contents": pa.array([[("k", "some text")] * 3] * rows, pa.map_(pa.string(), pa.string())),
    }
    batch = pa.record_batch(columns)
    encoder = ColumnarEncoder(batch.schema, contents_column="contents")
    for part in (batch, batch.slice(100, 50)):
        size = len(encoder.encode(part, NOW).body)
        assert size <= encoder.estimate(part) <= 1.4 * size


@native
@settings(SLOW, max_examples=60)
@given(st.data(), batches())
def test_the_twins_agree_whatever_the_order(data: st.DataObject, batch: pa.RecordBatch) -> None:
    """Native and pure implementations yield the same bytes for all rows, some rows, and other orders."""
    encoder = ColumnarEncoder(batch.schema)
    rows = range(batch.num_rows)
    given = encoder._times(batch, NOW, rows), encoder._fields(batch, rows), batch.num_rows
    joined, measured = join_rows(*given), measure_rows(*given)
    some = data.draw(st.lists(st.sampled_from(rows), max_size=5)) if batch.num_rows else []
    pairs: list[tuple[EncodedRows, EncodedRows]] = [(joined, measured)]
    if some:
        pairs.append((joined.in_order(np.array(some)), measured.in_order(np.array(some))))
    for pure, compiled in pairs:
        assert records(pure) == records(compiled)
        start = data.draw(st.integers(0, len(pure.ends)))
        stop = data.draw(st.integers(start, len(pure.ends)))
        assert pure.piece(start, stop) == compiled.piece(start, stop) == b"".join(records(pure)[start:stop])


@pytest.mark.parametrize("position", [2, -1])
@pytest.mark.parametrize("rows", [3, 1])
def test_a_position_outside_of_a_dictionary_is_refused(position: int, rows: int) -> None:
    """An index outside of a dictionary is refused, and nothing is read there."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, position]), pa.array(["a", "b"]), safe=False)
    with pytest.raises(InvalidArgumentError, match=f"^row {rows - 1}: field 'k': the index {position} is not in its"):
        encode(pa.record_batch({"k": column.slice(3 - rows)}))


@native
def test_the_compiled_twin_reads_and_writes_no_further_than_memory_reaches() -> None:
    """Native code reads and writes only within its memory, whatever sizes it is given."""
    from producer.wire._columns import Columns

    def columns() -> Columns:
        return Columns(2, np.array([NOW]), None)

    with pytest.raises(ValueError, match="an array of 16 bytes must have 24"):
        Columns(3, np.array([1, 2]), None)
    with pytest.raises(ValueError, match="an array of 8 bytes must have 16"):
        columns().add_field(b"k", pa.array(["a", "b"]), np.array([0]))
    with pytest.raises(ValueError, match="a column of 1 texts must have 2"):
        columns().add_field(b"k", pa.array(["a"]), None)
    with pytest.raises(TypeError, match="an array of format b'l' holds no texts"):
        columns().add_field(b"k", pa.array([1, 2]), None)
    with pytest.raises(ValueError, match="fewer entries"):
        columns().add_entries(np.array([0, 1, 2]), None, pa.array(["a"]), pa.array(["b"]))
    with pytest.raises(ValueError, match="8 bytes for 2 rows"):
        columns().measure(np.empty(1, np.int64))
    made = columns()
    with pytest.raises(ValueError, match="no records from 0 to 2"):  # They were not measured.
        made.write(memoryview(bytearray(100)), None, 0, 2)
    made.measure(ends := np.empty(2, np.int64))
    for wrong in (int(ends[1]) - 1, int(ends[1]) + 1, 0):
        with pytest.raises(ValueError, match="are not the size of the records from 0 to 2"):
            made.write(memoryview(bytearray(wrong)), None, 0, 2)
    with pytest.raises(ValueError, match="no records from 1 to 3"):
        made.write(memoryview(bytearray(100)), None, 1, 3)
    with pytest.raises(ValueError, match="are not the size"):
        made.write(memoryview(bytearray(int(ends[0]))), np.array([5]), 0, 1)


@native
def test_native_code_keeps_the_arrays_alive_that_it_reads() -> None:
    """Native code keeps the arrays alive that it reads."""

    def measured() -> EncodedRows:
        batch = pa.record_batch({"k": pa.array([f"text {n}" for n in range(1000)]).slice(10, 900)})
        encoder = ColumnarEncoder(batch.schema)
        rows = range(batch.num_rows)
        return measure_rows(encoder._times(batch, NOW, rows), encoder._fields(batch, rows), batch.num_rows)

    kept = [measured() for _ in range(5)]
    gc.collect()
    expected = sent([LogItem({"k": f"text {n}"}) for n in range(10, 910)])
    assert all(records(encoded) == expected for encoded in kept)
