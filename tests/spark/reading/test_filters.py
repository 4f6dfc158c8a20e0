"""Conditions of WHERE limit the rows that go to Spark, and the range of time that is read."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyspark.sql.datasource as sources
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import types as t

from producer import ConfigError
from producer.server import LogHubServer
from producer.server.faults import ApiRequest
from producer.spark.reading import batch_reader
from producer.spark.reading.filters import conditions_of, kept, times_of
from producer.spark.reading.plan import ReadPlan
from tests.server.client import log_group

from ..conftest import LOGSTORE, PROJECT, Put, options_of
from .conftest import rows_of

pytestmark = pytest.mark.skipif(not hasattr(sources, "Filter"), reason="filters came with PySpark 4.1")

SCHEMA = t.StructType(
    [
        t.StructField("__time__", t.TimestampType()),
        t.StructField("s", t.StringType()),
        t.StructField("i", t.IntegerType()),
        t.StructField("b", t.BooleanType()),
        t.StructField("d", t.DateType()),
        t.StructField("f", t.DoubleType()),
        t.StructField("x", t.StringType("UNICODE_CI")),
        t.StructField("m", t.StructType([t.StructField("n", t.IntegerType())])),
    ]
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
BATCH = pa.RecordBatch.from_pylist(
    [
        {"__time__": NOON, "s": "ab", "i": 1, "b": True, "d": date(2026, 1, 1), "f": 1.0, "x": "a", "m": {"n": 1}},
        {"__time__": NOON + timedelta(1), "s": "", "i": -5, "b": False, "d": date(2026, 2, 1), "f": 2.0, "x": "A"},
        {"__time__": NOON - timedelta(1), "s": "Größe", "i": 7, "b": None, "d": None},
        {"__time__": NOON, "s": None, "i": None, "b": True, "d": date(2026, 1, 1)},
    ],
    pa.schema(
        [
            ("__time__", pa.timestamp("us", "UTC")),
            ("s", pa.string()),
            ("i", pa.int32()),
            ("b", pa.bool_()),
            ("d", pa.date32()),
            ("f", pa.float64()),
            ("x", pa.string()),
            ("m", pa.struct([("n", pa.int32())])),
        ]
    ),
)
ALL = [0, 1, 2, 3]


def rows_for(*filters: Any) -> list[int]:
    """Return the numbers of the rows that are kept."""
    numbered = BATCH.append_column("row", pa.array(ALL))
    return list(kept(numbered, conditions_of(filters, SCHEMA)).column("row").to_pylist())


@pytest.mark.parametrize(
    ("made", "rows"),
    [
        (lambda: sources.EqualTo(("s",), "ab"), [0]),
        (lambda: sources.Not(sources.EqualTo(("s",), "ab")), [1, 2]),
        (lambda: sources.EqualNullSafe(("s",), "ab"), [0]),
        (lambda: sources.Not(sources.EqualNullSafe(("s",), "ab")), [1, 2, 3]),
        (lambda: sources.IsNull(("s",)), [3]),
        (lambda: sources.IsNotNull(("s",)), [0, 1, 2]),
        (lambda: sources.Not(sources.IsNull(("s",))), [0, 1, 2]),
        (lambda: sources.IsNull(("m",)), [1, 2, 3]),
        (lambda: sources.In(("s",), ("ab", "Größe")), [0, 2]),
        (lambda: sources.Not(sources.In(("s",), ("ab", "Größe"))), [1]),
        (lambda: sources.In(("i",), (7, 1)), [0, 2]),
        (lambda: sources.StringStartsWith(("s",), "a"), [0]),
        (lambda: sources.StringEndsWith(("s",), "ße"), [2]),
        (lambda: sources.StringContains(("s",), "r"), [2]),
        (lambda: sources.Not(sources.StringContains(("s",), "")), []),
        (lambda: sources.GreaterThan(("s",), "G"), [0, 2]),
        (lambda: sources.LessThan(("s",), "ab"), [1, 2]),
        (lambda: sources.GreaterThan(("i",), 1), [2]),
        (lambda: sources.GreaterThanOrEqual(("i",), 1), [0, 2]),
        (lambda: sources.LessThan(("i",), 1), [1]),
        (lambda: sources.LessThanOrEqual(("i",), 1), [0, 1]),
        (lambda: sources.EqualTo(("b",), True), [0, 3]),
        (lambda: sources.EqualTo(("d",), date(2026, 1, 1)), [0, 3]),
        (lambda: sources.GreaterThan(("__time__",), NOON), [1]),
    ],
)
def test_rows_are_kept_as_sql_does(made: Any, rows: list[int]) -> None:
    """Rows are kept as in SQL; a comparison with null is never true, nor is its opposite."""
    assert rows_for(made()) == rows


@pytest.mark.parametrize(
    "made",
    [
        lambda: sources.EqualTo(("f",), 1.0),
        lambda: sources.EqualTo(("x",), "a"),
        lambda: sources.EqualTo(("m", "n"), 1),
        lambda: sources.EqualTo(("nobody",), 1),
        lambda: sources.EqualTo(("i",), 1 << 40),
        lambda: sources.EqualTo(("i",), True),
        lambda: sources.EqualTo(("s",), None),
        lambda: sources.EqualNullSafe(("s",), None),
        lambda: sources.In(("s",), ("ab", None)),
        lambda: sources.Not(sources.Not(sources.EqualTo(("s",), "ab"))),
        lambda: sources.GreaterThan(("__time__",), NOON.replace(tzinfo=None)),
        lambda: sources.EqualTo(("d",), NOON),
        lambda: sources.StringStartsWith(("i",), "1"),
    ],
)
def test_conditions_that_spark_may_define_differently_drop_no_row(made: Any) -> None:
    """Conditions that Spark may define differently drop no row."""
    assert rows_for(made()) == ALL


def test_the_bounds_of_time_are_whole_seconds_the_narrowest_of_all_conditions_rounded_outwards() -> None:
    """The bounds of time are whole seconds, the narrowest of all conditions, rounded outwards; negated ones bound
    nothing.
    """
    half = NOON + timedelta(milliseconds=500)
    filters = [
        sources.GreaterThan(("__time__",), NOON - timedelta(1)),
        sources.GreaterThanOrEqual(("__time__",), half),
        sources.LessThan(("__time__",), half),
        sources.Not(sources.LessThan(("__time__",), NOON - timedelta(2))),
    ]
    noon = int(NOON.timestamp())
    assert times_of(conditions_of(filters, SCHEMA)) == (noon, noon + 1)
    assert times_of(conditions_of(filters[3:], SCHEMA)) == (None, None)


@pytest.fixture
def three_times(server: LogHubServer, put: Put) -> int:
    """Put messages with times ten minutes ago, now and in ten minutes, and return the time now."""
    now = int(datetime.now(UTC).timestamp())
    for offset in (-600, 0, 600):
        server.clock_offset = offset
        put(raw=log_group(f"message {offset}", time=now + offset))
    return now


def read_messages(server: LogHubServer, filters: list[Any], **options: str) -> list[str]:
    schema = t.StructType([t.StructField("__time__", t.TimestampType()), t.StructField("message", t.StringType())])
    reader = batch_reader(options_of(server, pushFilters="true", **options), schema)
    assert reader.pushFilters(filters) == filters
    reader = CloudPickleSerializer().loads(CloudPickleSerializer().dumps(reader))
    return [row["message"] for row in rows_of(reader, reader.partitions())]


@pytest.mark.parametrize(
    ("low", "high", "found", "pulls"),
    [
        (None, None, ["message -600", "message 0", "message 600"], 1),
        (-30, 30, ["message 0"], 1),
        (-30, None, ["message 0", "message 600"], 1),
        (None, -300, ["message -600"], 1),
        (100, 110, [], 0),
        (-5_000_000_000, 5_000_000_000, ["message -600", "message 0", "message 600"], 1),
    ],
)
def test_with_receivedwithin_only_loggroups_received_near_the_wanted_times_are_pulled(
    server: LogHubServer, three_times: int, low: int | None, high: int | None, found: list[str], pulls: int
) -> None:
    """With receivedWithin only LogGroups received near the wanted times are pulled."""
    at = lambda seconds: datetime.fromtimestamp(three_times, UTC) + timedelta(seconds=seconds)  # noqa: E731
    filters: list[Any] = [] if low is None else [sources.GreaterThanOrEqual(("__time__",), at(low))]
    filters += [] if high is None else [sources.LessThanOrEqual(("__time__",), at(high))]
    seen: list[ApiRequest] = []
    server.faults.add(seen.append, operation="PullLogs")
    assert read_messages(server, filters, receivedWithin="60") == found
    assert len(seen) == pulls


def test_loggroups_received_late_or_early_within_the_margin_are_read_up_to_the_second(
    server: LogHubServer, put: Put
) -> None:
    """LogGroups received late or early within the margin are read, up to the second, and never beyond the offsets."""
    now = int(datetime.now(UTC).timestamp())
    for offset, message in ((-500, "too early"), (0, "in time"), (600, "too late")):
        server.clock_offset = offset
        put(raw=log_group(message, time=now))
    early, middle, late = (int(group.received) for group in server.log_groups(PROJECT, LOGSTORE))
    at = datetime.fromtimestamp(now, UTC)
    wanted = [sources.EqualTo(("__time__",), at)]
    for margin, found in (
        (late - now, ["too early", "in time", "too late"]),
        (late - now - 1, ["too early", "in time"]),
        (now - early - 1, ["in time"]),
    ):
        assert read_messages(server, wanted, receivedWithin=str(margin)) == found, margin
    assert read_messages(server, wanted, receivedWithin="3600", startingOffsets=str(middle)) == ["in time", "too late"]
    assert read_messages(server, wanted, receivedWithin="3600", endingOffsets=str(middle)) == ["too early"]


def test_without_received_within_time_bounds_no_pull(server: LogHubServer, three_times: int) -> None:
    """Without receivedWithin all LogGroups are pulled, and rows that do not match are dropped."""
    late = datetime.fromtimestamp(three_times + 300, UTC)
    assert read_messages(server, [sources.GreaterThan(("__time__",), late)]) == ["message 600"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"receivedWithin": "60"}, "needs pushFilters=true"),
        ({"pushFilters": "perhaps"}, "must be true or false"),
        ({"pushFilters": "true", "receivedWithin": "0"}, "must be a whole number"),
    ],
)
def test_wrong_options_are_errors(server: LogHubServer, options: dict[str, str], said: str) -> None:
    """Invalid options are refused when the query is planned."""
    with pytest.raises(ConfigError, match=said):
        batch_reader(options_of(server, **options), SCHEMA)


def test_an_older_spark_cannot_push_filters(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an older PySpark pushFilters is refused with the version that it needs."""
    assert "pushFilters" not in vars(type(batch_reader(options_of(server), SCHEMA)))
    monkeypatch.delattr(sources.DataSourceReader, "pushFilters")
    with pytest.raises(ConfigError, match=r"needs PySpark 4\.1"):
        batch_reader(options_of(server, pushFilters="true"), SCHEMA)


def test_a_stream_takes_no_filters(server: LogHubServer) -> None:
    """A stream refuses pushFilters, since Spark passes it no filters."""
    from producer.spark.reading.stream import LogHubStreamReader

    with pytest.raises(ConfigError, match="pushFilters"):
        LogHubStreamReader(ReadPlan.of(options_of(server, pushFilters="true"), SCHEMA))
