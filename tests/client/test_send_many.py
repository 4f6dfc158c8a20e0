"""``send_many`` enqueues pieces as they fill, and its errors have the accepted pieces."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer import (
    InvalidArgumentError,
    LogSizeTooLargeError,
    Producer,
    ProducerError,
    SendTimeoutError,
)
from producer.channels import FileChannel, MemoryChannel
from producer.model.errors import TransactionFullError
from producer.testing import RecordingSink
from tests.support.log_group_schema import contents_of
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE

LOG = {"a": "b"}


class Source:
    def __init__(self, count: int, size: int = 100, bad: object = None, bad_at: int = -1) -> None:
        self._count, self._size, self._bad, self._bad_at = count, size, bad, bad_at
        self.taken = 0

    def __iter__(self) -> Iterator[Any]:
        for number in range(self._count):
            self.taken += 1
            if number == self._bad_at:
                if isinstance(self._bad, BaseException):
                    raise self._bad
                yield self._bad
            else:
                yield {"i": f"{number}", "x": "x" * self._size}


def _texts(sink: RecordingSink) -> list[int]:
    return [int(log[0][1]) for delivery in sink.deliveries for log in contents_of(delivery.payload.body)]


@pytest.mark.parametrize("budget", [1, 20_000])
def test_logs_are_encoded_only_as_far_as_memory_reaches(budget: int) -> None:
    """Of an endless iterable, only the logs that fit in memory and one piece are encoded."""
    sink, source = GatedSink(), Source(10**9)
    producer = Producer(sink=sink, config=config(total_size_in_bytes=budget, max_block_ms=0, batch_count_threshold=10))
    with pytest.raises(ProducerError) as caught:
        producer.stream("p", "l").send_many(source)
    sink.gate.set()
    producer.close()
    assert isinstance(caught.value, SendTimeoutError if budget > 1 else LogSizeTooLargeError)
    assert source.taken <= caught.value.accepted_logs + 10
    assert _texts(sink) == list(range(caught.value.accepted_logs))
    assert all(future.result(0).successful for future in caught.value.accepted)
    assert (caught.value.accepted_logs > 0) == (budget > 1)


def test_an_iterable_larger_than_the_memory_goes_through_a_small_producer() -> None:
    """Ten times the memory arrives, in order, and the memory is never exceeded."""
    sink, used = RecordingSink(), list[int]()
    with Producer(sink=sink, config=config(total_size_in_bytes=50_000, io_thread_count=1)) as producer:

        def logs() -> Iterator[Any]:
            for log in Source(4000):
                used.append(producer.stats().memory_used)
                yield log

        futures = producer.stream("p", "l").send_many(logs())
        producer.flush(PATIENCE)
    assert all(future.result(0).successful for future in futures)
    assert _texts(sink) == list(range(4000))
    assert max(used) <= 50_000


@pytest.mark.parametrize("bad", [{1: 2}, {"a": object()}, "no log"])
def test_a_wrong_log_is_named_and_the_pieces_before_it_stay_accepted(bad: Any) -> None:
    """The error has the log's position; earlier pieces are delivered."""
    sink = RecordingSink()
    with Producer(sink=sink, config=config(batch_count_threshold=4)) as producer:
        with pytest.raises(InvalidArgumentError, match=r"^log 10 of send_many: ") as caught:
            producer.stream("p", "l").send_many(Source(20, bad=bad, bad_at=10))
        assert (len(caught.value.accepted), caught.value.accepted_logs) == (2, 8)
        producer.flush(PATIENCE)
        assert all(future.result(0).successful for future in caught.value.accepted)
    assert _texts(sink) == list(range(8))


def test_a_piece_is_encoded_as_a_whole_before_it_is_accepted() -> None:
    """A piece is encoded as a whole before it is accepted."""
    with Producer(sink=RecordingSink(), config=config()) as producer:
        with pytest.raises(InvalidArgumentError, match="log 99 of send_many") as caught:
            producer.stream("p", "l").send_many(Source(100, bad={1: 2}, bad_at=99))
        assert caught.value.accepted_logs == 0
        assert producer.stats().accepted == 0


def test_a_log_that_is_too_large_is_a_piece_of_its_own_the_errors_accepted_logs_is_its_position() -> None:
    """A log that is too large is a piece of its own; the error's accepted_logs is its position."""
    with Producer(sink=RecordingSink(), config=config()) as producer:
        with pytest.raises(LogSizeTooLargeError) as caught:
            producer.stream("p", "l").send_many([LOG] * 10 + [{"a": "x" * (9 * 2**20)}])
        assert caught.value.accepted_logs == 10
        producer.flush(PATIENCE)
        assert producer.stats().delivered == 10


def test_an_exception_of_the_callers_iterable_is_raised_unchanged_with_a_note_of_the_accepted_logs() -> None:
    """An exception of the caller's iterable is raised unchanged, with a note of the accepted logs."""
    with Producer(sink=RecordingSink(), config=config(batch_count_threshold=4)) as producer:
        error = OSError("the file ended")
        with pytest.raises(OSError, match="the file ended") as caught:
            producer.stream("p", "l").send_many(Source(20, bad=error, bad_at=10))
        assert caught.value is error
        assert caught.value.__notes__ == ["8 logs, in 2 pieces, had been accepted before; they are delivered"]
        producer.flush(PATIENCE)
        assert producer.stats().delivered == 8


def test_behind_a_channel_more_than_the_memory_is_refused_as_it_comes_and_nothing_is_stored(tmp_path: Path) -> None:
    """One transaction holds all its logs in memory: the error names that, the limit and the remedy."""
    source = Source(10**9)
    with Producer(
        sink=RecordingSink(), config=config(total_size_in_bytes=50_000), channel=FileChannel(tmp_path)
    ) as producer:
        with pytest.raises(LogSizeTooLargeError, match=r"one transaction.*fewer logs at once") as caught:
            producer.stream("p", "l").send_many(source)
        assert caught.value.limit == 50_000
        assert (caught.value.accepted_logs, producer.stats().accepted, producer.stats().stored) == (0, 0, 0)
        assert source.taken < 1000
        assert len(producer.stream("p", "l").send_many(Source(100))) >= 1


def test_behind_a_channel_more_pieces_than_a_transaction_holds_are_refused() -> None:
    """The error has the number of pieces that a transaction holds; nothing is stored."""
    channel = MemoryChannel(100, transaction_capacity=3)
    with Producer(sink=RecordingSink(), config=config(batch_count_threshold=2), channel=channel) as producer:
        with pytest.raises(TransactionFullError, match="3"):
            producer.stream("p", "l").send_many(Source(8))
        assert (producer.stats().accepted, producer.stats().stored) == (0, 0)
        assert len(producer.stream("p", "l").send_many(Source(6))) == 3
