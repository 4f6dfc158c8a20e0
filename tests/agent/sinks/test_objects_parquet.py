"""objects as Parquet: typed columns that are added and widened, and values that fit none."""

import io
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import dataset, parquet

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Sink, SinkError
from producer.agent.sinks.objects import ObjectsSink, known_columns, tables
from producer.agent.sinks.objects.columns import ColumnRules, Columns
from producer.agent.testing import SinkConformance
from producer.wire.json_object import json_text

from .test_objects import TIME, files, sink

Row = dict[str, Any]
_JSON = ColumnRules(body_is_json=True)


def parquet_sink(folder: Path, place: str = "", **options: Any) -> ObjectsSink:
    given = {"format": "parquet", "body": "json", "compression": None, **options}
    return sink(folder / "state", f"{folder}/lake/{place}", **given)


def of_json(number: int, *rows: Row, **headers: str) -> EventBatch:
    """Return a batch with a number whose bodies are JSON objects."""
    return EventBatch.of_bodies([json.dumps(row).encode() for row in rows], headers).numbered(number, "origin")


def written(folder: Path) -> list[list[Row]]:
    """Return the rows of each file, in the order of their batches, without empty columns."""
    found = sorted(files(folder / "lake").items(), key=lambda file: file[0].rpartition("-")[2])
    return [list(map(_filled, parquet.read_table(io.BytesIO(data)).to_pylist())) for _, data in found]


def encoded(rows: list[Row], rules: ColumnRules = _JSON) -> tuple[pa.Table, Counter[str]]:
    columns = Columns(rules, {})
    data, counts = tables.parquet_file([of_json(1, *rows)], columns, rules, "zstd")
    return parquet.read_table(io.BytesIO(data)), counts


def _filled(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


class TestParquet(SinkConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._objects = tmp_path / "lake"

    def make(self) -> Sink:
        return sink(self.context.state, self._objects, format="parquet")

    def delivered(self) -> list[bytes]:
        found = files(self._objects).values() if self._objects.is_dir() else ()
        return [row["body"].encode() for data in found for row in parquet.read_table(io.BytesIO(data)).to_pylist()]


def test_files_with_more_and_wider_columns_are_read_together(tmp_path: Path) -> None:
    """pyarrow, with the newest file's schema, and DuckDB read files together after columns were added and widened."""
    made = parquet_sink(tmp_path)
    made.write([of_json(1, {"n": 1, "ok": True, "deep": {"x": [1]}}, host="h")])
    made.write([of_json(2, {"n": 2.5, "ok": "maybe", "who": "ann"}, host="h", timestamp=str(TIME))])
    made.write([of_json(3, {"n": 3})])
    paths = [str(tmp_path / "lake" / name) for name in sorted(files(tmp_path / "lake"))]
    types = [dict(zip(found.names, map(str, found.types), strict=True)) for found in map(parquet.read_schema, paths)]
    assert types[0] == {"body": "string", "n": "int64", "ok": "bool", "deep": "string", "host": "string"}
    added = {"n": "double", "ok": "string", "who": "string", "timestamp": "timestamp[us, tz=UTC]"}
    assert types[1] == types[0] | added
    assert types[2] == types[1]
    expected = [(1.0, "true", '{"x":[1]}', None), (2.5, "maybe", None, "ann"), (3.0, None, None, None)]
    together = dataset.dataset(paths, schema=parquet.read_schema(paths[-1])).to_table().to_pylist()
    assert [(row["n"], row["ok"], row["deep"], row["who"]) for row in together] == expected
    found = duckdb.sql(f"SELECT n, ok, deep, who FROM read_parquet({paths}, union_by_name=true) ORDER BY n").fetchall()
    assert found == expected


def test_types_stay_after_a_restart_and_on_another_day_for_each_topic(tmp_path: Path) -> None:
    """A table's columns are remembered across restarts and days; each topic is a table of its own."""
    made = parquet_sink(tmp_path, "%{topic}/%d")
    made.write([of_json(1, {"n": 1.5, "user": "ann"}, topic="a", timestamp=str(TIME))])
    made = parquet_sink(tmp_path, "%{topic}/%d")
    made.write([of_json(2, {"n": 2}, topic="a", timestamp=str(TIME + 86_400_000)), of_json(3, {"n": 3}, topic="b")])
    types = {name[0]: parquet.read_schema(tmp_path / "lake" / name) for name in sorted(files(tmp_path / "lake"))}
    assert types["a"].names == ["body", "n", "user", "topic", "timestamp"]
    assert (str(types["a"].field("n").type), str(types["b"].field("n").type)) == ("double", "int64")
    assert types["b"].names == ["body", "n", "topic"]


def test_a_retry_after_a_crash_writes_the_same_rows_under_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are noted before their file, and a retry by another process writes the same rows under the same name."""
    rows = [{"n": 1}, {"n": 2.5, "more": "x"}]
    first = parquet_sink(tmp_path)
    put, names = first._store.put, list[str]()

    def lose(path: str, data: bytes) -> None:
        assert "more" in (tmp_path / "state/k/columns.json").read_text()
        names.append(path)
        put(path, data[: len(data) // 2])
        raise OSError("died")

    monkeypatch.setattr(first._store, "put", lose)
    with pytest.raises(SinkError, match="died"):
        first.write([of_json(1, *rows)])
    parquet_sink(tmp_path).write([of_json(1, *rows)])
    assert [str(tmp_path / "lake" / name) for name in files(tmp_path / "lake")] == names
    assert written(tmp_path) == [rows]


def test_values_are_converted_to_declared_types_or_go_to_the_rest(tmp_path: Path) -> None:
    """Values of declared columns are converted; one that does not fit is in _rest by name, and counted."""
    schema = {
        "status": "int64",
        "paid": "bool",
        "at": "timestamp",
        "day": "date",
        "tags": "list<string>",
        "x": "double",
    }
    made = parquet_sink(tmp_path, schema=schema)
    good = {"status": "200", "paid": "true", "at": "2023-11-14T22:13:20Z", "day": "2024-02-29", "x": 1, "n": None}
    bad = {"status": 2.5, "paid": 1, "at": "noon", "day": "2024-02-30", "tags": {"a": 1}, "x": 2**53 + 1}
    made.write([of_json(1, {**good, "tags": ["a", 1]}), of_json(2, bad, x="1")])
    first, second = written(tmp_path)[0]
    assert (first["status"], first["paid"], first["tags"], first["x"]) == (200, True, ["a", "1"], 1.0)
    assert (f"{first['at']:%F %T %Z}", f"{first['day']:%F}") == ("2023-11-14 22:13:20 UTC", "2024-02-29")
    assert "_rest" not in first
    assert json.loads(second.pop("_rest")) == {**bad, "%{x}": "1"}
    assert second == {}
    assert made._counters.get("ValueUnfitCount") == 7


def test_without_widen_the_types_of_columns_never_change(tmp_path: Path) -> None:
    """With widen = false, values of another type go to _rest."""
    made = parquet_sink(tmp_path, widen=False)
    made.write([of_json(1, {"n": 1, "s": "a"})])
    made.write([of_json(2, {"n": 2.5, "s": 7, "new": True}, {"n": 3})])
    assert written(tmp_path) == [
        [{"n": 1, "s": "a"}],
        [{"_rest": '{"n":2.5}', "s": "7", "new": True}, {"n": 3}],
    ]


def test_names_beyond_max_columns_go_to_the_rest(tmp_path: Path) -> None:
    """Fields and headers beyond max_columns are in _rest; declared columns always exist."""
    made = parquet_sink(tmp_path, max_columns=3, schema={"B": "int64"})
    made.write([of_json(1, {"a": 1, "c": 2, "b": 3}, host="h", timestamp=str(TIME))])
    (row,) = written(tmp_path)[0]
    assert row.pop("timestamp").year == 2023
    assert row == {"a": 1, "B": 3, "_rest": '{"c":2,"host":"h"}'}


def test_names_are_safe_and_differ_in_more_than_case(tmp_path: Path) -> None:
    """Names have letters, digits and underscores; those that readers cannot distinguish share a column."""
    made = parquet_sink(tmp_path)
    made.write([of_json(1, {"http.status": 1, "Id": 2, "": 3, "größe": 4, "x" * 300: 5}), of_json(2, {"ID": 6})])
    made.write([of_json(3, {"HTTP_Status": 7, "http.status": 8, "_REST": 9, "\ud800": 10})])
    (first, second), (third,) = written(tmp_path)
    (long,) = {name for name in first if name.startswith("xxx")}
    assert len(long) <= 128
    assert first == {"http_status": 1, "Id": 2, "_": 10 - 7, "größe": 4, long: 5}
    assert second == {"Id": 6}
    assert third == {"http_status": 7, "_": 10, "_rest": '{"http.status":8,"_REST":9}'}


def test_bodies_that_are_not_json_objects_are_kept_as_text_and_counted(tmp_path: Path) -> None:
    """Bodies that are not JSON objects, or hold numbers beyond all types, are unchanged in the column body."""
    bodies = [b"[1]", b"{", b'{"n":1e999}', b'{"n":NaN}', b"{" + b'"a":{' * 100_000]
    made = parquet_sink(tmp_path)
    made.write([EventBatch.of_bodies(bodies).numbered(1, "origin"), of_json(2, {}, {"body": 5})])
    assert [row.get("body") for row in written(tmp_path)[0]] == [*map(bytes.decode, bodies), None, "5"]
    assert made._counters.get("EventUnparsedCount") == 5
    assert made._counters.get("ValueUnfitCount") == 0


def test_headers_are_columns_by_default_with_the_time_as_a_time(tmp_path: Path) -> None:
    """Text bodies have a column, each header is one, and the header timestamp is a time."""
    made = parquet_sink(tmp_path, body="text", schema={"status": "int64"})
    event = {"status": "200", "user-agent": "x", "timestamp": str(TIME), "body": "a header"}
    made.write([EventBatch.of_events([(event, b"one"), ({"timestamp": "soon"}, b"two")]).numbered(1, "origin")])
    first, second = written(tmp_path)[0]
    assert first.pop("timestamp").timestamp() * 1000 == TIME
    assert first == {"body": "one", "status": 200, "user_agent": "x", "_rest": '{"%{body}":"a header"}'}
    assert second == {"body": "two", "_rest": '{"timestamp":"soon"}'}


def test_a_file_of_many_rows_has_the_columns_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups are of limited bytes; all of them have the columns and types that the file's last rows need."""
    monkeypatch.setattr(tables, "_GROUP_BYTES", 100_000)
    rows: list[Row] = [{"n": n} for n in range(20_000)]
    data, _ = tables.parquet_file([of_json(1, *rows, {"n": "last", "new": 1})], Columns(_JSON, {}), _JSON, "zstd")
    file = parquet.ParquetFile(io.BytesIO(data))
    assert file.num_row_groups >= 3
    found = file.read().to_pylist()
    assert [row["n"] for row in found] == [*map(str, range(20_000)), "last"]
    assert found[-1]["new"] == 1


def test_an_unreadable_note_of_columns_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An unreadable note of columns is logged, and types follow the values anew."""
    (tmp_path / "state/k").mkdir(parents=True)
    for kept in ("{", "[]", '{"a": 1}'):
        caplog.clear()
        (tmp_path / "state/k/columns.json").write_text(kept)
        parquet_sink(tmp_path).write([of_json(1, {"n": 1})])
        assert "types of columns may differ" in caplog.text
    assert written(tmp_path) == [[{"n": 1}]]


def test_columns_of_tables_long_unused_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remembered columns of all tables are limited; the table that is unused for longest is forgotten first."""
    monkeypatch.setattr(known_columns, "_MOST", 4)
    known = known_columns.KnownColumns(tmp_path)
    for table in ("a", "b"):
        known.note(table, {"n": "int64", "m": "string"})
    assert known.of("a")
    known.note("c", {"n": "int64"})
    assert [bool(known_columns.KnownColumns(tmp_path).of(table)) for table in "abc"] == [True, False, True]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
_NAMES = st.sampled_from(["a", "A", "b.c", "b_c", "d", "body", "_rest", "n", "t"]) | st.text(max_size=2)


@given(
    rows=st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), max_size=5),
    widens=st.booleans(),
    most=st.integers(1, 9),
    declared=st.sampled_from([{}, {"a": "int64", "n": "list<int64>"}, {"d": "string", "t": "timestamp"}]),
)
def test_no_value_is_lost(rows: list[Row], widens: bool, most: int, declared: Mapping[str, str]) -> None:
    """Each value of each event is in its column or, if it does not fit, in _rest under its own name."""
    rules = ColumnRules(body_is_json=True, widens=widens, most=most, declared=declared)
    table, counts = encoded(rows, rules)
    unfit = 0
    for row, found in zip(rows, table.to_pylist(), strict=True):
        rest = json.loads(found.get("_rest") or "{}")
        unfit += len(rest)
        given = {name: value for name, value in row.items() if value is not None}
        assert rest == {name: given[name] for name in rest}
        kept = Counter(_text(value) for name, value in found.items() if name != "_rest" and value is not None)
        assert kept.total() == len(given) - len(rest)
        if not declared:
            assert kept == Counter(_text(value) for name, value in given.items() if name not in rest)
    assert counts["ValueUnfitCount"] == unfit


def _text(value: Any) -> str:
    """Return a value in the form that its text, its ``double`` and itself have in common."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return repr(float(value)) if abs(value) < 1e300 else str(value)
    return json_text(value)
