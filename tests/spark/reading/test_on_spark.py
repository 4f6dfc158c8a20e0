"""Reading by Spark itself: the few tests of what only Spark shows."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceReader

from producer import LogItem, Producer, ProducerConfig
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.spark.datasource import FORMAT, register

from ...agent.sinks.test_objects_parquet import of_json, parquet_sink
from ..conftest import LOGSTORE, PROJECT, Put, options_of, project_of

NOON = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp())


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the session with the data source, in UTC."""
    register(spark)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


def send(server: LogHubServer, numbers: range) -> None:
    """Send one record for each number, in batches of ten."""
    config = ProducerConfig(linger_ms=100, batch_count_threshold=10, log_tags={"env": "test"})
    with Producer(project_of(server), config=config) as producer:
        for number in numbers:
            fields = {
                "n": number,
                "even": number % 2 == 0,
                "detail": f'{{"square": {number**2}}}',
                "odd?": "x" * number,
            }
            item = LogItem(fields, time=NOON + number, time_ns=123_456_789)
            producer.send(PROJECT, LOGSTORE, item, topic=f"topic {number % 2}", source="10.0.0.1")


def read(session: SparkSession, server: LogHubServer, schema: str | None = None, **options: str) -> DataFrame:
    reader = session.read.format(FORMAT).options(**options_of(server, **options))
    return (reader.schema(schema) if schema else reader).load()


def test_spark_reads_every_fixed_column_of_sent_records_across_pulls_and_shards(
    session: SparkSession, server: LogHubServer
) -> None:
    """Spark reads every fixed column of sent records, across pulls and shards."""
    send(server, range(100))
    rows = read(session, server, pullCount="3").collect()
    assert sorted((int(row["contents"]["n"]), row["__topic__"]) for row in rows) == [
        (number, f"topic {number % 2}") for number in range(100)
    ]
    row = next(row for row in rows if row["contents"]["n"] == "7").asDict()
    cursor, pack_id = row.pop("__cursor__"), row.pop("__pack_id__")
    assert cursor.startswith(("0/", "1/"))
    assert pack_id
    assert row.pop("__time__").replace(tzinfo=UTC) == datetime.fromtimestamp(NOON + 7, UTC).replace(microsecond=123_456)
    assert row == {
        "__topic__": "topic 1",
        "__source__": "10.0.0.1",
        "__tags__": {"env": "test"},
        "contents": {"n": "7", "even": "false", "detail": '{"square": 49}', "odd?": "x" * 7},
    }


def test_a_query_is_answered_by_loghub(session: SparkSession, server: LogHubServer) -> None:
    """LogHub answers a query: only matching logs reach Spark, with all columns except the cursor."""
    send(server, range(100))
    rows = read(session, server, query="even: true and n: 42", startingTime=str(NOON)).collect()
    assert [(row["contents"]["n"], row["__topic__"], row["__tags__"]) for row in rows] == [
        ("42", "topic 0", {"env": "test"})
    ]
    assert "__cursor__" not in rows[0]
    assert {request.operation for request in server.requests} & {"GetLogs", "PullLogs"} == {"GetLogs"}


def test_columns_of_the_user_have_types(session: SparkSession, server: LogHubServer) -> None:
    """Columns of the user have types, with casts, JSON, missing fields and aggregation."""
    send(server, range(100))
    schema = "even boolean, n bigint, detail struct<square: decimal(10,1)>, none date, __topic__ string"
    frame = read(session, server, schema)
    assert frame.schema.simpleString() == (
        "struct<even:boolean,n:bigint,detail:struct<square:decimal(10,1)>,none:date,__topic__:string>"
    )
    found = frame.groupBy("even", "__topic__", "none").agg(f.sum("n"), f.max("detail.square")).orderBy("even").collect()
    assert [tuple(row) for row in found] == [
        (False, "topic 1", None, sum(range(1, 100, 2)), 99**2),
        (True, "topic 0", None, sum(range(0, 100, 2)), 98**2),
    ]


def test_a_bad_value_fails_the_query_in_failfast(session: SparkSession, server: LogHubServer, put: Put) -> None:
    """A bad value in FAILFAST fails the query with the value and its place."""
    put("no number")
    with pytest.raises(
        PySparkException, match=r"shard 0, cursor MA==, log 0 .* message is 'no number'.*not of type int"
    ):
        read(session, server, "message int", mode="FAILFAST").collect()
    assert read(session, server, "message int").collect()[0]["message"] is None


def test_a_wrong_logstore_fails_the_planning_with_operation_status_code_and_option(session: SparkSession) -> None:
    """A wrong logstore fails the planning with operation, status, code and option."""
    with (
        LogHubServer(auto_create=False) as server,
        pytest.raises(PySparkException, match=r"status 404, (ProjectNotExist|LogStoreNotExist).*check the option"),
    ):
        read(session, server, logstore="missing").count()


def test_a_server_that_fails_in_the_middle_is_retried(session: SparkSession, server: LogHubServer) -> None:
    """With a fifth of all requests failing, every row arrives once."""
    send(server, range(200))
    server.faults.add(answer(503, "ServerBusy"), probability=0.2, seed=1)
    frame = read(session, server, "n int", pullCount="1")
    assert sorted(row["n"] for row in frame.collect()) == list(range(200))


def run(session: SparkSession, server: LogHubServer, folder: Path, **options: str) -> list[dict[str, Any]]:
    """Run a streaming query until nothing is new, and return the progress of its micro-batches with rows."""
    given = options_of(server, startingOffsets="earliest", **options)
    query = (
        session.readStream.format(FORMAT)
        .options(**given)
        .schema("n bigint, __cursor__ string")
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def test_a_stream_continues_at_its_checkpoint_in_micro_batches_of_limited_rows_with_each_row_once(
    session: SparkSession, server: LogHubServer, tmp_path: Path
) -> None:
    """A stream continues at its checkpoint, in micro-batches of limited rows, with each row once."""
    send(server, range(50))
    (first,) = run(session, server, tmp_path)
    send(server, range(50, 100))
    later = run(session, server, tmp_path, maxRowsPerTrigger="20")
    assert first["numInputRows"] == 50
    assert len(later) >= 3
    assert all(progress["numInputRows"] <= 20 for progress in later)
    assert later[0]["sources"][0]["latestOffset"] == later[-1]["sources"][0]["endOffset"]
    rows = session.read.parquet(str(tmp_path / "out"))
    assert sorted(row["n"] for row in rows.collect()) == list(range(100))


@pytest.mark.skipif(not hasattr(DataSourceReader, "pushFilters"), reason="filters came with PySpark 4.1")
def test_a_query_with_where_has_the_same_rows_with_and_without_pushfilters(
    session: SparkSession, server: LogHubServer, put: Put
) -> None:
    """A query with WHERE has the same rows with and without pushFilters, and Spark says how to allow the option."""
    put("10", "-3", "none", "7")
    put("12", shard="1")
    conditions = [
        "message > 6",
        "not (message > 6)",
        "not (message <=> 7)",
        "message > 6 and __time__ > '2020-01-01' and __cursor__ like '1/%'",
    ]

    def rows(where: str, **options: str) -> list[Any]:
        frame = session.read.format(FORMAT).options(**options_of(server, **options))
        schema = "message int, __time__ timestamp, __cursor__ string"
        return sorted(frame.schema(schema).load().where(where).collect(), key=str)

    expected = [rows(where) for where in conditions]
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        rows(conditions[0], pushFilters="true")
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert [rows(where, pushFilters="true", receivedWithin="86400") for where in conditions] == expected
        assert [rows(where) for where in conditions[:1]] == expected[:1]
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert [len(found) for found in expected] == [3, 1, 4, 1]


def test_parquet_files_of_an_agent_are_one_table_whatever_columns_came_later(
    session: SparkSession, tmp_path: Path
) -> None:
    """With mergeSchema, Spark reads an agent's files of all columns with widen = false, but no column of two types."""
    made = parquet_sink(tmp_path, widen=False)
    made.write([of_json(1, {"n": 1, "Id": 1}, timestamp=str(NOON * 1000))])
    made.write([of_json(2, {"n": 2.5, "ID": 2, "a b,c": True})])
    frame = session.read.option("mergeSchema", "true").parquet(str(tmp_path / "lake")).orderBy("Id")
    first, second = (row.asDict() for row in frame.collect())
    assert frame.where("timestamp = timestamp '2026-01-31 12:00:00'").count() == 1
    assert (first["n"], first["a_b_c"], first["_rest"]) == (1, None, None)
    assert (second["n"], second["a_b_c"], second["_rest"]) == (None, True, '{"n":2.5}')
    for number, value in enumerate([1, "a"]):
        parquet_sink(tmp_path, "wider/").write([of_json(number, {"n": value})])
    with pytest.raises(Exception, match="CANNOT_MERGE_SCHEMAS"):
        session.read.option("mergeSchema", "true").parquet(str(tmp_path / "lake/wider"))
