"""``Stream.send_arrow`` sends tables of any size through a producer of any size, with a future for each piece."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from producer import MemoryChannel, Producer, ProducerConfig, ProjectConfig
from producer.model.errors import InvalidArgumentError, LogSizeTooLargeError, ProducerClosedError, SendTimeoutError
from producer.model.records import LogItem
from producer.model.results import Result
from producer.pipeline.batching.accumulator import LogAccumulator
from producer.server import LogHubServer
from producer.testing import ManualClock, RecordingSink
from producer.text.extras import how_to_install
from producer.wire.log_group import encode_log
from tests.support.sinks import GatedSink
from tests.support.waiting import eventually
from tests.wire.twins import columnar_twin

KIB = 1024
ROWS = 3000

pytestmark = pytest.mark.usefixtures(columnar_twin.__name__)


def make(sink: RecordingSink | None = None, channel: Any = None, clock: Any = None, **options: Any) -> Producer:
    return Producer(
        config=ProducerConfig(source="here", **options), sink=sink or RecordingSink(), channel=channel, clock=clock
    )


def table(rows: int = ROWS, size: int = 100) -> pa.Table:
    """Return a table of numbers and texts, in chunks of several lengths."""
    numbers = list(range(rows))
    whole = pa.table(
        {"n": numbers, "text": [f"{n}-" + "x" * size for n in numbers], "topic": [f"t{n % 3}" for n in numbers]}
    )
    return pa.concat_tables(
        [whole.slice(0, 7), whole.slice(7, 0), whole.slice(7, rows // 2), whole.slice(7 + rows // 2)]
    )


def expected(data: pa.Table, now: int, *left_out: str) -> list[bytes]:
    """Return the records that ``send`` makes of the rows."""
    return [encode_log(LogItem(row), now) for row in data.drop_columns(list(left_out)).to_pylist()]


@pytest.mark.parametrize("total", [10 * KIB * KIB, 1024 * KIB, 100 * KIB, 30 * KIB])
def test_a_table_larger_than_memory_goes_through_a_producer_of_any_size(total: int) -> None:
    """Every row arrives once, in order, encoded as by ``send``; all memory is returned."""
    sink, clock = RecordingSink(), ManualClock()
    data = table()
    with make(sink, total_size_in_bytes=total, io_thread_count=1, max_block_ms=20_000, clock=clock) as producer:
        futures = producer.stream("p", "l").send_arrow(data)
        producer.flush()
        assert all(future.result().successful for future in futures)
        assert producer.stats().accepted == producer.stats().delivered == ROWS
        eventually(lambda: producer.stats().memory_used == 0)
    assert sink.records() == expected(data, int(clock.time()))


@pytest.mark.parametrize("total", [10 * KIB * KIB, 100 * KIB])
def test_columns_pick_the_streams(total: int) -> None:
    """Each stream gets its rows in their order; a null goes to the stream's own."""
    sink, clock = RecordingSink(), ManualClock()
    data = table()
    topics = [None if n % 3 == 2 else f"t{n % 3}" for n in range(ROWS)]
    data = data.set_column(2, "topic", pa.array(topics))
    with make(sink, total_size_in_bytes=total, io_thread_count=1, clock=clock) as producer:
        producer.stream("p", "l", topic="own").send_arrow(data, topic_column="topic")
        producer.flush()
    sent = expected(data, int(clock.time()), "topic")
    for remainder, topic in enumerate(["t0", "t1", "own"]):
        of_topic = [delivery for delivery in sink.deliveries if delivery.key.topic == topic]
        records = [record for delivery in of_topic for record in sink.decode(delivery.payload)]
        assert records == sent[remainder::3]


def test_shard_hashes_are_adjusted_and_checked() -> None:
    """Shard hashes are adjusted as those of ``stream``; an invalid one is refused with its row, and nothing of its
    slice is accepted.
    """
    sink = RecordingSink()
    batch = pa.record_batch({"n": [1, 2], "hash": ["F" * 32, "0" * 32]})
    with make(sink, buckets=1) as producer:
        stream = producer.stream("p", "l")
        stream.send_arrow(batch, shard_hash_column="hash")
        producer.flush()
        assert {delivery.key for delivery in sink.deliveries} == {producer.stream("p", "l", shard_hash="F" * 32).key}
    with make(sink, adjust_shard_hash=False) as producer:
        wrong = pa.record_batch({"n": [1, 2], "hash": ["F" * 32, "nonsense"]})
        with pytest.raises(InvalidArgumentError, match=r"^row 1: shard_hash: .*'nonsense'"):
            producer.stream("p", "l").send_arrow(wrong, shard_hash_column="hash")
        assert producer.stats().accepted == 0


def test_an_idempotent_stream_takes_no_shard_hash_of_a_column_that_leaves_no_room() -> None:
    """A shard hash column is refused as ``stream`` refuses the hash."""
    batch = pa.record_batch({"n": [1], "hash": ["F" * 32]})
    with make(adjust_shard_hash=False) as producer:
        stream = producer.stream("p", "l", idempotent=True)
        with pytest.raises(InvalidArgumentError, match=r"^row 0: shard_hash: .*idempotent needs free ones"):
            stream.send_arrow(batch, shard_hash_column="hash")


def test_names_that_are_too_long_are_refused_with_their_row() -> None:
    """Names that are too long are refused with their row."""
    batch = pa.record_batch({"n": [1, 2], "t": ["t", "t" * 5000]})
    with make() as producer, pytest.raises(LogSizeTooLargeError, match=r"^row 1: project, logstore, topic"):
        producer.stream("p", "l").send_arrow(batch, topic_column="t")


@pytest.mark.parametrize(
    ("options", "size", "logs"),
    [({"batch_size_threshold_in_bytes": 5000}, 5000, 4096), ({"batch_count_threshold": 10}, 512 * KIB, 10)],
    ids=["bytes", "logs"],
)
def test_pieces_stay_within_the_thresholds(options: dict[str, int], size: int, logs: int) -> None:
    """Pieces end where a row ends, and are as large as the thresholds allow."""
    batch = table().combine_chunks().to_batches()[0]
    with make(**options) as producer:
        pieces = list(producer.stream("p", "l")._send_arrow_pieces(batch))
    assert all(piece.size <= size and piece.logs <= logs for piece in pieces)
    assert all(piece.size > size - 200 or piece.logs == logs for piece in pieces[:-1])


def test_a_piece_tells_its_rows() -> None:
    """A piece has its rows' positions in the batch: a range if they are consecutive. Together they are all rows."""
    batch = table().combine_chunks().to_batches()[0]
    with make(total_size_in_bytes=200 * KIB) as producer:
        stream = producer.stream("p", "l")
        whole = list(stream._send_arrow_pieces(batch))
        parts = list(stream._send_arrow_pieces(batch, topic_column="topic"))
    assert len(whole) > 5
    assert all(isinstance(piece.rows, range) for piece in whole)
    assert [row for piece in whole for row in piece.rows] == list(range(ROWS))
    assert all(piece.logs == len(piece.rows) for piece in parts)
    assert all(isinstance(piece.rows, pa.Int64Array) for piece in parts)
    rows = [row for piece in parts for row in piece.rows.to_pylist()]
    assert sorted(rows) == list(range(ROWS))
    assert rows != sorted(rows)


def test_a_row_that_is_too_large_is_refused_with_its_number() -> None:
    """The row is counted from the beginning of the data; the error has the earlier pieces."""
    data = pa.chunked_array([["x" * 500] * 1000, ["y" * 500] * 10 + ["z" * 300 * KIB]])
    with make(total_size_in_bytes=200 * KIB) as producer:
        with pytest.raises(LogSizeTooLargeError, match=r"^row 1010: .*total_size_in_bytes") as caught:
            producer.stream("p", "l").send_arrow(pa.table({"text": data}))
        producer.flush()
        assert caught.value.accepted_logs == producer.stats().accepted >= 1000
        assert sum(future.result().successful for future in caught.value.accepted) == len(caught.value.accepted)
        eventually(lambda: producer.stats().memory_used == 0)


def test_a_value_that_cannot_be_sent_is_refused_with_its_row() -> None:
    """The row is counted from the beginning of the data; nothing of its slice is accepted."""
    seconds = pa.chunked_array([pa.array([1] * 5), pa.array([1, -1])])
    with make() as producer:
        with pytest.raises(InvalidArgumentError, match=r"^row 6: time_column 'at'") as caught:
            producer.stream("p", "l").send_arrow(pa.table({"at": seconds}), time_column="at")
        assert caught.value.accepted_logs == producer.stats().accepted == 5


def test_an_error_of_the_data_itself_reports_the_accepted_pieces() -> None:
    """A reader that fails raises its own error, with a note of the accepted pieces."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"text": ["a", "b"]})
        raise LookupError("the data ends here")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("text", pa.string())]), batches())
    with make() as producer:
        with pytest.raises(LookupError, match="ends here") as caught:
            producer.stream("p", "l").send_arrow(reader)
        assert "2 logs, in 1 piece, had been accepted before" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("estimate", [1, 10**12], ids=["too low", "too high"])
def test_a_wrong_estimate_costs_no_memory_and_no_rows(monkeypatch: pytest.MonkeyPatch, estimate: int) -> None:
    """With a wrong estimate, all rows are sent, and no memory stays in use."""
    sink, clock = RecordingSink(), ManualClock()
    data = table(300)
    monkeypatch.setattr("producer.wire.columnar.ColumnarEncoder.estimate", lambda *_: estimate)
    with make(sink, total_size_in_bytes=200 * KIB, max_block_ms=20_000, io_thread_count=1, clock=clock) as producer:
        producer.stream("p", "l").send_arrow(data)
        producer.flush()
        eventually(lambda: producer.stats().memory_used == 0)
    assert sink.records() == expected(data, int(clock.time()))


def test_an_error_half_way_reports_the_accepted_pieces() -> None:
    """Without memory in time, the error has the accepted pieces and their logs; other memory is returned."""
    sink = GatedSink()
    with make(sink, total_size_in_bytes=200 * KIB, max_block_ms=100) as producer:
        with pytest.raises(SendTimeoutError) as caught:
            producer.stream("p", "l").send_arrow(table())
        accepted = caught.value.accepted_logs
        assert 0 < accepted == producer.stats().accepted < ROWS
        assert producer.stats().memory_wait_seconds >= 0.1
        sink.gate.set()
        producer.flush()
        assert all(future.result().successful for future in caught.value.accepted)
        eventually(lambda: producer.stats().memory_used == 0)
    assert len(sink.records()) == accepted


def test_the_generator_yields_the_accepted_pieces_also_of_the_slice_that_failed_then_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The generator yields the accepted pieces, also of the slice that failed, then raises."""
    rooms = [True, True, False]
    add = LogAccumulator.add

    def closing(*arguments: Any, **options: Any) -> Any:
        if not rooms.pop(0):
            raise ProducerClosedError("the producer is closed")
        return add(*arguments, **options)

    monkeypatch.setattr(LogAccumulator, "add", closing)
    batch = table(9).combine_chunks().to_batches()[0]
    with make() as producer:
        pieces = producer.stream("p", "l")._send_arrow_pieces(batch, topic_column="topic")
        assert [next(pieces).rows.to_pylist() for _ in range(2)] == [[0, 3, 6], [1, 4, 7]]
        with pytest.raises(ProducerClosedError):
            next(pieces)
        producer.flush()
        assert producer.stats().memory_used == 0


def test_after_close_nothing_is_accepted() -> None:
    """A closed producer refuses tables."""
    producer = make()
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.stream("p", "l").send_arrow(table())


def test_a_callback_runs_once_for_each_piece() -> None:
    """A callback runs once for each piece, with the piece's result."""
    results: list[Result] = []
    with make(batch_size_threshold_in_bytes=5000) as producer:
        futures = producer.stream("p", "l").send_arrow(table(), callback=results.append)
        producer.flush()
        assert len(results) == len(futures) > 10
        with pytest.raises(InvalidArgumentError, match=r"^callback: "):
            producer.stream("p", "l").send_arrow(table(), callback=1)  # type: ignore[arg-type]


def _batches(data: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from data.to_batches()


class Stranger:
    def __init__(self, data: pa.Table) -> None:
        self._data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_stream__(requested_schema)


class LonelyStranger:
    """A class of another library that holds one batch."""

    def __init__(self, data: pa.Table) -> None:
        self._batch = data.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "stream", "array", "pandas"])
def test_whatever_holds_arrow_data_is_taken(kind: str) -> None:
    """Every object with Arrow data is accepted; a reader batch by batch."""
    data, sink, clock = table(50), RecordingSink(), ManualClock()
    given = {
        "table": lambda: data,
        "batch": lambda: data.combine_chunks().to_batches()[0],
        "reader": lambda: pa.RecordBatchReader.from_batches(data.schema, _batches(data)),
        "stream": lambda: Stranger(data),
        "array": lambda: LonelyStranger(data),
        "pandas": data.to_pandas,
    }[kind]()
    with make(sink, clock=clock) as producer:
        producer.stream("p", "l").send_arrow(given)
        producer.flush()
    assert sink.records() == expected(data, int(clock.time()))


def test_the_error_names_the_type_of_an_object_without_arrow_data() -> None:
    """The error names the type of an object without Arrow data."""
    with make() as producer, pytest.raises(InvalidArgumentError, match=r"^data: must be .*, got list"):
        producer.stream("p", "l").send_arrow([{"n": 1}])


def test_a_table_without_rows_sends_nothing() -> None:
    """A table without rows sends nothing."""
    with make() as producer:
        assert producer.stream("p", "l").send_arrow(table().slice(0, 0)) == []
        assert producer.stats().memory_used == 0


def test_all_pieces_of_a_slice_of_all_streams_are_stored_or_none() -> None:
    """All pieces of a slice, of all streams, are stored, or none; the next slice is another transaction."""
    channel = MemoryChannel(capacity=10, keep_alive=0)
    sink = GatedSink()
    data = table(9).combine_chunks()
    with make(sink, channel=channel, max_block_ms=0) as producer:
        stream = producer.stream("p", "l")
        assert len(stream.send_arrow(data, topic_column="topic")) == 3
        stored = channel.stats()
        assert stored.put_successes == 3
        many = pa.table({"n": list(range(9)), "topic": [str(n) for n in range(9)]})
        with pytest.raises(SendTimeoutError) as caught:
            stream.send_arrow(many, topic_column="topic")
        assert caught.value.accepted_logs == 0
        assert channel.stats().put_successes == 3
        sink.gate.set()
        producer.flush()
    assert len(sink.records()) == 9


def test_a_table_arrives_at_a_server_as_its_rows() -> None:
    """A table arrives with its fields, times and topics, as decoded by the protobuf library."""
    rows = 2000
    data = pa.table(
        {
            "at": pa.array([1_700_000_000_000_000_000 + n for n in range(rows)], pa.timestamp("ns", "UTC")),
            "n": list(range(rows)),
            "text": [None if n % 7 == 0 else f"text {n} é" for n in range(rows)],
            "topic": [f"t{n % 3}" for n in range(rows)],
        }
    )
    with LogHubServer() as server:
        project = ProjectConfig(
            "p",
            endpoint=server.endpoint,
            access_key_id=server.access_key_id,
            access_key_secret=server.access_key_secret,
        )
        with Producer(project, config=ProducerConfig(total_size_in_bytes=64 * KIB)) as producer:
            stream = producer.stream("p", "l")
            stream.send_arrow(data, time_column="at", topic_column="topic")
            producer.flush()
        stored = server.logs("p", "l")
    assert len(stored) == rows
    for log in stored:
        n = int(dict(log.contents)["n"])
        assert dict(log.contents) == {"n": str(n)} | ({} if n % 7 == 0 else {"text": f"text {n} é"})
        assert (log.topic, log.time, log.time_ns) == (f"t{n % 3}", 1_700_000_000, n)


PROGRAM = """
import sys
sys.modules["pyarrow"] = None
from producer import Producer, ProducerConfig
from producer.testing import RecordingSink
with Producer(sink=RecordingSink()) as producer:
    stream = producer.stream("p", "l")
    stream.send({"n": 1})
    try:
        stream.send_arrow(None)
    except ImportError as error:
        print(error)
"""


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path) -> None:
    """Without pyarrow, only send_arrow fails, and its error names the extra."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout == f"send_arrow needs pyarrow, which is not installed: {how_to_install('arrow')}\n"


def test_pyarrow_is_imported_by_send_arrow_alone() -> None:
    """``import producer`` does not import pyarrow."""
    program = "import sys, producer, producer.testing; sys.exit('pyarrow' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
