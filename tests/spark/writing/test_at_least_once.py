"""Rows of a task are acknowledged or handled as refused, or the task fails with the row and the reason."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from producer.server import LogHubServer
from producer.server.faults import answer, delay, drop_answer, raw_answer
from producer.spark.errors import DeliveryFailedError
from producer.spark.writing.metrics import WriteMetrics
from producer.spark.writing.options import WriteOptions
from producer.spark.writing.part import Part
from producer.spark.writing.task import write_rows
from tests.spark.writing.kit import LOGSTORE, PROJECT, numbers, rows, target, write
from tests.support.waiting import PATIENCE, eventually


def test_every_row_is_acknowledged_when_the_task_ends(server: LogHubServer) -> None:
    """Every row is acknowledged when the task ends, and the metrics count the server's logs."""
    done = write(server, [rows(700), rows(0), rows(300, start=700)])
    assert sorted(numbers(server)) == list(range(1000))
    assert (done.rows, done.tasks) == (1000, 1)
    assert done.batches == done.attempts == len(server.log_groups(PROJECT, LOGSTORE))
    assert done.bytes > 40_000


def test_a_task_without_rows_sends_nothing_and_succeeds(server: LogHubServer) -> None:
    """A task without rows sends nothing and succeeds."""
    assert write(server, []) == WriteMetrics(tasks=1)
    assert server.requests == []


def test_columns_say_where_and_when(server: LogHubServer) -> None:
    """Topic, source and time come from their columns, which are not fields; null means the option's value."""
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "t": pa.array(["a", None, "a"]),
            "s": pa.array(["10.0.0.1", "10.0.0.2", "10.0.0.1"]),
            "at": pa.array([moment, moment, moment], pa.timestamp("us", "UTC")),
            "n": pa.array([1, 2, 3]),
        }
    )
    write(server, batch, topic="general", topicColumn="t", sourceColumn="s", timeColumn="at")
    found = sorted(
        (log.topic, log.source, log.time, log.time_ns, *log.contents) for log in server.logs(PROJECT, LOGSTORE)
    )
    seconds = int(moment.timestamp())
    assert found == [
        ("a", "10.0.0.1", seconds, 123_456_000, ("n", "1")),
        ("a", "10.0.0.1", seconds, 123_456_000, ("n", "3")),
        ("general", "10.0.0.2", seconds, 123_456_000, ("n", "2")),
    ]


def test_refused_row_fails_the_task_with_its_number_and_the_reason(strict: LogHubServer) -> None:
    """A refused row fails the task with its number, LogHub's code, advice, and the number of acknowledged rows."""
    with pytest.raises(DeliveryFailedError) as caught:
        write(strict, [rows(500), rows(500, start=500, poisoned=[777])])
    text = str(caught.value)
    assert text.startswith("row 777 of partition 0")
    assert "PostBodyTooLarge" in text
    assert "onFailure=deadletter or drop" in text


def test_behind_a_request_that_hangs_acknowledged_rows_leave_the_memory_and_a_refusal_fails_the_task(
    server: LogHubServer,
) -> None:
    """Behind a request that hangs, acknowledged rows leave the memory, and a refusal fails the task."""
    hangs = server.faults.add(delay(PATIENCE), times=1)

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(1)
        eventually(lambda: hangs.fired > 0, "the first request")
        server.faults.add(answer(404, "LogStoreNotExist"), times=1)
        deadline = time.monotonic() + PATIENCE / 2
        while time.monotonic() < deadline:
            yield rows(1, start=1)
        pytest.fail("the request after the first one was not handled")

    with pytest.raises(DeliveryFailedError, match=r"LogStoreNotExist.* still in flight: [1-9]"):
        write(server, batches())


def test_dropped_rows_are_counted_and_the_others_arrive(strict: LogHubServer) -> None:
    """With onFailure=drop exactly the rows at fault are missing, and the metrics count them."""
    bad = [3, 4, 501, 999]
    done = write(strict, rows(1000, poisoned=bad), onFailure="drop")
    assert sorted(set(numbers(strict))) == [n for n in range(1000) if n not in bad]
    assert (done.dropped, done.rows, done.dead_lettered) == (4, 996, 0)


def test_dead_letters_hold_exactly_the_refused_rows(strict: LogHubServer, tmp_path: Path) -> None:
    """Dead letters have exactly the refused rows with their number, columns and LogHub's reason."""
    done = write(strict, rows(300, poisoned=[7, 250]), onFailure="deadletter", deadLetterPath=str(tmp_path / "letters"))
    table = pyarrow.parquet.read_table(tmp_path / "letters")
    assert table.column("n").to_pylist() == table.column("_row").to_pylist() == [7, 250]
    assert set(table.column("_error_code").to_pylist()) == {"PostBodyTooLarge"}
    assert all(table.column("_request_id").to_pylist())
    assert (done.dead_lettered, done.rows) == (2, 298)


def test_second_attempt_replaces_the_dead_letters_of_the_first(strict: LogHubServer, tmp_path: Path) -> None:
    """A second attempt replaces the dead letters of the first; a failed one leaves none."""
    options = {"onFailure": "deadletter", "deadLetterPath": str(tmp_path)}
    for _ in range(2):
        write(strict, rows(20, poisoned=[5]), **options)
    assert pyarrow.parquet.read_table(tmp_path).num_rows == 1

    def fails_with_a_letter() -> Iterator[pa.RecordBatch]:
        yield rows(20, poisoned=[5])
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("_*")) and time.monotonic() < deadline:
            yield rows(1)  # lets the writer handle the completed requests
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        write(strict, fails_with_a_letter(), "another run", **options)
    assert [path.name for path in tmp_path.iterdir()] == [Part("run", "", 0).file_name + ".parquet"]


def test_row_that_cannot_become_a_log_is_refused_alone(server: LogHubServer) -> None:
    """A row with an invalid time is refused alone."""
    batch = pa.record_batch({"at": pa.array([1, 2, -5, 4]), "n": pa.array([0, 1, 2, 3])})
    words = r"^row 2 of partition 0, refused by \S+ at \S+: InvalidArgumentError: time_column 'at': -5"
    with pytest.raises(DeliveryFailedError, match=words):
        write(server, batch, timeColumn="at")
    assert write(server, batch, timeColumn="at", onFailure="drop", logstore="other").dropped == 1
    assert sorted(numbers(server, "other")) == [0, 1, 3]


def test_row_larger_than_a_batch_is_refused_alone(server: LogHubServer) -> None:
    """A row larger than 8 MiB is refused alone."""
    batch = pa.record_batch({"n": pa.array([0, 1, 2]), "pad": pa.array(["x", "y" * (9 << 20), "z"])})
    assert write(server, batch, onFailure="drop").dropped == 1
    assert sorted(numbers(server)) == [0, 2]


@pytest.mark.parametrize(
    ("status", "code"), [(401, "InvalidAccessKeyId"), (404, "LogStoreNotExist"), (403, "ProjectForbidden")]
)
def test_wrong_target_fails_the_task_whatever_is_done_with_rows(server: LogHubServer, status: int, code: str) -> None:
    """A wrong key, project or logstore fails the task, and drops no rows."""
    server.faults.add(answer(status, code))
    with pytest.raises(
        DeliveryFailedError, match=rf"were not acknowledged: {code}.*Acknowledged by this task before: 0"
    ):
        write(server, rows(10), onFailure="drop")


def test_exhausted_retries_fail_the_task(server: LogHubServer) -> None:
    """A server that stays down fails the task, and drops no rows."""
    server.faults.add(answer(500, "InternalServerError"))
    with pytest.raises(DeliveryFailedError, match="InternalServerError"):
        write(server, rows(10), onFailure="drop", retries="2")


def test_transient_failures_are_retried_and_counted(server: LogHubServer) -> None:
    """Transient errors do not fail the task, and the metrics count the retries."""
    server.faults.add(answer(503, "ServerBusy"), times=3)
    done = write(server, rows(10))
    assert (done.rows, done.batches, done.retries, done.attempts) == (10, 1, 3, 4)


def test_lost_answer_may_duplicate_and_never_loses(server: LogHubServer) -> None:
    """A lost answer may duplicate rows, and loses none."""
    server.faults.add(drop_answer(), times=1)
    write(server, rows(10))
    assert sorted(numbers(server)) == sorted([*range(10), *range(10)])


def test_table_larger_than_memory_goes_through(server: LogHubServer) -> None:
    """A table larger than total_size_in_bytes is sent, and the metrics count the wait for memory."""
    batches = [rows(2000, start=2000 * part, size=1000) for part in range(4)]
    done = write(server, batches, total_size_in_bytes="1500000")
    assert sorted(numbers(server)) == list(range(8000))
    assert done.memory_wait_ms > 0


def test_a_proxys_page_fails_the_task_and_drops_no_rows(server: LogHubServer) -> None:
    """A proxy's page fails the task, and drops no rows."""
    page = b"HTTP/1.1 404 Not Found\r\nServer: nginx\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found"
    server.faults.add(raw_answer(page))
    with pytest.raises(DeliveryFailedError, match="were not acknowledged: BadResponse"):
        write(server, rows(100), onFailure="drop")


def test_however_many_rows_are_at_fault_the_others_arrive(server: LogHubServer) -> None:
    """Exactly the rows at fault are dropped, also if they are many."""
    count = 10_000
    times = pa.array([-1 if n % 20 == 0 else 1_700_000_000 for n in range(count)])
    batch = pa.record_batch({"n": pa.array(range(count)), "at": times})
    done = write(
        server, [batch.slice(start, 2500) for start in range(0, count, 2500)], onFailure="drop", timeColumn="at"
    )
    assert (done.dropped, done.rows) == (500, 9500)
    assert sorted(numbers(server)) == [n for n in range(count) if n % 20]


def test_time_beyond_the_calendar_is_a_refused_row(server: LogHubServer) -> None:
    """A time beyond Python's calendar refuses its row."""
    batch = pa.record_batch({"n": pa.array([0, 1]), "at": pa.array([1, 17 * 10**17], pa.timestamp("us", "UTC"))})
    assert write(server, batch, timeColumn="at", onFailure="drop").dropped == 1
    assert numbers(server) == [0]


def test_worker_without_credentials_fails_at_once(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without credentials fails at once, and names the variable to set."""
    monkeypatch.delenv("LOGHUB_ACCESS_KEY_ID", raising=False)
    options = {name: value for name, value in target(server).items() if not name.startswith("accessKey")}
    with pytest.raises(DeliveryFailedError, match=r"LOGHUB_ACCESS_KEY_ID.*spark\.executorEnv"):
        write_rows([rows(1)], WriteOptions.from_mapping(options), "run")


def test_dead_letters_that_cannot_be_kept_fail_the_task(strict: LogHubServer, tmp_path: Path) -> None:
    """Dead letters that cannot be stored fail the task with the row and the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DeliveryFailedError, match=r"row 3.*cannot be stored in deadLetterPath"):
        write(strict, rows(5, poisoned=[3]), onFailure="deadletter", deadLetterPath=str(tmp_path / "file"))
