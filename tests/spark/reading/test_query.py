"""Reading by a query, called like Spark calls it, without Spark."""

from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from producer import ConfigError, LogItem, Producer, ProducerConfig
from producer.reading.errors import LogHubReadError
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.spark.datasource import LogHubSource
from producer.spark.errors import MalformedValueError
from producer.spark.reading import batch_reader, default_schema, query, stream_reader
from producer.spark.reading.query import QueryRange

from ..conftest import LOGSTORE, PROJECT, options_of, project_of
from .conftest import rows_of

#: The time of the first log.
FIRST = 1_790_000_000
SCHEMA = StructType([StructField("__time__", TimestampType()), StructField("n", LongType())])


@pytest.fixture
def filled(server: LogHubServer) -> LogHubServer:
    """Fill a server with a hundred logs, ten a second, of which each third one is an error."""
    with Producer(project_of(server), config=ProducerConfig(log_tags={"host": "a"})) as producer:
        for n in range(100):
            level = "ERROR" if n % 3 == 0 else "INFO"
            log = LogItem({"n": n, "level": level}, time=FIRST + n // 10, time_ns=n)
            producer.send(PROJECT, LOGSTORE, log, topic=f"topic {n % 2}", source="10.0.0.1")
    return server


def asked(server: LogHubServer, **options: str) -> dict[str, str]:
    """Return the options of a read by query, from the first log on."""
    return options_of(server, **{"query": "*", "startingTime": str(FIRST), "endingTime": str(FIRST + 60), **options})


def numbers(server: LogHubServer, schema: StructType = SCHEMA, **options: str) -> list[int]:
    reader = batch_reader(asked(server, **options), schema)
    return sorted(row["n"] for row in rows_of(reader, reader.partitions()))


def test_logs_that_match_are_read_and_no_others(filled: LogHubServer) -> None:
    """Only logs that match are read, by their own time, with an exclusive end."""
    assert numbers(filled, query="level: ERROR") == list(range(0, 100, 3))
    assert numbers(filled, query="level: ERROR and n: 9") == [9]
    assert numbers(filled, startingTime=str(FIRST + 2), endingTime=str(FIRST + 4)) == list(range(20, 40))
    since = datetime.fromtimestamp(FIRST + 9, UTC).isoformat()
    assert numbers(filled, startingTime=since) == list(range(90, 100))
    assert numbers(filled, query="level: NONE") == []


def test_columns_mean_the_same_as_without_a_query(filled: LogHubServer) -> None:
    """Every column except the cursor means the same as without a query."""
    schema = default_schema(without="__cursor__")

    def rows(options: dict[str, str]) -> list[dict[str, Any]]:
        reader = batch_reader(options, schema)
        return sorted(rows_of(reader, reader.partitions()), key=lambda row: int(dict(row["contents"])["n"]))

    found = rows(asked(filled))
    assert found == rows(options_of(filled))
    assert (len(found), found[7]["__topic__"], dict(found[7]["__tags__"])) == (100, "topic 1", {"host": "a"})


def test_the_schema_of_a_query_has_no_cursor(server: LogHubServer) -> None:
    """The schema of a query has no cursor, by default and from the user."""
    assert "__cursor__" not in LogHubSource(asked(server)).schema().names
    assert "__cursor__" in LogHubSource(options_of(server)).schema().names
    with pytest.raises(ConfigError, match="must not have the column __cursor__"):
        batch_reader(asked(server), default_schema())


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit partitions and pages to about fifteen logs."""
    monkeypatch.setattr(query, "PARTITION_LOGS", 15)
    monkeypatch.setattr(query, "PAGE", 7)


def test_partitions_have_about_as_many_logs(filled: LogHubServer, small_parts: None) -> None:
    """Partitions have about the same number of logs, and cover the whole range once."""
    reader = batch_reader(asked(filled), SCHEMA)
    pickled = CloudPickleSerializer()
    partitions: list[QueryRange] = pickled.loads(pickled.dumps(reader.partitions()))
    found = [sorted(row["n"] for row in rows_of(reader, [part])) for part in partitions]
    assert all(15 <= len(part) < 30 for part in found[:-1])
    assert list(chain.from_iterable(found)) == list(range(100))
    asked_for = sum(request.operation == "GetLogs" for request in filled.requests)
    assert asked_for >= 100 / 7


def test_conditions_on_the_time_narrow_the_range(filled: LogHubServer) -> None:
    """Conditions on the time narrow the range with ``pushFilters``, and drop other rows."""
    sources = pytest.importorskip("pyspark.sql.datasource")
    if not hasattr(sources, "Filter"):
        pytest.skip("filters came with PySpark 4.1")
    reader: Any = batch_reader(asked(filled, pushFilters="true"), SCHEMA)
    since = datetime.fromtimestamp(FIRST + 8, UTC)
    offered = [sources.GreaterThanOrEqual(("__time__",), since), sources.LessThan(("n",), 83)]
    assert reader.pushFilters(offered) == offered
    partitions = reader.partitions()
    assert [row["n"] for row in rows_of(reader, partitions)] == [80, 81, 82]
    assert partitions[0].begin == FIRST + 8


def test_last_second_that_a_condition_allows_is_searched(filled: LogHubServer) -> None:
    """The last second that a condition allows is searched."""
    sources = pytest.importorskip("pyspark.sql.datasource")
    if not hasattr(sources, "Filter"):
        pytest.skip("filters came with PySpark 4.1")
    reader: Any = batch_reader(asked(filled, pushFilters="true"), SCHEMA)
    reader.pushFilters([sources.LessThanOrEqual(("__time__",), datetime.fromtimestamp(FIRST + 8, UTC))])
    assert sorted(row["n"] for row in rows_of(reader, reader.partitions())) == list(range(90))


def test_fewer_logs_than_were_counted_are_an_error(filled: LogHubServer) -> None:
    """Fewer logs than were counted fail the read."""
    reader = batch_reader(asked(filled), SCHEMA)
    partitions = reader.partitions()
    empty = b'{"meta": {"progress": "Complete"}, "data": []}'
    filled.faults.add(answer(200, "", body=empty), operation="GetLogs")
    with pytest.raises(LogHubReadError, match=r"returned 0 logs of the \d+ that GetHistograms counted"):
        rows_of(reader, partitions)


def test_an_invalid_value_is_null_or_with_failfast_an_error_with_its_place(filled: LogHubServer) -> None:
    """An invalid value is null, or with FAILFAST an error with its place."""
    schema = StructType([StructField("level", LongType()), StructField("n", LongType())])
    assert len(numbers(filled, schema)) == 100
    with pytest.raises(MalformedValueError, match=r"GetLogs from \d+ to \d+, offset 0, log 0 of that LogG"):
        numbers(filled, schema, mode="FAILFAST")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingTime": ""}, r"startingTime.*Unix seconds"),
        ({"startingTime": "yesterday"}, r"startingTime.*Unix seconds"),
        ({"endingTime": str(FIRST)}, "must be before endingTime"),
        ({"query": "* | SELECT count(*)"}, "must be a search without SQL"),
        ({"shards": "0"}, "does not work with query, which ignores shards"),
        ({"startingOffsets": "earliest"}, "does not work with query, which ignores shards"),
    ],
)
def test_options_that_make_no_sense_with_a_query_are_refused(
    server: LogHubServer, options: dict[str, str], said: str
) -> None:
    """Options that do not work with a query are refused before any request."""
    with pytest.raises(ConfigError, match=said):
        batch_reader(asked(server, **options), SCHEMA)
    assert not server.requests


def test_a_query_needs_its_first_time_and_is_for_batches(server: LogHubServer) -> None:
    """A query needs startingTime, and both times need a query."""
    schema = StructType([StructField("n", StringType())])
    with pytest.raises(ConfigError, match=r"startingTime.*must be given with query"):
        batch_reader(options_of(server, query="*"), schema)
    with pytest.raises(ConfigError, match=r"endingTime.*needs query"):
        batch_reader(options_of(server, endingTime="5"), schema)
    pytest.importorskip("pyspark.sql.streaming.datasource")
    with pytest.raises(ConfigError, match=r"query.*is for a batch"):
        stream_reader(asked(server), schema)


def test_a_quoted_bar_is_part_of_the_search_and_all_pages_are_read(filled: LogHubServer) -> None:
    """A quoted bar is part of the search, and all pages are read."""
    assert numbers(filled, query='level: "a|b"') == []
    with Producer(project_of(filled)) as producer:
        logs = [LogItem({"n": n, "way": "a|b"}, time=FIRST + 20) for n in range(250)]
        producer.stream(PROJECT, LOGSTORE).send_many(logs)
    assert numbers(filled, query='way: "a|b"') == list(range(250))
