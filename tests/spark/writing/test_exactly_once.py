"""With ``exactlyOnce`` each row arrives once, whatever runs again."""

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql.types import BinaryType, LongType, StructType

from producer.server import LogHubServer
from producer.server.faults import answer, cut, drop_answer
from producer.spark.errors import DeliveryFailedError
from producer.spark.writing import exactly_once
from producer.spark.writing.exactly_once import hash_key
from producer.spark.writing.metrics import WriteMetrics
from producer.spark.writing.part import Part
from producer.spark.writing.writers import LogHubStreamWriter, LogHubWriter
from producer.wire.columnar import ColumnarEncoder, EncodedRows, Names
from tests.spark.writing.kit import LOGSTORE, PROJECT, numbers, rows, target, twice, write
from tests.wire.twins import columnar_twin

__all__ = ["columnar_twin"]

ONCE = {"deliveryGuarantee": "exactlyOnce", "chunkRows": "50"}
#: The columns of :func:`rows`.
SCHEMA = StructType().add("n", LongType()).add("pad", BinaryType())


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def cut_differently(seed: int, count: int = 1000) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in other record batches."""
    dice, place = random.Random(seed), 0
    while place < count:
        size = min(dice.randint(1, 300), count - place)
        yield rows(size, start=place)
        place += size


def chunks(server: LogHubServer) -> list[int]:
    """Return the number of logs in each stored request."""
    return [group.count for group in server.log_groups(PROJECT, LOGSTORE)]


def test_rows_arrive_in_chunks_of_the_same_size_however_spark_cuts_them(server: LogHubServer) -> None:
    """Chunks are cut by rows alone, not by Spark's batches nor by time."""
    write(server, cut_differently(1), "first", **ONCE)
    assert chunks(server) == [50] * 20
    write(server, cut_differently(2), "second", **ONCE)
    assert chunks(server) == [50] * 40


def test_second_run_of_the_same_name_adds_nothing(server: LogHubServer) -> None:
    """A second run of the same name stores no row twice, with its rows in other batches."""
    first = write(server, cut_differently(1), **ONCE)
    again = write(server, cut_differently(2), **ONCE)
    assert numbers(server) == list(range(1000))
    assert (first.rows, first.already_written) == (1000, 0)
    assert (again.rows, again.already_written) == (1000, 1000)


def test_plan_that_changed_duplicates_rows_and_loses_none(server: LogHubServer) -> None:
    """Other chunks, columns or first rows are another write, which loses no row."""
    plain = rows(100)
    write(server, plain, **ONCE)
    assert write(server, plain, **{**ONCE, "chunkRows": "20"}).already_written == 0
    assert write(server, plain, **{**ONCE, "chunkBytes": "4096"}).already_written == 0
    assert write(server, plain.rename_columns(["n", "other"]), **ONCE).already_written == 0
    turned = pa.Table.from_batches([plain.slice(1), plain.slice(0, 1)]).combine_chunks().to_batches()
    assert write(server, turned, **ONCE).already_written == 0
    assert numbers(server).count(0) == 5


def test_columns_that_the_first_row_does_not_show_are_another_plan(server: LogHubServer) -> None:
    """Another column that is null at first, or another type with the same text, is another write; Spark's metadata
    is not.
    """
    plain = rows(100)
    write(server, plain, **ONCE)
    late = pa.array([None, *range(99)], pa.int64())
    wider = pa.RecordBatch.from_arrays([*plain.columns, late], names=["n", "pad", "late"])
    assert write(server, wider, **ONCE).already_written == 0
    narrow = plain.set_column(0, "n", plain.column("n").cast(pa.int32()))
    assert write(server, narrow, **ONCE).already_written == 0
    assert write(server, plain.replace_schema_metadata({"note": "other"}), **ONCE).already_written == 100


def test_chunk_has_one_set_of_columns(server: LogHubServer) -> None:
    """A chunk ends where the columns change."""
    write(server, [rows(10), rows(10, start=10).rename_columns(["n", "other"])], **ONCE)
    assert chunks(server) == [10, 10]


def test_each_task_that_found_rows_written_warns_with_its_own_number(
    server: LogHubServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Each task that found rows written warns with its own number."""
    write(server, rows(50), **ONCE)
    assert not told(caplog)
    write(server, rows(100), **ONCE)
    (text,) = told(caplog)
    assert text.startswith(f"partition 0: 50 of 100 rows were already stored in {PROJECT}/{LOGSTORE} at ")


def test_a_micro_batch_warns_with_the_sum_of_its_tasks(server: LogHubServer, caplog: pytest.LogCaptureFixture) -> None:
    """A micro-batch warns with the sum of its tasks."""
    options = {**target(server), **ONCE, "runId": "stream"}
    writer = LogHubStreamWriter(options, SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([rows(50)]))], 7)
    assert not told(caplog)
    writer.commit([writer.write(iter([rows(100)]))], 7)
    assert [
        text for text in told(caplog) if text.startswith("micro-batch 7: 50 of its 100 rows were already stored in ")
    ]


def test_first_row_that_cannot_become_a_log_is_refused_like_any_other(server: LogHubServer) -> None:
    """A first row that cannot become a log is refused, and a second attempt finds the others written."""
    batch = pa.record_batch({"at": pa.array([-5, 1, 2]), "n": pa.array([0, 1, 2])})
    first, again = (write(server, batch, timeColumn="at", onFailure="drop", **ONCE) for _ in range(2))
    assert (first.dropped, first.rows, first.already_written) == (1, 2, 0)
    assert (again.dropped, again.rows, again.already_written) == (1, 2, 2)
    assert numbers(server) == [1, 2]


def test_an_invalid_shard_hash_refuses_its_row_and_the_rows_of_other_streams_arrive(server: LogHubServer) -> None:
    """An invalid shard hash refuses its row, and the rows of other streams arrive."""
    batch = pa.record_batch({"h": pa.array(["0" * 32, "no hash"]), "n": pa.array([0, 1])})
    options = {**ONCE, "shardHashColumn": "h", "adjust_shard_hash": "false", "onFailure": "drop"}
    done = write(server, batch, **options)
    assert (done.dropped, done.rows) == (1, 1)
    assert numbers(server) == [0]


def test_task_waits_no_longer_than_it_may_for_an_acknowledgement(server: LogHubServer) -> None:
    """``ackTimeout`` limits each request, and the error has the last attempt's."""
    server.faults.add(answer(403, "WriteQuotaExceed"), operation="PutLogs")
    with pytest.raises(DeliveryFailedError, match=r"rows 0 to 9 .*not completed within 1\.0 s.*WriteQuotaExceed"):
        write(server, rows(10), ackTimeout="1", **ONCE)


def test_task_that_died_half_way_is_completed(server: LogHubServer) -> None:
    """A task that died half-way is completed by the next attempt, which repeats no row."""
    batches = [rows(500), rows(500, start=500)]

    def dies() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write(server, dies(), **ONCE)
    assert 0 < len(numbers(server)) < 1000
    assert write(server, batches, **ONCE).rows == 1000
    assert numbers(server) == list(range(1000))


def test_answers_lost_after_storing_duplicate_nothing(server: LogHubServer) -> None:
    """With half of all answers lost, and resets, each row is stored once, in order."""
    server.faults.add(drop_answer(), probability=0.3, seed=7)
    server.faults.add(cut("before_body"), probability=0.2, seed=8)
    server.faults.add(answer(500, "InternalServerError"), probability=0.2, seed=9)
    done = write(server, cut_differently(3), retries="100", **ONCE)
    assert numbers(server) == list(range(1000))
    assert done.already_written > 0


def test_ordinary_writes_would_duplicate_under_these_faults(server: LogHubServer) -> None:
    """With at least once these faults duplicate rows, so that the test above proves something."""
    server.faults.add(drop_answer(), probability=0.5, seed=7)
    write(server, cut_differently(3), retries="100", batch_count_threshold="50")
    assert twice(numbers(server))


def test_other_partitions_batches_and_runs_have_keys_of_their_own() -> None:
    """Only another attempt at the same part of the same write has the same hash key."""
    parts = [Part("a", "", 0), Part("a", "", 1), Part("a", "1", 0), Part("b", "", 0)]
    names = [Names(), Names(topic="x"), Names(source="x"), Names(shard_hash="x")]
    keys = {hash_key(part, name, 64) for part in parts for name in names}
    assert len(keys) == len(parts) * len(names)
    assert hash_key(Part("a", "", 0), Names(), 64) == hash_key(Part("a", "", 0), Names(), 64)


def test_shard_hash_chooses_the_shard_of_the_key() -> None:
    """Rows with the same shard hash go to the same shard, under different hash keys."""
    keys = [hash_key(Part(str(run), "", 0), Names(shard_hash="customer-7"), 64) for run in range(20)]
    assert len({int(key, 16) >> 122 for key in keys}) == 1
    assert len(set(keys)) == 20
    given = "0123456789abcdef0123456789ABCDEF"
    assert hash_key(Part("a", "", 0), Names(shard_hash=given), None).startswith("0123456789abcdef")


def test_streams_picked_by_columns_are_cut_for_themselves(server: LogHubServer) -> None:
    """With a topic column each topic's rows are complete, once and in order, when the task runs twice."""
    count = 600
    batch = pa.record_batch({"n": pa.array(range(count)), "t": pa.array([f"topic-{n % 3}" for n in range(count)])})
    for halves in ([batch], [batch.slice(0, 17), batch.slice(17)]):
        write(server, halves, topicColumn="t", **ONCE)
    for topic in range(3):
        found = [
            int(dict(log.contents)["n"]) for log in server.logs(PROJECT, LOGSTORE) if log.topic == f"topic-{topic}"
        ]
        assert found == [n for n in range(count) if n % 3 == topic]


@pytest.mark.usefixtures(columnar_twin.__name__)
def test_refused_rows_are_the_same_in_every_attempt(strict: LogHubServer, tmp_path: Path) -> None:
    """Every attempt refuses the same rows, so that dead letters are complete."""
    bad = [49, 50, 123, 999]
    options = {**ONCE, "onFailure": "deadletter", "deadLetterPath": str(tmp_path)}
    for _ in range(2):
        done = write(strict, [rows(700, poisoned=bad), rows(300, start=700, poisoned=bad)], **options)
        assert (done.dead_lettered, done.rows) == (4, 996)
        assert pyarrow.parquet.read_table(tmp_path).column("_row").to_pylist() == bad
        assert numbers(strict) == [n for n in range(1000) if n not in bad]
    # A server that checks numbers first would count a whole chunk as written, if a part of it had its number.
    stored = {int(request.query["seqid"]) for request in strict.requests if request.status == 200}
    refused = {int(request.query["seqid"]) for request in strict.requests if request.error_code == "PostBodyTooLarge"}
    assert refused
    assert not stored & refused


def test_a_refused_chunk_fails_the_task_with_its_row_and_once_the_row_is_fixed_the_same_run_completes(
    strict: LogHubServer,
) -> None:
    """A refused chunk fails the task with its row, and once the row is fixed, the same run completes."""
    words = r"^rows 100 to 149 of partition 0, refused .* PostBodyTooLarge.*before: 100 rows"
    with pytest.raises(DeliveryFailedError, match=words):
        write(strict, rows(300, poisoned=[120]), **ONCE)
    assert numbers(strict) == list(range(100))
    write(strict, rows(300), **ONCE)
    assert numbers(strict) == list(range(300))


def test_row_larger_than_a_chunk_is_a_request_of_its_own(server: LogHubServer) -> None:
    """A row larger than a chunk is a request of its own."""
    sizes = [10, 10, 5000, 10, 900, 900, 900]
    batch = pa.record_batch({"n": pa.array(range(7)), "pad": pa.array(["x" * size for size in sizes])})
    for _ in range(2):
        write(server, batch, **{**ONCE, "chunkBytes": "2000"})
    assert numbers(server) == list(range(7))
    assert chunks(server) == [2, 1, 3, 1]


def test_wrong_target_fails_the_task(server: LogHubServer) -> None:
    """A refusal that is not about rows fails the task, and a later attempt completes the write."""
    server.faults.add(answer(404, "LogStoreNotExist"), times=1)
    with pytest.raises(DeliveryFailedError, match=r"rows 0 to 49 of partition 0 .* LogStoreNotExist"):
        write(server, rows(100), **ONCE)
    write(server, rows(100), **ONCE)
    assert numbers(server) == list(range(100))


def test_a_task_without_rows_sends_nothing(server: LogHubServer) -> None:
    """A task without rows sends nothing."""
    assert write(server, [rows(0)], **ONCE) == WriteMetrics(tasks=1)


def chunks_of(server: LogHubServer, topic: str) -> list[int]:
    """Return the number of logs in each stored request of a topic."""
    return [group.count for group in server.log_groups(PROJECT, LOGSTORE) if group.topic == topic]


def test_many_streams_fill_smaller_chunks(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many topics the memory of open chunks stays bounded, and a second attempt cuts in the same way."""
    monkeypatch.setattr(exactly_once, "_OPEN_CHUNKS_BYTES", 20_000)
    count = 2000
    batch = pa.record_batch(
        {
            "n": pa.array(range(count)),
            "t": pa.array([f"topic-{n % 5}" for n in range(count)]),
            "pad": pa.array(["x" * 80] * count),
        }
    )
    options = {**ONCE, "chunkRows": "4096", "topicColumn": "t"}
    write(server, [batch.slice(0, 3), batch.slice(3)], **options)
    sizes = {topic: chunks_of(server, topic) for topic in ("topic-0", "topic-4")}
    assert max(sizes["topic-0"]) > 3 * max(sizes["topic-4"]) > 90
    write(server, batch, **options)
    assert sorted(numbers(server)) == list(range(count))


def test_a_run_whose_rows_were_all_stored_before_is_warned_about_its_runid(
    server: LogHubServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A run whose rows were all stored before is warned about its runId."""
    for count in (50, 60, 60):
        assert not [text for text in told(caplog) if "give another run a runId" in text]
        writer = LogHubWriter({**target(server), **ONCE, "runId": "daily"}, SCHEMA, overwrite=False)
        writer.commit([writer.write(iter([rows(count)]))])
    assert [text for text in told(caplog) if "all 60 rows were already stored in" in text and "'daily'" in text]
    assert numbers(server) == list(range(60))


class Watched:
    """Encoded rows that count the copied records."""

    def __init__(self, encoded: EncodedRows, written: list[int]) -> None:
        self._encoded, self._written = encoded, written
        self.ends = encoded.ends

    @property
    def body(self) -> memoryview:
        self._written.append(len(self.ends))
        return self._encoded.body

    def piece(self, start: int, stop: int) -> memoryview:
        self._written.append(stop - start)
        return self._encoded.piece(start, stop)


def test_each_row_is_encoded_once_however_many_chunks_a_batch_becomes(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is encoded once, however many chunks a batch becomes, except a stream's first row."""
    encode, written = ColumnarEncoder.encode, list[int]()
    monkeypatch.setattr(ColumnarEncoder, "encode", lambda *args: Watched(encode(*args), written))
    write(server, [rows(330), rows(170, start=330)], **ONCE)
    assert numbers(server) == list(range(500))
    assert sum(written) == 500 + 1


def test_row_larger_than_the_memory_fails_the_task(server: LogHubServer) -> None:
    """A row larger than the memory fails the task, and is not dropped."""
    options = {**ONCE, "chunkBytes": "5000", "total_size_in_bytes": "20000", "onFailure": "drop"}
    with pytest.raises(DeliveryFailedError, match=r"row 0 of partition 0 .*total_size_in_bytes"):
        write(server, rows(1, size=30_000), **options)
