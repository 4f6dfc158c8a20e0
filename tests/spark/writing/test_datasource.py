"""``format("loghub")`` in a real Spark needs no registration, is checked before the job, and delivers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import Row
from pyspark.sql import functions as sql

from producer.server import LogHubServer
from producer.server.faults import answer, cut, drop_answer
from producer.spark import metrics_accumulator, read_metrics, write_partition
from producer.spark.writing.metrics import WriteMetrics
from tests.spark.writing.kit import LOGSTORE, PROJECT, numbers, target, twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 3000
#: The limit of a query on a busy machine, seconds.
PATIENCE = 240


@pytest.fixture
def options(server: LogHubServer, tmp_path: Path) -> dict[str, str]:
    """Return the options that name the server, with a file for metrics."""
    return {**target(server), "checkTarget": "true", "metricsPath": str(tmp_path / "metrics.jsonl")}


def frame(spark: SparkSession, count: int = COUNT) -> DataFrame:
    """Return rows of two partitions with a number and a few other types."""
    return spark.range(0, count, 1, 2).select(
        sql.col("id").alias("n"),
        sql.concat(sql.lit("topic-"), sql.col("id") % 3).alias("t"),
        sql.timestamp_seconds(1_700_000_000 + sql.col("id")).alias("at"),
        (sql.col("id") / 4).alias("quarter"),
        sql.when(sql.col("id") % 2 == 0, sql.lit("even")).alias("sometimes"),
        sql.array(sql.col("id"), sql.lit(None)).alias("list"),
    )


def save(data: DataFrame, options: dict[str, str], **more: str) -> None:
    data.write.format("loghub").options(**options, **more).mode("append").save()


def test_dataframe_arrives_and_reads_back_equal(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    """A DataFrame reads back equal: fields, topics and times; the metrics are the sum of all tasks."""
    save(frame(spark), options, topicColumn="t", timeColumn="at")
    places = {name: options[name] for name in ("endpoint", "project", "logstore", "accessKeyId", "accessKeySecret")}
    back = spark.read.format("loghub").options(**places).load()
    found = {int(row.contents["n"]): row for row in back.collect()}
    assert sorted(found) == list(range(COUNT))
    row = found[6]
    assert row.contents == {"n": "6", "quarter": "1.5", "sometimes": "even", "list": "[6,null]"}
    assert (row["__topic__"], row["__time__"].timestamp()) == ("topic-0", 1_700_000_006)
    assert "sometimes" not in found[7].contents
    [metrics] = read_metrics(options["metricsPath"])
    assert (metrics.rows, metrics.tasks, metrics.retries) == (COUNT, 2, 0)


def test_sql_writes_and_reads(spark: SparkSession, options: dict[str, str]) -> None:
    """SQL writes and reads a view; a table takes its options in INSERT or SELECT."""
    given = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW sink (n BIGINT, word STRING) USING loghub OPTIONS ({given})")
    spark.sql("INSERT INTO sink SELECT id, 'from sql' FROM range(10)")
    try:
        spark.sql(f"CREATE TABLE loghub_table (n BIGINT, word STRING) USING loghub OPTIONS ({given})")
        with_options = given.replace("` '", "` = '")
        spark.sql(f"INSERT INTO loghub_table WITH ({with_options}) SELECT id + 10, 'again' FROM range(10)")
        with pytest.raises(AnalysisException, match="INSERT INTO t WITH"):
            spark.sql("INSERT INTO loghub_table SELECT id, 'lost' FROM range(10)")
        with pytest.raises(AnalysisException, match="endpoint: is required"):
            spark.sql("SELECT n FROM loghub_table").collect()
        both = [f"SELECT sum(n) FROM {name}" for name in ("sink", f"loghub_table WITH ({with_options})")]
        assert [spark.sql(query).first() for query in both] == [(190,), (190,)]
    finally:
        spark.sql("DROP TABLE IF EXISTS loghub_table")
        spark.sql("DROP VIEW sink")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"topic_column": "t"}, "did you mean topicColumn"),
        ({"topicColumn": "tt"}, "topicColumn: must be a column of the DataFrame; did you mean t"),
        ({"timeColumn": "t"}, "timeColumn: must be a column of a timestamp"),
        ({"accessKeySecret": "wrong"}, "accessKeySecret: .*SignatureNotMatch"),
        ({"endpoint": "http://127.0.0.1:9"}, "endpoint: .*127.0.0.1:9"),
        ({"onFailure": "never"}, "onFailure: must be one of fail, deadletter, drop"),
    ],
)
def test_bad_option_is_an_error_before_any_task(
    spark: SparkSession, options: dict[str, str], server: LogHubServer, more: dict[str, str], words: str
) -> None:
    """A bad option fails the planning in the first line of Spark's error, before any task."""
    with pytest.raises(AnalysisException) as caught:
        save(frame(spark), {**options, **more})
    first, *others = str(caught.value).splitlines()
    assert re.search(words, first)
    assert "Traceback" not in " ".join(others)
    assert all(request.operation != "PutLogs" for request in server.requests)


def test_overwriting_is_refused(spark: SparkSession, options: dict[str, str]) -> None:
    """Overwriting is refused."""
    with pytest.raises(AnalysisException, match=r"mode\('overwrite'\): .*use mode\('append'\)"):
        frame(spark).write.format("loghub").options(**options).mode("overwrite").save()


def test_refused_write_fails_the_job_with_the_reason(
    spark: SparkSession, options: dict[str, str], server: LogHubServer
) -> None:
    """A refused write fails the job with the rows, the reason and the request id, and without the secret."""
    server.faults.add(answer(404, "LogStoreNotExist"), operation="PutLogs")
    with pytest.raises(PythonException) as caught:
        save(frame(spark, 10), options)
    text = str(caught.value)
    _, said, *_ = text.splitlines()  # after Spark's own line
    assert said.startswith("producer.spark.errors.DeliveryFailedError: ")
    assert "of partition" in said
    assert "LogStoreNotExist" in text
    assert "request" in text
    assert options["accessKeySecret"] not in text


def test_faults_of_the_server_never_leave_a_job_short(
    spark: SparkSession, options: dict[str, str], server: LogHubServer
) -> None:
    """With errors, quotas, resets and lost answers a job delivers every row; with exactlyOnce, once."""
    server.faults.add(answer(500, "InternalServerError"), probability=0.1, seed=1, operation="PutLogs")
    server.faults.add(answer(403, "WriteQuotaExceed"), probability=0.1, seed=2, operation="PutLogs")
    server.faults.add(cut("before_body"), probability=0.1, seed=3, operation="PutLogs")
    server.faults.add(drop_answer(), probability=0.2, seed=4, operation="PutLogs")
    patient = {**options, "retries": "50"}
    save(frame(spark), patient, batch_count_threshold="100")
    assert set(numbers(server)) == set(range(COUNT))
    save(frame(spark), {**patient, "logstore": "once"}, deliveryGuarantee="exactlyOnce", chunkRows="100")
    assert sorted(numbers(server, "once")) == list(range(COUNT))


def dies_once(flag: str) -> object:
    """Return a step of a plan that kills its Python worker in the middle of partition 1, once."""

    def step(batches: Iterator[object]) -> Iterator[object]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for count, batch in enumerate(batches):
            if context is not None and context.partitionId() == 1 and count == 3 and not os.path.exists(flag):  # noqa: PTH110
                with open(flag, "w"):  # noqa: PTH123
                    os._exit(1)
            yield batch

    return step


@pytest.mark.parametrize("guarantee", ["atLeastOnce", "exactlyOnce"])
def test_killed_worker_loses_nothing_and_exactly_once_repeats_nothing(
    spark: SparkSession, options: dict[str, str], server: LogHubServer, tmp_path: Path, guarantee: str
) -> None:
    """A killed worker loses no row, and with exactlyOnce repeats none."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    try:
        data = frame(spark).select("n").mapInArrow(dies_once(str(tmp_path / "died")), "n long")  # type: ignore[arg-type]
        save(data, options, deliveryGuarantee=guarantee, chunkRows="70", batch_count_threshold="100")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "died").exists()
    found = numbers(server)
    assert set(found) == set(range(COUNT))
    if guarantee == "exactlyOnce":
        assert twice(found) == []


def files(folder: Path, first: int, count: int) -> None:
    """Write a stream's input: files of JSON lines that appear complete."""
    folder.mkdir(exist_ok=True)
    draft = folder / f".{first}"
    draft.write_text("".join(json.dumps({"n": number}) + "\n" for number in range(first, first + count)))
    draft.rename(folder / f"{first}.json")


def stream(spark: SparkSession, folder: Path, options: dict[str, str], checkpoint: Path, **more: str) -> None:
    """Write what is new in a folder, and wait for the end."""
    query = (
        spark.readStream.schema("n long")
        .json(str(folder))
        .writeStream.format("loghub")
        .options(**options, **more)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(PATIENCE)
    assert not query.isActive


def test_a_stream_continues_where_it_stopped_and_the_metrics_have_each_micro_batch(
    spark: SparkSession, options: dict[str, str], server: LogHubServer, tmp_path: Path
) -> None:
    """A stream continues where it stopped, and the metrics have each micro-batch."""
    for first in (0, 100):
        files(tmp_path / "in", first, 100)
        stream(spark, tmp_path / "in", options, tmp_path / "checkpoint")
    assert sorted(numbers(server)) == list(range(200))
    lines = [json.loads(line) for line in Path(options["metricsPath"]).read_text().splitlines()]
    assert [(line["batch"], line["rows"]) for line in lines] == [(0, 100), (1, 100)]


def test_micro_batch_that_failed_after_sending_is_sent_again_and_stored_once(
    spark: SparkSession, options: dict[str, str], server: LogHubServer, tmp_path: Path
) -> None:
    """A micro-batch that failed after sending is sent again and stored once, and the metrics count its known rows."""
    files(tmp_path / "in", 0, 100)
    once = {**options, "deliveryGuarantee": "exactlyOnce", "chunkRows": "10"}
    # The second request of the batch is refused four times, once for each attempt of the task.
    server.faults.add(lambda request: refuse_later(request.query.get("seqid", "0")), times=4, operation="PutLogs")
    with pytest.raises(StreamingQueryException, match="LogStoreNotExist"):
        stream(spark, tmp_path / "in", once, tmp_path / "checkpoint")
    assert 0 < len(numbers(server)) < 100
    stored = len(numbers(server))
    stream(spark, tmp_path / "in", once, tmp_path / "checkpoint")
    assert sorted(numbers(server)) == list(range(100))
    told = json.loads(Path(options["metricsPath"]).read_text().splitlines()[-1])
    assert (told["batch"], told["rows"], told["already_written"]) == (0, 100, stored)


def refuse_later(number: str) -> object:
    """Refuse requests after the first few chunks."""
    from producer.server.faults import Refuse

    return (
        Refuse(status=404, code="LogStoreNotExist", message="gone", headers={}, body=None)
        if int(number) > 700
        else None
    )


def test_foreach_partition_writes_rows_with_the_same_options(
    spark: SparkSession, options: dict[str, str], server: LogHubServer
) -> None:
    """write_partition sends Python rows of a DataFrame or an RDD; the accumulator has the sum of all tasks."""
    total = metrics_accumulator(spark.sparkContext)
    frame(spark).foreachPartition(write_partition({**options, "topicColumn": "t", "timeColumn": "at"}, metrics=total))
    assert sorted(numbers(server)) == list(range(COUNT))
    assert isinstance(total.value, WriteMetrics)
    assert (total.value.rows, total.value.tasks) == (COUNT, 2)
    log = next(log for log in server.logs(PROJECT, LOGSTORE) if dict(log.contents)["n"] == "6")
    assert dict(log.contents) == {"n": "6", "quarter": "1.5", "sometimes": "even", "list": "[6,null]"}
    assert (log.topic, log.time) == ("topic-0", 1_700_000_006)
    spark.sparkContext.parallelize([Row(n=1), {"n": 2}], 1).foreachPartition(
        write_partition({**options, "logstore": "rdd"})
    )
    assert sorted(numbers(server, "rdd")) == [1, 2]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LogHubServer, Path]]:
    """Run ``watched_program.py`` against a server, and return the server and the program's folder."""
    folder = tmp_path_factory.mktemp("watched")
    program = Path(__file__).with_name("watched_program.py")
    with LogHubServer() as server:
        asked = json.dumps({"options": target(server), "folder": str(folder)})
        done = subprocess.run([sys.executable, str(program), asked], timeout=150, check=False)
        assert done.returncode == 0, (folder / "output").read_text()
        yield server, folder


def test_secrets_stand_in_no_plan_no_event_log_and_no_error(watched: tuple[LogHubServer, Path]) -> None:
    """No file of the event log and no line of output has the secret of the options."""
    server, folder = watched
    texts = [path.read_text(errors="replace") for path in (folder / "events").rglob("*") if path.is_file()]
    texts.append((folder / "output").read_text())
    assert any("AppendData" in text for text in texts[:-1])
    assert "RelationV2" in texts[-1]
    assert [text for text in texts if server.access_key_secret in text] == []


def test_a_continuous_trigger_commits_nothing_and_the_error_says_what_to_use(
    watched: tuple[LogHubServer, Path],
) -> None:
    """A continuous trigger commits nothing, and the error says what to use."""
    server, folder = watched
    assert "trigger(continuous=...) is not supported" in (folder / "output").read_text()
    assert not list((folder / "checkpoint").glob("commits/[0-9]*"))
    assert server.count(PROJECT, "continuous") == 0
