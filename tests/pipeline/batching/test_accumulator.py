"""The accumulator seals full and lingered batches, and forgets idle streams."""

from __future__ import annotations

import gc

import pytest

from producer import (
    BodyTooLargeError,
    LogSizeTooLargeError,
    MaxBatchCountExceedError,
    NetworkError,
    Producer,
    ProducerClosedError,
    SendFuture,
    SendTimeoutError,
    StreamStats,
)
from producer.model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES
from producer.model.records import StreamKey
from producer.pipeline.batching.accumulator import IDLE_STREAM_SECONDS, MAX_IDLE_STREAMS, Piece
from producer.pipeline.batching.batch import (
    BATCH_OVERHEAD,
    BatchState,
    ProducerBatch,
)
from producer.pipeline.batching.memory import Reservation
from producer.pipeline.batching.open_records import RECORD_OVERHEAD
from producer.pipeline.pipeline import Pipeline
from producer.runtime.clock import Deadline, SystemClock
from producer.sinks.loghub.codec import Codec
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.support.clocks import JumpingClock
from tests.support.living import living
from tests.support.pipelines import (
    KEY,
    config,
    queued,
    record,
    running,
    settle,
    threadless,
)
from tests.support.waiting import Call, eventually


def _open(pipeline: Pipeline) -> list[ProducerBatch]:
    return [batch for batch in pipeline.accumulator.incomplete() if batch.state is BatchState.OPEN]


def test_a_batch_is_sent_the_moment_its_bytes_reach_the_threshold() -> None:
    """One byte below batch_size_threshold_in_bytes a batch stays open; at it, the sender seals it."""
    tail = len(RecordingSink().encode(KEY, None, []).body)
    pipeline = threadless(batch_size_threshold_in_bytes=1000, generate_pack_id=False)
    pipeline.admission.accept(KEY, b"a" * (999 - tail), 1, None)
    assert queued(pipeline.io_pool) == 0
    assert _open(pipeline)[0].size == 999
    pipeline.admission.accept(KEY, b"a", 1, None)
    assert queued(pipeline.io_pool) == 1
    assert _open(pipeline) == []


def test_the_size_of_a_batch_is_its_exact_bytes_on_the_wire() -> None:
    """A batch's size, pack id and tail included, is the length of its body."""
    sink = RecordingSink()
    pipeline = threadless(sink)
    for text in ("plain", "äöü", "日志" * 100):
        pipeline.admission.accept(KEY, record(text), 1, None)
    size = _open(pipeline)[0].size
    pipeline.flush(10)
    assert len(sink.deliveries[0].payload.body) == size


def test_a_batch_is_sent_the_moment_its_logs_reach_the_threshold() -> None:
    """The batch_count_threshold counts logs, not sends, and its last log seals the batch."""
    pipeline = threadless(batch_count_threshold=10)
    pipeline.admission.accept(KEY, record(logs=9), 9, None)
    assert queued(pipeline.io_pool) == 0
    pipeline.admission.accept(KEY, record(), 1, None)
    assert queued(pipeline.io_pool) == 1


def test_the_first_batch_of_a_producer_lingers_half_a_second() -> None:
    """The first batch lingers half a second at most, so that a wrong endpoint shows soon; the second batch lingers
    linger_ms.
    """
    clock = ManualClock(start=0)
    pipeline = threadless(clock=clock, linger_ms=60_000)
    first = pipeline.admission.accept(KEY, record(), 1, None)
    assert pipeline.mover.run_once() == pytest.approx(0.5)
    clock.advance(0.5)
    settle(pipeline)
    assert first.done()
    pipeline.admission.accept(KEY, record(), 1, None)
    assert pipeline.mover.run_once() == pytest.approx(60)


def test_a_batch_lingers_exactly_linger_ms_after_its_first_record() -> None:
    """The mover seals a batch at linger_ms, not before, and knows when the next one is due."""
    clock = ManualClock(start=0)
    pipeline = threadless(clock=clock, linger_ms=2000)
    pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.flush(None)  # the first batch of a producer lingers less
    pipeline.admission.accept(KEY, record(), 1, None)
    clock.advance(0.5)
    pipeline.admission.accept(KEY._replace(topic="later"), record(), 1, None)
    clock.advance(1.25)
    pipeline.admission.accept(KEY, record(), 1, None)  # a later record does not extend the linger time
    assert pipeline.mover.run_once() == pytest.approx(0.25)
    assert queued(pipeline.io_pool) == 0
    clock.advance(0.249)
    assert pipeline.mover.run_once() == pytest.approx(0.001)
    assert queued(pipeline.io_pool) == 0
    clock.advance(0.001)
    assert pipeline.mover.run_once() == pytest.approx(0.5)
    assert queued(pipeline.io_pool) == 1
    clock.advance(0.5)
    assert pipeline.mover.run_once() == pytest.approx(2.0)
    assert queued(pipeline.io_pool) == 2


def test_a_record_that_does_not_fit_goes_into_a_new_batch() -> None:
    """A record that would make a batch exceed 8 MiB seals it, and opens the next one."""
    pipeline = threadless(batch_size_threshold_in_bytes=MAX_BATCH_SIZE_IN_BYTES)
    tail = pipeline.sink.tail_size(KEY, "F" * 18)
    pipeline.admission.accept(KEY, b"a" * (MAX_BATCH_SIZE_IN_BYTES - tail - 100), 1, None)
    pipeline.admission.accept(KEY, b"a" * 101, 1, None)
    assert queued(pipeline.io_pool) == 1
    assert [batch.log_count for batch in _open(pipeline)] == [1]
    assert all(batch.size <= MAX_BATCH_SIZE_IN_BYTES for batch in pipeline.accumulator.incomplete())


def test_the_largest_record_that_fits_is_accepted_and_one_byte_more_refused() -> None:
    """8 MiB with the tail is the limit of one send; the error has both numbers, and nothing is taken."""
    pipeline = threadless()
    most = MAX_BATCH_SIZE_IN_BYTES - pipeline.sink.tail_size(KEY, "F" * 33)
    pipeline.admission.accept(KEY, b"a" * most, 1, None)
    used = pipeline.budget.used
    with pytest.raises(LogSizeTooLargeError) as caught:
        pipeline.admission.accept(KEY, b"a" * (most + 1), 1, None)
    assert (caught.value.size, caught.value.limit) == (MAX_BATCH_SIZE_IN_BYTES + 1, MAX_BATCH_SIZE_IN_BYTES)
    assert f"{MAX_BATCH_SIZE_IN_BYTES + 1} bytes, the limit is {MAX_BATCH_SIZE_IN_BYTES} bytes" in str(caught.value)
    assert pipeline.budget.used == used


def test_a_record_larger_than_the_memory_is_refused_at_once() -> None:
    """A send that exceeds the whole memory is a LogSizeTooLargeError without a wait."""
    pipeline = threadless(total_size_in_bytes=10_000, max_block_ms=-1)
    fits = 10_000 - RECORD_OVERHEAD - BATCH_OVERHEAD
    with pytest.raises(LogSizeTooLargeError, match="10001 bytes, the limit is 10000"):
        pipeline.admission.accept(KEY, b"a" * (fits + 1), 1, None)
    pipeline.admission.accept(KEY, b"a" * fits, 1, None)
    assert pipeline.budget.used == 10_000


def test_a_list_of_40960_logs_is_one_batch_and_one_more_is_refused() -> None:
    """A list has at most 40,960 logs; the error has both numbers."""
    pipeline = threadless(batch_size_threshold_in_bytes=MAX_BATCH_SIZE_IN_BYTES)
    with pytest.raises(MaxBatchCountExceedError, match=r"40961 logs .* holds 40960: use send_many"):
        pipeline.admission.accept(KEY, b"a", MAX_BATCH_COUNT + 1, None)
    pipeline.admission.accept(KEY, b"a", MAX_BATCH_COUNT, None)
    assert queued(pipeline.io_pool) == 1


def test_a_batch_never_holds_more_than_40960_logs() -> None:
    """A list that would exceed the limit of logs seals the open batch, and opens the next."""
    pipeline = threadless(batch_count_threshold=MAX_BATCH_COUNT)
    pipeline.admission.accept(KEY, b"a", MAX_BATCH_COUNT - 1, None)
    pipeline.admission.accept(KEY, b"a", 2, None)
    assert queued(pipeline.io_pool) == 1
    assert [batch.log_count for batch in _open(pipeline)] == [2]


@pytest.mark.parametrize(
    "other",
    [
        KEY._replace(project="other"),
        KEY._replace(logstore="other"),
        KEY._replace(topic="other"),
        KEY._replace(source="other"),
        KEY._replace(shard_hash="0" * 32),
        KEY._replace(tags=(("a", "b"),)),
    ],
)
def test_only_equal_keys_share_a_batch(other: object) -> None:
    """Streams that differ in any part of the key have different batches."""
    pipeline = threadless()
    for key in (KEY, other, KEY, other):
        pipeline.admission.accept(key, record(), 1, None)  # type: ignore[arg-type]
    assert [batch.log_count for batch in _open(pipeline)] == [2, 2]


def test_pack_ids_count_up_per_stream_and_name_their_stream() -> None:
    """The batches of a stream share a context and are numbered from 0 in hexadecimal; another stream has another
    context.
    """
    sink = RecordingSink()
    pipeline = threadless(sink, batch_count_threshold=1)
    for _ in range(17):
        pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.admission.accept(KEY._replace(topic="b"), record(), 1, None)
    pipeline.flush(10)
    # the batches of a stream are in order; the turns of the streams do not matter here
    ids = [delivery.pack_id or "" for delivery in sorted(sink.deliveries, key=lambda one: one.key.topic == "b")]
    context = ids[0].split("-")[0]
    assert ids[:17] == [f"{context}-{n:X}" for n in range(17)]
    assert ids[17].endswith("-0")
    assert not ids[17].startswith(context)


def test_the_size_of_a_body_without_records_is_known_with_any_pack_id() -> None:
    """The codec computes the size of a body without records exactly, with and without a pack id."""
    codec = Codec("protobuf", "none")
    key = StreamKey("p", "l", "topic", "source", tags=(("name", "v" * 200),))
    for pack_id in (None, "0123456789ABCDEF-0", "0123456789ABCDEF-" + "F" * 200):
        assert codec.tail_size(key, pack_id) == codec.encode(key, pack_id, []).raw_size


def test_no_two_streams_share_the_context_of_their_pack_ids() -> None:
    """The contexts of all streams differ, also among producers."""
    keys = [StreamKey("p", "l", topic=f"{n}") for n in range(100)]
    pipelines = [threadless(), threadless()]
    ids = [pipeline.accumulator.draft(key).pack_id or "" for pipeline in pipelines for key in keys]
    contexts = {pack_id.removesuffix("-0") for pack_id in ids}
    assert len(contexts) == 2 * len(keys)
    assert all(len(context) == 16 and set(context) <= set("0123456789ABCDEF") for context in contexts)


def test_a_send_that_found_no_memory_leaves_no_state_of_a_new_stream_the_next_send_opens_it() -> None:
    """A send that found no memory leaves no state of a new stream; the next send opens it."""
    pipeline = threadless(total_size_in_bytes=20_000, max_block_ms=0)
    others = Reservation(pipeline.budget, 0)
    assert others.reserve(20_000)
    with pytest.raises(SendTimeoutError):
        pipeline.admission.accept(KEY, record(), 1, None)
    assert pipeline.accumulator.stream_counts() == {}
    others.end()
    pipeline.admission.accept(KEY, record(), 1, None)
    assert list(pipeline.accumulator.stream_counts()) == [KEY]


def test_of_two_drafts_of_a_stream_one_is_opened() -> None:
    """Two threads that open batches of a stream at once get one batch number and one context."""
    pipeline = threadless()
    accumulator = pipeline.accumulator
    piece = Piece(KEY, record(), 1)
    contexts = set()
    for number in range(3):
        drafts = [accumulator.draft(KEY), accumulator.draft(KEY)]
        assert isinstance(accumulator.add(piece, None, drafts[0], None), SendFuture)
        accumulator.seal_open()
        assert accumulator.add(piece, None, drafts[1], None) == 0
        contexts.add((drafts[0].pack_id or "").removesuffix(f"-{number}"))
    assert len(contexts) == 1


def test_with_generate_pack_id_false_there_is_no_tag() -> None:
    """With generate_pack_id=False there is no tag."""
    sink = RecordingSink()
    pipeline = threadless(sink, generate_pack_id=False)
    pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.flush(10)
    assert sink.deliveries[0].pack_id is None
    assert b"__pack_id__" not in sink.deliveries[0].payload.body


@pytest.mark.usefixtures("without_coverage")
def test_twenty_thousand_topics_leave_nothing_behind_but_the_documented_bound() -> None:
    """After 20,000 topics, at most 10,000 streams are remembered, and after a minute none."""
    clock = ManualClock()
    pipeline = threadless(clock=clock, batch_count_threshold=1)
    data = record()
    for i in range(20_000):
        pipeline.admission.accept(KEY._replace(project="many", topic=str(i)), data, 1, None)
        settle_one(pipeline)
        pipeline.sink.deliveries.clear()  # type: ignore[attr-defined]
    accumulator = pipeline.accumulator
    assert (len(accumulator._open), len(accumulator._incomplete)) == (0, 0)
    assert len(accumulator._streams) <= MAX_IDLE_STREAMS
    assert pipeline.budget.used == 0
    assert (queued(pipeline.io_pool), running(pipeline.io_pool)) == (0, 0)
    clock.advance(IDLE_STREAM_SECONDS)
    pipeline.mover.run_once()
    assert len(accumulator._streams) == 0
    gc.collect()
    assert not [batch for batch in living(ProducerBatch) if batch.key.project == "many"]


def settle_one(pipeline: Pipeline) -> None:
    """Deliver one batch in the fewest steps."""
    pipeline.io_pool.run_next()
    pipeline.settlement.success.run_next()


def test_memory_of_a_send_is_its_bytes_and_the_documented_overheads() -> None:
    """A send takes its bytes and 320, a batch 4096 more; a refused send takes nothing."""
    pipeline = threadless(total_size_in_bytes=8500, max_block_ms=0)
    data = record("x" * 100)
    pipeline.admission.accept(KEY, data, 1, None)
    assert pipeline.budget.used == len(data) + RECORD_OVERHEAD + BATCH_OVERHEAD
    pipeline.admission.accept(KEY, data, 1, None)
    assert pipeline.budget.used == 2 * (len(data) + RECORD_OVERHEAD) + BATCH_OVERHEAD
    used = pipeline.budget.used
    with pytest.raises(SendTimeoutError):
        pipeline.admission.accept(KEY, b"a" * 3500, 1, None)
    assert pipeline.budget.used == used


def test_a_sender_that_got_memory_just_before_close_gets_producerclosederror() -> None:
    """A sender that got memory just before close gets ProducerClosedError, and the memory is returned."""
    pipeline = threadless()
    pipeline.admission.accept(KEY, record(), 1, None)
    used = pipeline.budget.used
    pipeline.accumulator.close()
    with pytest.raises(ProducerClosedError):
        pipeline.admission.accept(KEY, record(), 1, None)
    assert pipeline.budget.used == used


def test_a_wait_for_the_batches_below_a_serial_ends_when_these_are_completed_regardless_of_later_ones() -> None:
    """A wait for the batches below a serial ends when these are completed, regardless of later ones."""
    clock = ManualClock()
    pipeline = threadless(clock=clock, batch_count_threshold=1)
    pipeline.admission.accept(KEY, record(), 1, None)
    serial = pipeline.accumulator.seal_open()
    pipeline.admission.accept(KEY, record(), 1, None)
    waiter = Call(lambda: pipeline.accumulator.wait_settled(serial, Deadline(None)))
    eventually(lambda: clock.waiting == 1)
    pipeline.io_pool.run_next()
    assert waiter.result() == 0
    assert len(pipeline.accumulator.incomplete()) == 1


def test_the_waiting_thread_is_woken_when_the_last_batch_is_completed() -> None:
    """The waiting thread is woken when the last batch is completed, also if batches were split meanwhile."""
    sink = ScriptedSink([BodyTooLargeError("PostBodyTooLarge", "x"), *[None] * 4])
    pipeline, woken = threadless(sink, SystemClock()), list[int]()
    for topic in "abcd":
        pipeline.admission.accept(KEY._replace(topic=topic), record(), 1, None)
        pipeline.admission.accept(KEY._replace(topic=topic), record(), 1, None)
    accumulator, serial = pipeline.accumulator, pipeline.accumulator.seal_open()
    call = Call(lambda: accumulator.wait_settled(serial, Deadline(None)))
    eventually(lambda: len(accumulator._settled) == 1)
    wake_all = accumulator._settled.wake_all
    accumulator._settled.wake_all = lambda: woken.append(len(sink.deliveries)) or wake_all()  # type: ignore[method-assign]
    settle(pipeline)
    assert call.result() == 0
    assert woken[-1] == 5
    assert len(woken) <= 2


def test_a_stream_with_batches_under_way_is_not_forgotten() -> None:
    """While a batch waits for a retry, its stream keeps its counts and its context; later they are forgotten."""
    clock, sink = JumpingClock(), ScriptedSink([NetworkError("R", "down")])
    pipeline = threadless(sink, clock, base_retry_backoff_ms=10**6, max_retry_backoff_ms=10**6)
    pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.accumulator.seal_open()
    settle(pipeline)
    clock.advance(IDLE_STREAM_SECONDS * 2)
    pipeline.mover.run_once()
    pipeline.admission.accept(KEY, record(), 1, None)
    (stats,) = pipeline.stats().streams
    assert stats == StreamStats(**KEY._asdict(), accepted=2, pending=2, pending_bytes=pipeline.budget.used)
    pipeline.flush(None)
    contexts = {(delivery.pack_id or "").split("-")[0] for delivery in sink.attempts}
    assert len(contexts) == 1
    assert [stats.delivered for stats in pipeline.stats().streams] == [2]
    clock.advance(IDLE_STREAM_SECONDS)
    pipeline.mover.run_once()
    assert pipeline.stats().streams == ()


def test_up_to_10_ms_and_a_tenth_of_linger_ms_before_its_time_a_batch_is_sealed_together() -> None:
    """Up to 10 ms, and a tenth of linger_ms, before its time, a batch is sealed together with a lingered one; never
    alone.
    """
    for linger, along in ((2.0, 0.01), (0.05, 0.005)):
        clock = ManualClock(start=0)
        pipeline = threadless(clock=clock, linger_ms=int(linger * 1000))
        pipeline.admission.accept(KEY, record(), 1, None)
        pipeline.flush(None)  # the first batch of a producer lingers less
        for topic in ("first", "near", "far"):
            pipeline.admission.accept(KEY._replace(topic=topic), record(), 1, None)
            clock.advance(along * 0.9)
        clock.advance(linger - 2.75 * along)  # a little before the time of the first
        assert pipeline.mover.run_once() == pytest.approx(0.05 * along)
        assert queued(pipeline.io_pool) == 0
        clock.advance(0.1 * along)
        assert pipeline.mover.run_once() == pytest.approx(1.75 * along)
        assert [batch.key.topic for batch in _open(pipeline)] == ["far"]


def test_a_sender_does_not_wait_for_batches_to_linger_that_hold_most_of_the_memory() -> None:
    """With more streams than memory for full batches, no sender waits for the linger time."""
    options = config(
        linger_ms=60_000, total_size_in_bytes=2**20, batch_size_threshold_in_bytes=2**19, max_block_ms=5000
    )
    sink = RecordingSink()
    with Producer(sink=sink, config=options) as producer:
        streams = [producer.stream("p", "l", topic=f"{number}") for number in range(50)]
        futures = [streams[number % 50].send({"m": "x" * 1000}) for number in range(3000)]
        producer.flush(10)
        assert all(future.result(0).successful for future in futures)
        assert len(sink.deliveries) < 500
