"""From ``send`` through a channel to the server, and to the sender's future.

The file is long because it has all promises of one producer.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import socket
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from producer import (
    ChannelFullError,
    ConfigError,
    DiskFullError,
    FlushTimeoutError,
    LogSizeTooLargeError,
    MaxBatchCountExceedError,
    NetworkError,
    Producer,
    ProducerError,
    ProjectConfig,
    RejectedError,
    Result,
    SendTimeoutError,
    TransactionFullError,
    UnauthorizedError,
)
from producer.channels import MemoryChannel, SpillableChannel
from producer.model.interfaces import Delivery, Event
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.durable.kit import LOG, KeptChannel, by_hand, drive, durable, file_channel, pipeline_of, values
from tests.support.pipelines import KEY, config, record
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, eventually, passed

REJECTED = RejectedError("ParameterInvalid", "no", http_status=400)


def test_send_returns_when_the_record_is_on_disk_and_the_future_completes_on_delivery(tmp_path: Path) -> None:
    """While the server hangs, the future is stored and not done; afterwards it has the server's answer."""
    sink = GatedSink()
    producer = durable(sink, file_channel(tmp_path / "d"))
    future = producer.send("p", "l", LOG)
    assert future.stored
    assert not future.done()
    assert sink.entered.acquire(timeout=PATIENCE)
    assert producer.stats().stored == 1
    sink.gate.set()
    assert future.result(PATIENCE).request_id
    assert future.stored
    producer.close()
    assert producer.stats().stored == 0


def test_without_a_channel_a_future_is_never_stored() -> None:
    """Without a channel, future.stored is False, and the statistics have no channel."""
    with Producer(sink=RecordingSink(), config=config()) as producer:
        future = producer.send("p", "l", LOG)
        producer.flush()
        assert (future.stored, producer.stats().stored, producer.stats().channel) == (False, 0, None)


def test_stored_follows_the_sync_of_a_channel_that_syncs_later(tmp_path: Path) -> None:
    """With an interval, stored is False at first, and True once the channel has synced."""
    channel = file_channel(tmp_path / "d", fsync=3600.0)
    producer = durable(GatedSink(), channel, drain_timeout_ms=0)
    future = producer.send("p", "l", LOG)
    assert not future.stored
    channel.sync()
    assert future.stored
    sink = producer._sink
    assert isinstance(sink, GatedSink)
    sink.gate.set()
    producer.close()


@pytest.mark.parametrize("kind", ["file", "memory", "spillable"])
def test_with_any_channel_records_of_eight_threads_arrive_once_in_the_order_of_their_streams(
    kind: str, tmp_path: Path
) -> None:
    """With any channel, records of eight threads arrive once, in the order of their streams, and the channel is
    empty.
    """
    channel: Any = {
        "file": lambda: file_channel(tmp_path / "d"),
        "memory": MemoryChannel,
        "spillable": lambda: SpillableChannel(MemoryChannel(50, 50), file_channel(tmp_path / "d")),
    }[kind]()
    sink = RecordingSink()
    with durable(sink, channel, batch_count_threshold=20) as producer:

        def send(name: int) -> None:
            stream = producer.stream("p", "l", topic=str(name))
            for i in range(0, 100, 2):
                stream.send({"i": str(i)})
                stream.send_many([{"i": str(i + 1)}])

        threads = [threading.Thread(target=send, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(PATIENCE)
        assert producer.stats().stored == 0
        assert producer.stats().accepted == producer.stats().delivered == 800
    for name in range(8):
        assert values(sink, str(name)) == [str(i) for i in range(100)]


def test_all_pieces_are_stored_or_none() -> None:
    """All pieces are stored, or none: without room for the last one, nothing is."""
    channel = KeptChannel(capacity=5, transaction_capacity=5)
    sink = GatedSink()
    producer = durable(sink, channel, batch_count_threshold=10, max_block_ms=0, drain_timeout_ms=0)
    stream = producer.stream("p", "l")
    futures = stream.send_many({"i": str(i)} for i in range(35))
    assert len(futures) == 4
    with pytest.raises(SendTimeoutError) as caught:
        stream.send_many({"i": str(i)} for i in range(35))
    assert (caught.value.accepted, caught.value.accepted_logs) == ((), 0)
    with pytest.raises(TransactionFullError):
        stream.send_many({"i": str(i)} for i in range(100))
    assert stream.send_many([]) == []
    assert (producer.stats().accepted, producer.stats().stored) == (35, 4)
    eventually(lambda: len(pipeline_of(producer).registry) == 0)
    sink.gate.set()
    producer.flush(PATIENCE)
    assert all(future.result(0).successful for future in futures)
    assert values(sink) == [str(i) for i in range(35)]
    producer.close()


def test_after_max_block_ms_sendtimeouterror_has_the_channels_own_error_as_its_cause() -> None:
    """After max_block_ms, SendTimeoutError has the channel's own error as its cause; it can be pickled."""
    channel = KeptChannel(capacity=1, transaction_capacity=1, name="mine")
    sink = GatedSink()
    producer = durable(sink, channel, max_block_ms=1, drain_timeout_ms=0)
    producer.send("p", "l", LOG)
    told: list[Result] = []
    with pytest.raises(SendTimeoutError, match=r"no room in channel mine within .* max_block_ms") as caught:
        producer.send("p", "l", LOG, callback=told.append)
    error = caught.value
    assert isinstance(error.__cause__, ChannelFullError)
    assert error.waited > 0
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    sink.gate.set()
    producer.flush(PATIENCE)
    assert producer.send("p", "l", LOG).result(PATIENCE).successful
    producer.close()
    assert told == []


def test_a_send_waits_for_room_as_long_as_max_block_ms_says() -> None:
    """A full channel blocks the sender until a delivery makes room."""
    sink, channel = GatedSink(), KeptChannel(capacity=1, transaction_capacity=1)
    producer = durable(sink, channel, max_block_ms=-1)
    producer.send("p", "l", LOG)
    sent = threading.Event()
    thread = threading.Thread(target=lambda: (producer.send("p", "l", LOG), sent.set()))
    thread.start()
    eventually(lambda: producer.stats().waiting_senders == 1)
    assert not sent.is_set()
    sink.gate.set()
    passed(sent)
    thread.join()
    producer.close()
    assert len(sink.deliveries) == 2


def test_a_disk_that_is_full_refuses_the_send_in_its_own_words(tmp_path: Path) -> None:
    """The sender gets DiskFullError; nothing was accepted, and no callback runs."""
    told: list[Result] = []
    with durable(RecordingSink(), file_channel(tmp_path / "d", minimum_free_space=2**60)) as producer:
        with pytest.raises(DiskFullError, match="free"):
            producer.send("p", "l", LOG, callback=told.append)
        assert (producer.stats().accepted, producer.stats().stored) == (0, 0)
    assert told == []


def test_a_log_or_list_that_is_too_large_raises_as_without_a_channel_and_is_not_stored() -> None:
    """A log or list that is too large raises as without a channel, and is not stored."""
    with durable(RecordingSink(), KeptChannel()) as producer:
        with pytest.raises(LogSizeTooLargeError):
            producer.send("p", "l", {"a": "x" * (8 * 2**20)})
        with pytest.raises(MaxBatchCountExceedError):
            producer.send("p", "l", [{}] * 40_961)
        assert producer.stats().stored == 0


def test_a_refused_batch_fails_the_batches_before_and_behind_it_are_delivered_in_order() -> None:
    """A refused batch fails; the batches before and behind it are delivered in order."""
    sink = ScriptedSink([None, REJECTED])
    with durable(sink, KeptChannel(), batch_count_threshold=1) as producer:
        futures = [producer.send("p", "l", {"i": str(i)}) for i in range(5)]
        producer.flush(PATIENCE)
        assert [future.exception(0) is None for future in futures] == [True, False, True, True, True]
    assert values(sink) == ["0", "2", "3", "4"]


def test_more_401_in_a_row_than_a_producer_without_a_channel_accepts_do_not_fail_the_record() -> None:
    """More 401 in a row than a producer without a channel accepts do not fail the record."""
    sink = ScriptedSink([UnauthorizedError("Unauthorized", "x", http_status=401)] * 20)
    with durable(sink, KeptChannel(), retries=0) as producer:
        assert producer.send("p", "l", LOG).result(PATIENCE).attempt_count == 21


def test_delivery_timeout_makes_a_record_a_dead_letter() -> None:
    """With delivery_timeout_ms, an outage ends in the dead letters, with the last error."""
    clock, dead = ManualClock(), KeptChannel()
    sink = ScriptedSink([NetworkError("RequestError", "down")] * 10_000)
    one = by_hand(sink, KeptChannel(), dead, clock, delivery_timeout_ms=60_000)
    future = one.admission.accept(KEY, record(), 1, None)
    for _ in range(100):
        drive(one)
        assert not future.done() or clock.monotonic() >= 60
        clock.advance(1)
    error = future.exception(0)
    assert error is not None
    assert error.result.error_code == "RequestError"
    assert [event.headers["error_code"] for event in dead.events()] == ["RequestError"]
    assert one.stored == 0


def test_callbacks_run_on_the_handler_threads_and_once() -> None:
    """Callbacks and done-callbacks run once on the success and failure threads, as without a channel."""
    told: list[tuple[str, bool]] = []
    with durable(ScriptedSink([REJECTED]), KeptChannel(), name="told", batch_count_threshold=1) as producer:
        for _ in range(3):
            producer.send(
                "p", "l", LOG, callback=lambda r: told.append((threading.current_thread().name, r.successful))
            ).add_done_callback(lambda f: told.append((threading.current_thread().name, f.exception() is None)))
        producer.flush(PATIENCE)
    assert sorted(told) == [("told-failure", False)] * 2 + [("told-success", True)] * 4


def test_a_future_can_be_awaited_while_its_record_is_in_the_channel() -> None:
    """await works before the feeder takes the event, even if no other code refers to the future."""

    async def main() -> Result:
        return await producer.send("p", "l", LOG)

    with durable(RecordingSink(), KeptChannel()) as producer:
        assert asyncio.run(main()).successful


def test_a_callback_may_send_and_never_waits_for_room() -> None:
    """A send in a callback into a full channel fails at once, and the producer continues."""
    sink, channel, outcomes = GatedSink(), KeptChannel(capacity=2, transaction_capacity=2), []
    producer = durable(sink, channel, max_block_ms=-1, batch_count_threshold=1)

    def callback(_result: Result) -> None:
        try:
            for _ in range(5):
                producer.send("p", "l", LOG)
        except SendTimeoutError as error:
            outcomes.append(error)

    producer.send("p", "l", LOG, callback=callback)
    sink.gate.set()
    eventually(lambda: outcomes)
    producer.flush(PATIENCE)
    producer.close()


def test_while_a_callback_blocks_its_thread_delivered_events_are_acknowledged() -> None:
    """While a callback blocks its thread, delivered events are acknowledged."""
    gate = threading.Event()
    with durable(RecordingSink(), KeptChannel(), batch_count_threshold=1) as producer:
        producer.send("p", "l", LOG, callback=lambda _result: gate.wait(PATIENCE))
        producer.send("p", "l", LOG)
        eventually(lambda: producer.stats().delivered == 2 and producer.stats().stored == 0)
        gate.set()


def test_flush_waits_for_everything_that_is_in_the_channel() -> None:
    """After flush, recovered, waiting and in-flight events are delivered, and every callback has run."""
    channel = KeptChannel()
    first = by_hand(ScriptedSink(), channel)
    for i in range(50):
        first.admission.accept(KEY, record(f"old {i}"), 1, None)
    first.give_back()
    told: list[Result] = []
    sink = RecordingSink()
    with durable(sink, channel, total_size_in_bytes=30_000, linger_ms=100) as producer:
        for i in range(100):
            producer.send("p", "l", {"i": f"{i}", "x": "x" * 1000}, callback=told.append)
        producer.flush(PATIENCE)
        assert len(told) == 100
        assert producer.stats().stored == 0
        assert len(sink.records()) == 150


def test_flushtimeouterror_counts_batches_and_events_the_deliveries_continue() -> None:
    """FlushTimeoutError counts batches and events; the deliveries continue."""
    sink = GatedSink()
    producer = durable(sink, KeptChannel(), batch_count_threshold=1)
    producer.send("p", "l", LOG)
    assert sink.entered.acquire(timeout=PATIENCE)
    with pytest.raises(FlushTimeoutError, match=r"1 batch is still in flight, and the channel holds 1 event"):
        producer.flush(0.01)
    sink.gate.set()
    producer.flush(PATIENCE)
    producer.close()


def test_flush_inside_a_callback_is_refused() -> None:
    """flush in a callback is refused, as without a channel."""
    errors: list[ProducerError] = []

    def callback(_result: Result) -> None:
        try:
            producer.flush()
        except ProducerError as error:
            errors.append(error)

    with durable(RecordingSink(), KeptChannel()) as producer:
        producer.send("p", "l", LOG, callback=callback)
        producer.flush(PATIENCE)
    assert "call it on another thread" in str(errors[0])


def test_recovered_records_flow_without_any_send() -> None:
    """With a channel, the threads start with the producer."""
    channel = KeptChannel()
    by_hand(ScriptedSink(), channel).admission.accept(KEY, record("old"), 1, None)
    sink = RecordingSink()
    with durable(sink, channel):
        eventually(lambda: sink.records() == [record("old")])


def test_of_a_thousand_records_in_the_channel_of_a_hanging_server_no_future_is_kept() -> None:
    """Of a thousand records in the channel of a hanging server, no future is kept."""
    sink, channel = GatedSink(), KeptChannel()
    producer = durable(sink, channel, total_size_in_bytes=20_000, drain_timeout_ms=0)
    known: weakref.WeakSet[object] = weakref.WeakSet()
    for _ in range(1000):
        known.add(producer.send("p", "l", {"x": "x" * 500}))
    gc.collect()
    assert len(known) < 60
    assert len(pipeline_of(producer).registry) < 60
    kept = producer.send("p", "l", LOG)
    sink.gate.set()
    assert kept.result(PATIENCE).successful
    producer.close()


def test_a_dead_letter_channel_needs_another_channel() -> None:
    """A dead letter channel alone, or the same channel twice, is a ConfigError."""
    channel = MemoryChannel()
    for options in ({"dead_letter": channel}, {"dead_letter": channel, "channel": channel}):
        with pytest.raises(ConfigError, match="dead_letter"):
            Producer(sink=RecordingSink(), **options)  # type: ignore[arg-type]


def test_a_directory_instead_of_a_channel_is_a_configerror_that_names_the_option_and_filechannel(
    tmp_path: Path,
) -> None:
    """A directory instead of a channel is a ConfigError that names the option and FileChannel."""
    with pytest.raises(ConfigError, match=r"channel: must be .* FileChannel\(directory\), got"):
        Producer(sink=RecordingSink(), channel=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dead_letter: must be"):
        Producer(sink=RecordingSink(), channel=MemoryChannel(), dead_letter="dir")  # type: ignore[arg-type]


def test_pickling_takes_the_channel_along(tmp_path: Path) -> None:
    """A copy has a channel of the same configuration; a channel that belongs to a process refuses."""
    with durable(RecordingSink(), MemoryChannel(77, 7)) as producer:
        producer._sink_given = False
        copy = pickle.loads(pickle.dumps(producer))
        assert copy._channel.stats().capacity == 77
        copy.close()
    with durable(RecordingSink(), file_channel(tmp_path / "d")) as producer:
        producer._sink_given = False
        with pytest.raises(TypeError, match="ProcessFileChannel"):
            pickle.dumps(producer)


def test_credentials_and_endpoints_are_never_written_to_disk(tmp_path: Path) -> None:
    """No key, secret or endpoint is in the channel's directory, nor in the dead letters, whose error names the
    endpoint.
    """
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        project = ProjectConfig(
            "p", endpoint=f"http://127.0.0.1:{port}", access_key_id="KEYID123", access_key_secret="SECRET123"
        )
        options = config(delivery_timeout_ms=1, linger_ms=100, base_retry_backoff_ms=1)
        channel, dead = file_channel(tmp_path / "d"), file_channel(tmp_path / "dead")
        with Producer(project, config=options, channel=channel, dead_letter=dead) as producer:
            error = producer.send("p", "l", {"a": "visible"}).exception(PATIENCE)
            assert "127.0.0.1" in str(error)
            eventually(lambda: producer.stats().dead_lettered == 1)
    with file_channel(tmp_path / "dead") as dead:
        assert next(iter(dead.peek())).headers["error_message"] == "no connection"
    found = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file())
    assert b"visible" in found
    for secret in (b"KEYID123", b"SECRET123", b"127.0.0.1", str(port).encode()):
        assert secret not in found


def test_two_batches_of_a_stream_are_never_with_the_server_at_once() -> None:
    """With four IO threads and many batches, each stream has one attempt at a time, and streams run in parallel."""
    active: dict[str, int] = {"a": 0, "b": 0}
    most: list[int] = []
    both, met = threading.Barrier(2), threading.Event()
    lock = threading.Lock()

    class Watching(RecordingSink):
        def write(self, delivery: Delivery) -> Any:
            with lock:
                active[delivery.key.topic] += 1
                most.append(active[delivery.key.topic])
            if not met.is_set():  # one of each stream is here at the same time
                both.wait(PATIENCE)
                met.set()
            receipt = super().write(delivery)
            with lock:
                active[delivery.key.topic] -= 1
            return receipt

    sink = Watching()
    with durable(sink, KeptChannel(), io_thread_count=4, batch_count_threshold=1) as producer:
        for i in range(50):
            producer.send("p", "l", {"i": str(i)}, topic="a")
            producer.send("p", "l", {"i": str(i)}, topic="b")
        producer.flush(PATIENCE)
    assert set(most) == {1}
    assert values(sink, "a") == values(sink, "b") == [str(i) for i in range(50)]


def test_the_statistics_tell_of_channel_and_dead_letters() -> None:
    """The statistics have stored, recovered, dead_lettered and the channel's own numbers."""
    channel, dead = KeptChannel(name="mine"), KeptChannel()
    with channel.transaction() as transaction:
        transaction.put(Event({}, b"?"))
    with durable(ScriptedSink([REJECTED]), channel, dead_letter=dead) as producer:
        producer.send("p", "l", LOG)
        producer.flush(PATIENCE)
        stats = producer.stats()
        assert (stats.accepted, stats.recovered, stats.dead_lettered, stats.stored) == (1, 1, 2, 0)
        assert stats.channel is not None
        assert stats.channel.name == "mine"
