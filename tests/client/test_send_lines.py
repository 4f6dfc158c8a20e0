"""``Stream.send_lines`` sends a block of lines in pieces of about a batch, with each implementation of the encoder."""

import mmap
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from producer import (
    InvalidArgumentError,
    LogItem,
    LogSizeTooLargeError,
    Producer,
    ProducerClosedError,
    ProducerError,
    ProjectConfig,
)
from producer.channels import FileChannel, MemoryChannel
from producer.server import LogHubServer
from producer.testing import ManualClock, RecordingSink
from producer.wire.log_group import encode_log
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import eventually
from tests.wire.twins import TWINS

NOW = 1_700_000_000


@pytest.fixture(autouse=True, params=TWINS)
def _twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from producer.client import lines as line_send
    from producer.wire import lines

    if request.param == "native":
        from producer.wire import _lines

        monkeypatch.setattr(line_send, "encode_lines", _lines.encode_lines)
    else:
        monkeypatch.setattr(line_send, "encode_lines", lines.encode_lines)


def make(sink: Any = None, **options: Any) -> Producer:
    """Return a producer with one IO thread: with several, batches overtake each other."""
    channel, clock = options.pop("channel", None), options.pop("clock", None)
    return Producer(
        sink=sink or RecordingSink(), config=config(**{"io_thread_count": 1, **options}), channel=channel, clock=clock
    )


def _released() -> memoryview:
    block = memoryview(b"a")
    block.release()
    return block


def block_of(lines: int, size: int = 100) -> bytes:
    return b"".join(b"%d-%s\n" % (number, b"x" * size) for number in range(lines))


def expected(block: bytes, now: int, key: str = "content") -> list[bytes]:
    return [encode_log(LogItem({key: line}, time=now), now) for line in block.splitlines()]


def test_lines_are_records_of_one_field() -> None:
    """Every line arrives once, in order, encoded as by ``send``, in pieces of a batch; all memory is returned."""
    sink, clock, block = RecordingSink(), ManualClock(), block_of(3000)
    with make(sink, clock=clock, batch_size_threshold_in_bytes=50_000, batch_count_threshold=200) as producer:
        futures = producer.stream("p", "l").send_lines(block)
        producer.flush()
        assert len(futures) == 15
        assert all(future.result().successful for future in futures)
        assert producer.stats().accepted == producer.stats().delivered == 3000
        eventually(lambda: producer.stats().memory_used == 0)
    assert sink.records() == expected(block, int(clock.time()))


def test_the_field_and_the_time_are_the_callers() -> None:
    """The field may have any name; the time is in seconds, or a datetime with a zone, to the microsecond."""
    sink = RecordingSink()
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(microseconds=1)
    with make(sink) as producer:
        stream = producer.stream("p", "l")
        stream.send_lines(b"one", key="größe", time=NOW)
        stream.send_lines(b"two", time=moment)
        producer.flush()
    items = [LogItem({"größe": "one"}, time=NOW), LogItem({"content": "two"}, time=moment)]
    assert sink.records() == [encode_log(item, 0) for item in items]


def test_any_memory_of_bytes_is_a_block(tmp_path: Path) -> None:
    """A mapped file can be sent without reading it first."""
    sink, path = RecordingSink(), tmp_path / "log"
    path.write_bytes(block_of(10))
    with make(sink, clock=(clock := ManualClock())) as producer, path.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            producer.stream("p", "l").send_lines(mapped)
        producer.stream("p", "l").send_lines(bytearray(block_of(10)))
        producer.flush()
    assert sink.records() == expected(block_of(10), int(clock.time())) * 2


def test_a_block_is_as_long_as_its_memory() -> None:
    """The length of a block is that of its memory, whatever a subclass reports."""

    class Longer(bytes):
        def __len__(self) -> int:
            return 1000

    sink = RecordingSink()
    with make(sink, clock=(clock := ManualClock())) as producer:
        producer.stream("p", "l").send_lines(Longer(b"a\nb"))
        producer.flush()
    assert sink.records() == expected(b"a\nb", int(clock.time()))


@pytest.mark.filterwarnings("error")
def test_if_a_block_changes_during_the_call_its_lines_may_be_wrong_but_no_other_memory_is_read() -> None:
    """If a block changes during the call, its lines may be wrong, but no other memory is read."""
    block, ended = bytearray(b"a" * 60_000), threading.Event()

    def change() -> None:
        while not ended.is_set():
            block[:] = b"\xff" * 60_000
            block[:] = b"a" * 59_999 + b"\xff"

    changing = threading.Thread(target=change)
    changing.start()
    try:
        with make() as producer:
            stream = producer.stream("p", "l")
            for _ in range(300):
                stream.send_lines(block)
    finally:
        ended.set()
        changing.join()


def test_an_empty_block_sends_nothing() -> None:
    """An empty block sends nothing."""
    with make() as producer:
        assert producer.stream("p", "l").send_lines(b"") == []
        assert producer.stats().accepted == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"block": "text"}, "block: must be bytes"),
        ({"block": memoryview(b"abcd")[::2]}, "block: must be bytes, or contiguous memory"),
        ({"block": _released()}, "block: must be bytes, or contiguous memory"),
        ({"key": 5}, "field's name must be text"),
        ({"key": "\ud800"}, "not valid Unicode"),
        ({"time": -1}, "time: must be a number of seconds since 1970 from 0"),
        ({"time": datetime(2026, 1, 1)}, "time: a datetime needs a time zone"),
        ({"callback": 5}, "callback: must be None or callable"),
    ],
)
def test_an_invalid_block_is_refused_with_the_name_of_the_argument_nothing_is_accepted(
    arguments: Any, words: str
) -> None:
    """An invalid block is refused with the name of the argument; nothing is accepted."""
    with make() as producer:
        with pytest.raises(InvalidArgumentError, match=words):
            producer.stream("p", "l").send_lines(**{"block": b"a", **arguments})
        assert producer.stats().accepted == 0


def test_a_line_that_is_too_large_is_refused_the_error_has_the_earlier_pieces() -> None:
    """A line that is too large is refused; the error has the earlier pieces."""
    sink = RecordingSink()
    with make(sink) as producer:
        block = b"a\nb\n" + b"x" * (9 << 20) + b"\nc\n"
        with pytest.raises(LogSizeTooLargeError, match="line 2 of send_lines: one batch with this log") as caught:
            producer.stream("p", "l").send_lines(block)
        assert caught.value.accepted_logs == 2
        producer.flush()
        assert [future.result().successful for future in caught.value.accepted] == [True]
    assert len(sink.records()) == 2


def test_an_error_half_way_reports_the_accepted_pieces() -> None:
    """Without memory for the next piece, the error has the futures of the earlier pieces."""
    sink = GatedSink()
    producer = make(sink, total_size_in_bytes=20_000, max_block_ms=0, batch_count_threshold=10)
    with pytest.raises(ProducerError) as caught:
        producer.stream("p", "l").send_lines(block_of(1000))
    assert caught.value.accepted_logs == 10 * len(caught.value.accepted) > 0
    assert producer.stats().accepted == caught.value.accepted_logs
    sink.gate.set()
    producer.close()
    assert len(sink.records()) == caught.value.accepted_logs


def test_a_block_larger_than_the_memory_goes_through() -> None:
    """Each piece waits for memory."""
    sink, block = RecordingSink(), block_of(3000)
    with make(sink, total_size_in_bytes=30_000, max_block_ms=20_000, clock=(clock := ManualClock())) as producer:
        producer.stream("p", "l").send_lines(block)
        producer.flush()
    assert sink.records() == expected(block, int(clock.time()))


def test_a_callback_runs_once_for_each_piece() -> None:
    """A callback runs once for each piece, with its result."""
    results: list[Any] = []
    with make(batch_count_threshold=10) as producer:
        futures = producer.stream("p", "l").send_lines(block_of(25), callback=results.append)
        producer.flush()
    assert len(futures) == len(results) == 3


def test_after_close_nothing_is_accepted() -> None:
    """A closed producer refuses blocks."""
    producer = make()
    stream = producer.stream("p", "l")
    producer.close()
    with pytest.raises(ProducerClosedError):
        stream.send_lines(b"a")


def test_with_a_channel_each_piece_is_a_transaction_stored_pieces_are_delivered_by_the_next_producer(
    tmp_path: Path,
) -> None:
    """With a channel, each piece is a transaction; stored pieces are delivered by the next producer."""
    block = block_of(50)
    channel = MemoryChannel(transaction_capacity=1)
    sink = RecordingSink()
    with make(sink, channel=channel, batch_count_threshold=10) as producer:
        assert len(producer.stream("p", "l").send_lines(block)) == 5
        producer.flush()
    assert len(sink.records()) == 50
    closed = GatedSink()
    left = make(closed, channel=FileChannel(tmp_path), batch_count_threshold=10, drain_timeout_ms=0)
    left.stream("p", "l").send_lines(block, time=NOW)
    closed.gate.set()
    left.close()
    with make(sink := RecordingSink(), channel=FileChannel(tmp_path)) as producer:
        producer.flush()
    assert closed.records() + sink.records() == expected(block, NOW)


def test_lines_arrive_at_a_server() -> None:
    """Lines arrive at a server, including bytes that are not UTF-8."""
    with LogHubServer() as server:
        project = ProjectConfig(
            "p",
            endpoint=server.endpoint,
            access_key_id=server.access_key_id,
            access_key_secret=server.access_key_secret,
        )
        with Producer(project) as producer:
            producer.stream("p", "l").send_lines(b"one\r\n\xff\n\nlast", time=NOW)
            producer.flush()
        stored = server.logs("p", "l")
    assert [dict(log.contents) for log in stored] == [{"content": text} for text in ("one", r"\xff", "", "last")]
