"""The close of a producer with a channel: undelivered records stay there and are reported.

The file is long because it has every way to end.
"""

from __future__ import annotations

import concurrent.futures
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from producer import (
    CloseTimeoutError,
    NetworkError,
    Producer,
    ProducerClosedError,
    ProducerError,
    RejectedError,
    Result,
    SendFuture,
)
from producer.channels import MemoryChannel, ProcessFileChannel, SpillableChannel
from producer.durable.event_format import read_event
from producer.testing import RecordingSink, ScriptedSink
from tests.durable.kit import LOG, KeptChannel, crashed, durable, file_channel, pipeline_of, values
from tests.support.pipelines import config
from tests.support.sinks import DeadSink, GatedSink
from tests.support.waiting import PATIENCE, Call, eventually, passed

_BACKOFFS = ("base_retry_backoff_ms", "max_retry_backoff_ms")


def _alive(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


def _send(producer: Producer, count: int, **options: Any) -> list[SendFuture]:
    return [producer.send("p", "l", {"i": str(i)}, topic=str(i % 3), **options) for i in range(count)]


def test_with_a_server_that_answers_close_leaves_nothing_in_the_channel() -> None:
    """With a server that answers, close leaves nothing in the channel, even of events that were not fed."""
    sink, told = RecordingSink(), []
    channel = KeptChannel()
    producer = durable(sink, channel, name="tidy", linger_ms=10**6)
    futures = _send(producer, 30, callback=told.append)
    producer.close()
    assert all(future.result(0).successful for future in futures)
    assert (len(told), channel.events(), channel.closes) == (30, [], 1)
    assert sink.closed
    eventually(lambda: _alive("tidy") == [])


def test_with_a_small_memory_and_small_transactions_close_still_empties_the_channel() -> None:
    """With a small memory and small transactions, close still empties the channel."""
    sink, channel = GatedSink(), KeptChannel(transaction_capacity=2)
    producer = durable(sink, channel, total_size_in_bytes=20_000, batch_count_threshold=1, drain_timeout_ms=60_000)
    for _ in range(30):
        producer.send("p", "l", {"a": "x" * 1000})
    closing = Call(producer.close)
    eventually(lambda: pipeline_of(producer).feeder._room)
    sink.gate.set()
    closing.result()
    assert (len(sink.records()), channel.events()) == (30, [])


def test_with_a_dead_server_close_raises_nothing_futures_fail_with_leftinchannel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a dead server, close raises nothing; futures fail with LeftInChannel, log and statistics have the number.

    The next producer on the directory delivers everything in order.
    """
    told: list[Result] = []
    producer = durable(DeadSink(), file_channel(tmp_path / "d"), drain_timeout_ms=50, batch_count_threshold=2)
    futures = _send(producer, 20) + _send(producer, 10, callback=told.append)
    done: list[object] = []
    futures[5].add_done_callback(done.append)
    with caplog.at_level(logging.INFO):
        producer.close(PATIENCE)
    results = [future.exception(0).result for future in futures]  # type: ignore[union-attr]
    assert {result.error_code for result in results} == {"LeftInChannel"}
    assert "the next producer on it delivers it" in results[0].error_message
    assert not any(result.may_have_been_stored for result in results)
    assert (len(told), len(done)) == (10, 1)
    assert "30 events stay in channel d" in caplog.text
    assert producer.stats().stored == 30
    assert (producer.stats().failed, producer.stats().memory_used) == (0, 0)
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", LOG)
    sink = RecordingSink()
    with durable(sink, file_channel(tmp_path / "d")) as second:
        second.flush(PATIENCE)
        assert second.stats().recovered == 30
    for topic in "012":
        own = [str(i) for i in range(20) if i % 3 == int(topic)] + [str(i) for i in range(10) if i % 3 == int(topic)]
        assert values(sink, topic) == own


def test_after_the_time_of_the_retries_no_attempt_starts_but_an_attempt_in_flight_may_still_succeed() -> None:
    """After the time of the retries no attempt starts, but an attempt in flight may still succeed."""
    sink, channel = GatedSink(), KeptChannel()
    producer = durable(sink, channel, drain_timeout_ms=0, batch_count_threshold=1, io_thread_count=1)
    futures = [producer.send("p", "l", {"i": str(i)}) for i in range(5)]
    assert sink.entered.acquire(timeout=PATIENCE)
    closing = Call(producer.close)
    eventually(futures[4].done)
    assert not futures[0].done()
    sink.gate.set()
    closing.result()
    assert futures[0].result(0).successful
    assert [future.exception(0) is None for future in futures] == [True, False, False, False, False]
    assert values(sink) == ["0"]
    assert len(channel.events()) == 4


def test_a_record_that_is_still_in_the_channel_is_completed_when_the_feeder_ends() -> None:
    """A record that is still in the channel is completed when the feeder ends, without waiting for attempts in
    flight.
    """
    sink, channel = GatedSink(), KeptChannel()
    producer = durable(sink, channel, drain_timeout_ms=0, batch_count_threshold=1, total_size_in_bytes=10_000)
    first = producer.send("p", "l", LOG)
    assert sink.entered.acquire(timeout=PATIENCE)
    late = producer.send("p", "l", {"a": "b" * 4000})  # more than the memory has beside the first
    closing = Call(producer.close)
    eventually(late.done)
    assert not first.done()
    sink.gate.set()
    closing.result()
    assert late.exception(0).result.error_code == "LeftInChannel"  # type: ignore[union-attr]
    assert (first.result(0).successful, len(channel.events())) == (True, 1)


def test_a_batch_that_waits_for_a_retry_is_retained_at_the_close(request: pytest.FixtureRequest) -> None:
    """A batch that waits for a retry is retained at the close, even if the thread of its last attempt still
    holds it.
    """

    class Slow(logging.Handler):
        """Holds the thread whose batch has just begun to wait for another attempt."""

        came, may_go = threading.Event(), threading.Event()

        def emit(self, record: logging.LogRecord) -> None:
            if "next attempt in" in record.msg:
                self.came.set()
                assert self.may_go.wait(PATIENCE)

    slow, logger = Slow(), logging.getLogger("loghub.send_task")
    level = logger.level
    request.addfinalizer(lambda: (logger.removeHandler(slow), logger.setLevel(level)))
    logger.addHandler(slow)
    logger.setLevel(logging.DEBUG)
    channel = KeptChannel()
    producer = durable(DeadSink(), channel, drain_timeout_ms=0, batch_count_threshold=1, base_retry_backoff_ms=60_000,
                       max_retry_backoff_ms=60_000)  # fmt: skip
    future = producer.send("p", "l", LOG)
    assert slow.came.wait(PATIENCE)
    closing = Call(producer.close)
    try:
        eventually(future.done)
    finally:
        slow.may_go.set()
    closing.result()
    assert len(channel.events()) == 1


def test_close_timeout_ends_in_time_names_the_hanging_thread_and_the_record_stays_in_the_channel() -> None:
    """close(timeout) ends in time, names the hanging thread, and the record stays in the channel."""

    sink, channel = GatedSink(), KeptChannel()
    producer = durable(sink, channel, name="late", io_thread_count=1, batch_count_threshold=1)
    future = producer.send("p", "l", LOG)
    assert sink.entered.acquire(timeout=PATIENCE)
    with pytest.raises(CloseTimeoutError) as caught:
        producer.close(0.1)
    assert (caught.value.failed_records, caught.value.stuck) == (0, ("late-io-0",))
    error = future.exception(0)
    assert error is not None
    assert (error.result.error_code, error.result.may_have_been_stored) == ("LeftInChannel", True)
    assert len(channel.events()) == 1
    sink.gate.set()
    eventually(lambda: _alive("late") == [])
    assert producer.stats().stored == 1


def test_no_later_batch_of_a_stream_overtakes_one_that_is_left() -> None:
    """If the first batch of a stream fails during the close, those behind it are retained as well, in order."""
    script = [NetworkError("R", "x")] * 3
    for attempt in range(3):
        sink, channel = ScriptedSink(script[:attempt]), KeptChannel()
        gated = GatedSink(*script[:attempt])
        producer = durable(gated, channel, drain_timeout_ms=0, batch_count_threshold=1)
        for i in range(6):
            producer.send("p", "l", {"i": str(i)})
        assert gated.entered.acquire(timeout=PATIENCE)
        closing = Call(producer.close)
        eventually(lambda producer=producer: pipeline_of(producer).pipeline.accumulator.frozen)
        gated.gate.set()
        closing.result()
        with durable(sink, channel) as second:
            second.flush(PATIENCE)
        assert values(gated) + values(sink) == [str(i) for i in range(6)]


def test_a_stream_with_thousands_of_batches_is_left_as_a_whole(caplog: pytest.LogCaptureFixture) -> None:
    """Close retains a long line behind a batch that waits for a retry, and sends none of it."""
    sink, channel = DeadSink(), KeptChannel()
    producer = durable(sink, channel, drain_timeout_ms=0, batch_count_threshold=1, **dict.fromkeys(_BACKOFFS, 40_000))
    producer.stream("p", "l").send_many({"i": str(i)} for i in range(3000))
    eventually(lambda: pipeline_of(producer).feeder.fed == 3000 and producer.stats().batches["waiting"] == 1)
    producer.close(PATIENCE)
    assert (len(channel.events()), producer.stats().memory_used, len(sink.attempts)) == (3000, 0, 1)
    assert "Traceback" not in caplog.text


def test_a_batch_that_is_cut_while_the_producer_closes_is_left_in_the_channel() -> None:
    """The halves of a batch that is split during the close are not sent; the next producer delivers the whole."""
    from producer import BodyTooLargeError

    sink, channel = GatedSink(BodyTooLargeError("PostBodyTooLarge", "x")), KeptChannel()
    producer = durable(sink, channel, drain_timeout_ms=0, batch_count_threshold=4)
    futures = [producer.send("p", "l", {"i": str(i)}) for i in range(4)]
    assert sink.entered.acquire(timeout=PATIENCE)
    closing = Call(producer.close)
    eventually(lambda: pipeline_of(producer).pipeline.accumulator.frozen)
    sink.gate.set()
    closing.result()
    assert {future.exception(0).result.error_code for future in futures} == {"LeftInChannel"}  # type: ignore[union-attr]
    assert len(channel.events()) == 4


def test_a_permanent_failure_while_closing_still_reaches_the_dead_letters() -> None:
    """A record refused in the last moment becomes a dead letter before the channels are closed."""
    sink, channel, dead = GatedSink(RejectedError("C", "x")), KeptChannel(), KeptChannel()
    producer = durable(sink, channel, dead_letter=dead, drain_timeout_ms=0, batch_count_threshold=1)
    producer.send("p", "l", LOG)
    assert sink.entered.acquire(timeout=PATIENCE)
    closing = Call(producer.close)
    eventually(lambda: pipeline_of(producer).pipeline.accumulator.frozen)
    sink.gate.set()
    closing.result()
    assert (len(channel.events()), len(dead.events())) == (0, 1)
    assert (channel.closes, dead.closes) == (1, 1)


def test_futures_in_the_channel_wake_their_waiters_when_the_producer_closes() -> None:
    """result(), concurrent.futures.wait and callbacks of records in no batch are all notified."""
    sink, channel, told = GatedSink(), KeptChannel(), []
    producer = durable(sink, channel, total_size_in_bytes=6000, drain_timeout_ms=0, io_thread_count=1)
    futures = [producer.send("p", "l", {"x": "x" * 1000}, callback=told.append) for _ in range(30)]
    assert sink.entered.acquire(timeout=PATIENCE)
    waiter = Call(lambda: futures[29].exception(PATIENCE))
    several = Call(lambda: concurrent.futures.wait(futures[20:], PATIENCE))
    eventually(lambda: futures[25]._watch is not None and futures[25]._watch.waiters)
    sink.gate.set()
    producer.close(PATIENCE)
    assert waiter.result().result.error_code == "LeftInChannel"
    assert len(several.result().done) == 10
    assert len(told) == 30


def test_close_follows_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is feeder, memory, accumulator, mover, IO pool, retries, acks, handlers, sink, channel, dead
    letters.
    """
    sink, channel, dead = RecordingSink(), KeptChannel(), KeptChannel()
    producer = durable(sink, channel, dead_letter=dead)
    one = pipeline_of(producer)
    order: list[str] = []

    def watch(owner: object, method: str, name: str) -> None:
        original = getattr(owner, method)
        monkeypatch.setattr(owner, method, lambda *arguments: order.append(name) or original(*arguments))

    watch(one.feeder, "stop", "feeder")
    watch(one.pipeline.budget, "close", "memory")
    watch(one.pipeline.accumulator, "close", "accumulator")
    watch(one.pipeline.mover, "stop", "mover")
    watch(one.pipeline.io_pool, "stop_at_once", "io pool")
    watch(one.pipeline.retry_queue, "close", "retry queue")
    watch(one.acks, "stop", "acks")
    watch(one.pipeline.settlement.success, "stop", "success")
    watch(one.pipeline.settlement.failure, "stop", "failure")
    watch(sink, "close", "sink")
    watch(one.feeder.takings[0], "roll_back", "give back")
    watch(channel, "close", "channel")
    watch(dead, "close", "dead letters")
    producer.close()
    stages = ["feeder", "memory", "accumulator", "mover", "io pool", "retry queue", "acks", "success", "failure"]
    assert order == [*stages, "sink", "give back", "channel", "dead letters"]


def test_the_sender_gets_producerclosederror_and_no_future_that_never_completes(tmp_path: Path) -> None:
    """The sender gets ProducerClosedError, and no future that never completes."""
    channel = file_channel(tmp_path / "d", capacity=1, transaction_capacity=1)
    producer = durable(DeadSink(), channel, max_block_ms=-1, drain_timeout_ms=0)
    told: list[Result] = []
    producer.send("p", "l", LOG)
    sender = Call(lambda: producer.send("p", "l", LOG, callback=told.append))
    eventually(lambda: producer.stats().waiting_senders == 1)
    producer.close()
    with pytest.raises(ProducerClosedError, match="closed while send waited for room"):
        sender.result()
    assert told == []


def test_a_put_that_is_committed_after_the_sweep_of_close_is_settled_by_its_sender() -> None:
    """No instant of close leaves a future without an end."""
    channel = KeptChannel()
    producer = durable(RecordingSink(), channel, drain_timeout_ms=0)  # close waits this long for the put
    one = pipeline_of(producer)
    transaction, told = channel.transaction, []

    def closing_meanwhile() -> Any:
        real = transaction()
        commit = real.commit

        def late(timeout: float | None = None) -> Any:
            if threading.current_thread() is threading.main_thread():
                channel.transaction = transaction  # type: ignore[method-assign]
                Call(producer.close).result()
            return commit(timeout)

        real.commit = late  # type: ignore[method-assign]
        return real

    channel.transaction = closing_meanwhile  # type: ignore[method-assign,assignment]
    future = producer.send("p", "l", LOG, callback=told.append)
    assert future.exception(PATIENCE).result.error_code == "LeftInChannel"  # type: ignore[union-attr]
    eventually(lambda: len(told) == 1)
    assert len(channel.events()) == 1
    assert len(one.registry) == 0


class _GatedChannel(KeptChannel):
    """Holds commits of puts until its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.came, self.gate = threading.Event(), threading.Event()

    def _commit_at_once(self, transaction: Any, *arguments: Any) -> bool:
        if transaction.puts:
            self.came.set()
            assert self.gate.wait(PATIENCE)
        return super()._commit_at_once(transaction, *arguments)


def test_a_send_that_had_begun_when_close_did_is_delivered_where_the_server_answers() -> None:
    """A record accepted before the close is stored, fed and delivered, and its future completes."""
    sink, channel = RecordingSink(), _GatedChannel()
    producer = durable(sink, channel, drain_timeout_ms=60_000)
    sender = Call(lambda: producer.send("p", "l", LOG))
    passed(channel.came)
    closing, one = Call(producer.close), pipeline_of(producer)
    eventually(lambda: closing.done or (one.admission.refusing and one.admission._ends))
    channel.gate.set()
    assert sender.result().result(PATIENCE).successful
    closing.result()
    assert (values(sink), channel.events()) == (["b"], [])


def test_a_send_that_is_only_about_to_begin_when_close_does_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close does not wait for a send that has not begun: it stores nothing, and raises."""
    channel = KeptChannel()
    producer = durable(RecordingSink(), channel)
    producer.send("p", "l", LOG).result(PATIENCE)
    monkeypatch.setattr(pipeline_of(producer), "start", lambda: Call(producer.close).result())
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", LOG)
    assert (channel.events(), len(pipeline_of(producer).registry)) == ([], 0)


@pytest.mark.parametrize("spills", [False, True])
def test_with_a_memory_channel_the_future_does_not_promise_another_producer(
    caplog: pytest.LogCaptureFixture, spills: bool
) -> None:
    """With a memory channel, the future does not promise another producer."""
    memory = MemoryChannel(name="m")
    channel = SpillableChannel(memory, KeptChannel(), name="m") if spills else memory
    producer = durable(DeadSink(), channel, drain_timeout_ms=50)
    future = producer.send("p", "l", LOG)
    with caplog.at_level(logging.INFO):
        producer.close(PATIENCE)
    result = future.exception(0).result  # type: ignore[union-attr]
    assert result.error_code == "LeftInChannel"
    assert "what channel m had in memory is lost" in result.error_message
    assert "1 event stays in channel m and what is in memory is lost" in caplog.text
    assert "channel m: closed with 1 event that was not taken: it is lost" in caplog.text


def test_fifty_threads_that_send_while_one_closes_have_one_outcome_each() -> None:
    """Accepted sends = callbacks = delivered + retained, at any moment of close; retained records are in the
    channel.
    """
    told: list[Result] = []
    # All retained records are read in one transaction.
    channel, sink = KeptChannel(capacity=100_000, transaction_capacity=100_000), RecordingSink()
    producer = durable(sink, channel, drain_timeout_ms=0, batch_count_threshold=7)
    accepted: list[int] = []
    begun = threading.Barrier(21)

    def send() -> None:
        begun.wait()
        count = 0
        try:
            while True:
                producer.send("p", "l", LOG, topic=str(count % 3), callback=told.append)
                count += 1
        except ProducerClosedError:
            accepted.append(count)

    senders = [Call(send) for _ in range(20)]
    begun.wait()
    eventually(lambda: len(told) > 500)
    producer.close(PATIENCE)
    for sender in senders:
        sender.result()
    eventually(lambda: len(told) == sum(accepted))
    left = sum(result.error_code == "LeftInChannel" for result in told)
    assert len(channel.events()) == left
    assert len(sink.records()) == sum(accepted) - left
    assert producer.stats().memory_used == 0


def test_a_close_in_a_callback_ends_everything_a_later_one_returns_at_once() -> None:
    """A close in a callback ends everything; a later one returns at once."""
    channel = KeptChannel()
    producer = durable(RecordingSink(), channel, name="inside", batch_count_threshold=1)
    producer.send("p", "l", LOG, callback=lambda _result: producer.close())
    eventually(lambda: channel.closes == 1)
    producer.close(PATIENCE)
    eventually(lambda: _alive("inside") == [])
    assert channel.closes == 1
    producer.flush()


def test_a_producer_that_was_dropped_is_drained_and_gives_its_channel_back() -> None:
    """A producer without references delivers, closes its channels, and its threads end."""
    sink, channel = RecordingSink(), KeptChannel()
    producer = durable(sink, channel, name="dropped")
    producer.send("p", "l", LOG)
    del producer
    gc.collect()
    eventually(lambda: channel.closes == 1)
    eventually(lambda: _alive("dropped") == [])
    assert values(sink) == ["b"]
    assert channel.events() == []


def test_the_error_is_logged_the_dead_letter_channel_is_closed_and_close_ends(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged, the dead letter channel is closed, and close ends."""
    channel, dead = KeptChannel(), KeptChannel()
    channel.close = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    durable(RecordingSink(), channel, dead_letter=dead).close()
    assert dead.closes == 1
    assert "ZeroDivisionError" in caplog.text


def test_after_a_crash_with_records_stored_fed_in_flight_and_delivered_all_arrive_in_order(tmp_path: Path) -> None:
    """After a crash with records stored, fed, in flight and delivered, all arrive, in order, at least once."""
    sink, channel = GatedSink(), file_channel(tmp_path / "before")
    producer = durable(sink, channel, batch_count_threshold=5, total_size_in_bytes=20_000, drain_timeout_ms=0)
    sink.gate.set()
    _send(producer, 30)
    producer.flush(PATIENCE)
    sink.gate.clear()
    for i in range(30, 200):
        producer.send("p", "l", {"i": str(i)}, topic=str(i % 3))
    eventually(lambda: producer.stats().batches["sending"] == 2)
    after = RecordingSink()
    with durable(after, crashed(channel, tmp_path / "after")) as second:
        second.flush(PATIENCE)
        assert second.stats().recovered == 170
        assert second.stats().stored == 0
    for topic in range(3):
        assert values(after, str(topic)) == [str(i) for i in range(30, 200) if i % 3 == topic]
    sink.gate.set()
    producer.close()


_PROGRAM = """
import logging, os, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
sys.path.insert(0, os.getcwd())
from producer import Producer, ProducerConfig
from producer.channels import FileChannel
from tests.support.sinks import DeadSink
config = ProducerConfig(linger_ms=100, drain_timeout_ms=300, source="here", name="child")
producer = Producer(sink=DeadSink(), config=config, channel=FileChannel(sys.argv[1], minimum_free_space=0))
for i in range(10):
    producer.send("p", "l", {"i": str(i)})
"""

_FORK = """
pid = os.fork()
if not pid:
    try:
        producer.send("p", "l", {})
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("", ["10 events stay in channel"]),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", []),
        (
            _FORK,
            ["ChannelClosedError", "ProcessFileChannel", "10 events stay in channel"],
        ),
    ],
    ids=["exit", "kill", "fork"],
)
def test_a_process_that_ends_without_close_leaves_its_records_to_the_next(
    ending: str, expected: list[str], tmp_path: Path
) -> None:
    """At exit, records are retained and counted, not reported as lost; SIGKILL loses nothing; a forked child is
    refused.
    """
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM + ending, str(tmp_path / "d")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=root,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        check=False,
    )
    assert ended.returncode == (-signal.SIGKILL if "KILL" in ending else 0), ended.stderr
    for words in expected:
        assert words in ended.stdout
    assert "lost" not in ended.stdout + ended.stderr
    sink = RecordingSink()
    with durable(sink, file_channel(tmp_path / "d")) as producer:
        producer.flush(PATIENCE)
    assert values(sink) == [str(i) for i in range(10)]


_FAMILY = """
import os, sys
sys.path.insert(0, os.getcwd())
from producer import Producer, ProducerConfig
from producer.channels import ProcessFileChannel
from tests.support.sinks import DeadSink
config = ProducerConfig(linger_ms=100, drain_timeout_ms=100, source="here")
producer = Producer(sink=DeadSink(), config=config, channel=ProcessFileChannel(sys.argv[1], minimum_free_space=0))
for i in range(10):
    producer.send("p", "l", {"i": str(i)}, topic="parent")
pid = os.fork()
for i in range(10, 20):
    producer.send("p", "l", {"i": str(i)}, topic="parent" if pid else "child")
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_records_of_the_parent_and_of_dead_children_are_adopted(
    tmp_path: Path,
) -> None:
    """Each process has a directory of its own; records of the parent and of the dead child are adopted."""
    ended = subprocess.run(
        [sys.executable, "-c", _FAMILY, str(tmp_path / "base")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    sink = RecordingSink()
    channel = ProcessFileChannel(tmp_path / "base", minimum_free_space=0)
    with durable(sink, channel) as producer:
        eventually(lambda: len(values(sink)) >= 30)
        producer.flush(PATIENCE)
    assert values(sink, "parent") == [str(i) for i in range(20)]
    assert values(sink, "child") == [str(i) for i in range(10, 20)]


def test_in_a_forked_child_the_futures_of_the_parent_are_done() -> None:
    """In the child, no thread waits for records of the parent; a memory channel works there."""
    sink, channel = GatedSink(), KeptChannel()
    producer = durable(sink, channel, total_size_in_bytes=6000, drain_timeout_ms=0, io_thread_count=1)
    futures = [producer.send("p", "l", {"x": "x" * 1000}) for _ in range(20)]
    assert sink.entered.acquire(timeout=PATIENCE)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:  # the child has one thread, and must end without the tests' own ending
        said = b"failed"
        try:
            codes = {future.exception(1).result.error_code for future in futures}  # type: ignore[union-attr]
            futures[19].add_done_callback(lambda _future: None)
            sink.gate.set()
            own = producer.send("p", "l", LOG).result(PATIENCE).successful
            said = (
                b"well" if codes == {"ForkedAway"} and own and producer.stats().recovered == 0 else repr(codes).encode()
            )
        finally:
            os.write(write, said)
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 1000) == b"well"
    os.close(read)
    os.close(write)
    sink.gate.set()
    producer.flush(PATIENCE)
    assert len(sink.records()) == 20
    producer.close()


def test_records_of_a_closed_producer_keep_their_stable_names(tmp_path: Path) -> None:
    """The id that the first producer gave a record is the one that the next one finds."""
    channel = KeptChannel()
    producer = durable(DeadSink(), channel, drain_timeout_ms=0)
    _send(producer, 3)
    producer.close()
    idents = [read_event(event).ident for event in channel.events()]
    assert len(set(idents)) == 3
    second = durable(DeadSink(), channel, drain_timeout_ms=0)
    second.close()
    assert [read_event(event).ident for event in channel.events()] == idents


def test_in_an_interpreter_that_starts_no_more_threads_send_stores_the_record(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In an interpreter that starts no more threads, send stores the record, and the future says that it stays in the
    channel.
    """

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    channel = KeptChannel()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        producer = Producer(sink=RecordingSink(), channel=channel, config=config())
        future = producer.send("p", "l", LOG)
        assert future.exception(0).result.error_code == "LeftInChannel"  # type: ignore[union-attr]
        producer.flush(0)
        producer.close()
    assert "stay in the channel" in caplog.text
    assert len(channel.events()) == 1


class _BadEndSink(RecordingSink):
    def close(self) -> None:
        raise OSError("the file system is gone")


@pytest.mark.parametrize("behind", [False, True], ids=["plain", "with a channel"])
def test_the_first_close_raises_the_sinks_error_when_all_else_is_closed_and_no_later_close_does(
    tmp_path: Path, behind: bool
) -> None:
    """The first close raises the sink's error, when all else is closed, and no later close does."""
    channel = file_channel(tmp_path / "d") if behind else None
    producer = Producer(sink=_BadEndSink(), channel=channel)
    producer.send("p", "l", LOG)
    with pytest.raises(OSError, match="the file system is gone"):
        producer.close()
    producer.close()
    if channel is not None:
        file_channel(tmp_path / "d").close()  # it is no longer locked


def test_a_flush_that_interrupts_a_call_of_the_channel_is_refused(tmp_path: Path) -> None:
    """A signal handler interrupts a call that holds a lock which the flush needs: the flush is refused."""
    channel = file_channel(tmp_path / "d")
    with Producer(sink=RecordingSink(), channel=channel) as producer:
        producer.send("p", "l", LOG).result(PATIENCE)
        with channel._log._writing, pytest.raises(ProducerError, match="make that call on another thread"):
            producer.flush()
        producer.flush()
