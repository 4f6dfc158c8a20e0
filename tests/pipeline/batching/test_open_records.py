"""Logs added to an open batch have the same bytes, memory, limits and batches as by the general way.

The file is long because one model covers everything that may happen to a batch between two logs.
"""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections import Counter, deque
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer import (
    InvalidArgumentError,
    RejectedError,
    Result,
    SendTimeoutError,
    Stream,
    StreamKey,
)
from producer.model.config import MAX_BATCH_COUNT
from producer.model.futures import holder_of
from producer.pipeline.batching import accumulator
from producer.pipeline.batching.batch import (
    BATCH_OVERHEAD,
    BatchState,
    ProducerBatch,
)
from producer.pipeline.batching.memory import MemoryBudget, Reservation
from producer.pipeline.batching.open_records import RECORD_OVERHEAD, OpenRecords
from producer.runtime.clock import SystemClock
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from producer.wire.compression import compress_joined, decompress
from producer.wire.log_group import encode_log
from producer.wire.text import moment_of
from tests.pipeline.sending.test_split import TOO_LARGE, LimitedSink
from tests.support.clocks import JumpingClock
from tests.support.living import living
from tests.support.log_group_schema import LogGroup, contents_of
from tests.support.pipelines import config, settle
from tests.support.short_way import (
    CountingProducer,
    body_of,
    by_hand,
    known,
    open_batch,
    takes_short_way,
)
from tests.support.twins import OPEN_RECORDS, open_records_twin
from tests.support.waiting import Call, eventually

__all__ = ["open_records_twin"]  # a fixture
pytestmark = pytest.mark.usefixtures("open_records_twin")

LOG = {"m": "x"}


def places(pure: int, native: int) -> int:
    """Return the least number of points for an interrupt: between calls of compiled code, not within."""
    return pure if accumulator.OpenRecords is OPEN_RECORDS["pure"] else native


class Holder:
    """A batch that is not used."""


def enough_memory() -> MemoryBudget:
    """Return an unlimited budget."""
    return MemoryBudget(2**60, ManualClock())


class Text(str):
    """A text whose type is a subclass of ``str``."""


class SetClock(JumpingClock):
    """A clock whose time of day can be set, also backwards."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def _stream(producer: CountingProducer, **options: Any) -> Stream:
    return producer.stream("p", "l", **options)


def _texts(sink: RecordingSink) -> list[str]:
    """Return the first value of each delivered log; empty if it has none."""
    logs = [log for delivery in sink.deliveries for log in contents_of(delivery.payload.body)]
    return [log[0][1].decode() if log else "" for log in logs]


# The same bytes, in the same batches.

_lengths = st.one_of(st.integers(0, 4), st.integers(60, 140), st.integers(16_340, 16_400))
_values = st.one_of(
    st.builds("x".__mul__, _lengths),
    st.builds("é".__mul__, st.integers(55, 70)),
    st.sampled_from(["日志", "\x80", "\x00", "", Text("text"), Text("日"), None, True, 7, -(2**70), 0.1, float("nan")]),
    st.sampled_from([b"\xff\x00", bytearray(b"z" * 127), [1, {"a": None}]]),
    st.text(max_size=5),
)
_shapes = st.sampled_from([("a",), ("a", "b"), ("b", "a"), ("日", "c" * 200), ("é",)])
_logs = _shapes.flatmap(
    lambda names: st.lists(_values, min_size=len(names), max_size=len(names)).map(
        lambda values: dict(zip(names, values, strict=True))
    )
)
_ways = st.sampled_from(["send"] * 12 + ["other handle"] * 3 + ["list", "many", "producer", "deliver", "linger"])
_clock_steps = st.sampled_from([0.0] * 12 + [0.4, 1.0, -1.0, 3600.0, -3600.0])
_steps = st.lists(st.tuples(_ways, _clock_steps, st.booleans(), st.integers(1, 9), _logs), min_size=5, max_size=20)


class World:
    """A producer that executes a history of sends, and is checked after each.

    :param handles: True to send single logs through handles, which may take the short way.
    """

    def __init__(self, handles: bool, **options: Any) -> None:
        self.clock = SetClock()
        self.sink = RecordingSink()
        self.producer, self.pipeline = by_hand(
            self.sink, self.clock, generate_pack_id=False, total_size_in_bytes=20_000_000, **options
        )
        self.handles = [_stream(self.producer), _stream(self.producer)] if handles else []
        self.expected: list[bytes] = []
        self.futures: list[Any] = []
        self.told: Counter[int] = Counter()
        self.callbacks = 0
        self.short = 0

    def _one(self, log: dict[str, Any], handle: int, callback: Any) -> Any:
        if not self.handles:
            return self.producer.send("p", "l", log, callback=callback)
        before = self.producer.general
        future = self.handles[handle].send(log, callback=callback)
        self.short += self.producer.general == before
        return future

    def _send(self, way: str, log: dict[str, Any], count: int, callback: Any) -> list[Any]:
        logs = [dict(log) for _ in range(count)]
        if way == "list":
            return [self.producer.send("p", "l", logs, callback=callback)]
        if way == "many":
            return _stream(self.producer).send_many(logs, callback=callback)
        return [self._one(one, way == "other handle", callback) for one in logs]

    def step(self, way: str, seconds: float, called_back: bool, count: int, log: dict[str, Any]) -> None:
        self.clock.ahead += seconds
        if way in ("deliver", "linger"):
            self.clock.advance(2.0 if way == "linger" else 0.0)
            settle(self.pipeline)
            return
        now = moment_of(self.clock.time())
        callback = None
        if called_back:
            number, self.callbacks = self.callbacks, self.callbacks + 1
            callback = lambda _: self.told.update([number])  # noqa: E731
        futures = self._send(way, log, count, callback)
        self.expected += [encode_log(log, *now)] * count
        if called_back:
            self.told.subtract({number: len(futures)})
        self.futures += futures
        self.look()

    def look(self) -> None:
        """Check the invariants."""
        batches = self.pipeline.accumulator.incomplete()
        assert self.pipeline.budget.used == sum(batch.held for batch in batches)
        assert self.pipeline.stats().accepted == len(self.expected)
        for batch in self.pipeline.accumulator._open.values():
            assert batch.size == len(body_of(self.pipeline, batch))
            assert batch.size < self.pipeline.admission.cut.threshold_bytes
            assert batch.held == batch.open.spent  # type: ignore[union-attr]

    def end(self) -> None:
        self.pipeline.flush(100)
        settle(self.pipeline)
        assert self.sink.records() == self.expected
        assert all(future.result(0).successful for future in self.futures)
        assert not +self.told
        assert not -self.told
        stats = self.pipeline.stats()
        assert (stats.accepted, stats.delivered, stats.memory_used) == (len(self.expected), len(self.expected), 0)
        (counts,) = stats.streams
        assert (counts.accepted, counts.delivered, counts.pending) == (len(self.expected), len(self.expected), 0)


def test_any_history_of_sends_is_the_bytes_and_batches_of_the_general_way() -> None:
    """For any way to send, the server gets what encode_log makes of each log, in the batches of the general way.

    The records are in order. Each future succeeds, each callback runs once, and the memory is that of the batches.
    """
    short = 0

    @given(_steps, st.sampled_from([(4096, 2**20), (7, 2**20), (4096, 3000), (4096, 1000)]))
    def check(steps: list[Any], thresholds: tuple[int, int]) -> None:
        nonlocal short
        options = dict(zip(("batch_count_threshold", "batch_size_threshold_in_bytes"), thresholds, strict=True))
        world, general = World(True, **options), World(False, **options)
        for one in (world, general):
            for shape in (("a",), ("a", "b"), ("b", "a"), ("日", "c" * 200), ("é",)):
                one.step("send", 0.0, False, 10, dict.fromkeys(shape, ""))
            for step in steps:
                one.step(*step)
            one.end()
        assert [delivery.payload.body for delivery in world.sink.deliveries] == [
            delivery.payload.body for delivery in general.sink.deliveries
        ]
        short += world.short

    check()
    assert short > 2000, "the short way was hardly taken"


def test_no_log_gets_a_time_that_is_not_its_own() -> None:
    """At the turn of a second, and when the clock is set back, the next log has the new time."""
    clock = SetClock()
    producer, pipeline = by_hand(clock=clock)
    stream = _stream(producer)
    known(stream, LOG)
    expected = []
    for step in (0.0, 0.999, 0.001, 0.5, -2.0, -0.001, 0.0, 5.0):
        clock.ahead += step
        for _ in range(3):
            stream.send(LOG)
            expected.append(encode_log(LOG, *moment_of(clock.time())))
    pipeline.flush(10)
    assert pipeline.sink.records()[-len(expected) :] == expected  # type: ignore[attr-defined]


def test_a_log_gets_the_time_of_day(open_records_twin: type[OpenRecords]) -> None:
    """With the real clock, a log has the time of day to the microsecond."""
    records = open_records_twin(Holder(), enough_memory(), SystemClock(), (2**20, 1000), 0)  # type: ignore[arg-type]
    before = time.time_ns()
    assert records.add(LOG, None) is not None
    after = time.time_ns()
    record = b"".join(records.seal().records)
    group = LogGroup()
    group.ParseFromString(record)
    (log,) = group.Logs
    assert before - 1000 <= log.Time * 10**9 + log.Time_ns <= after + 1000


@pytest.mark.parametrize("most", [2**10, 2**20])
def test_the_tail_is_put_behind_the_records_and_changes_none(open_records_twin: type[OpenRecords], most: int) -> None:
    """A tail of any length, and another one after it, leave earlier views of the records unchanged."""
    for logs in range(1, 40):
        records = open_records_twin(Holder(), enough_memory(), SystemClock(), (most, 10**6), 100)  # type: ignore[arg-type]
        for _ in range(logs):
            records.add(LOG, None)
        sealed = records.seal()
        body = b"".join(sealed.records)
        for tail in (b"t" * 30, b"", b"u" * 100, b"v" * 100_000):
            joined = compress_joined((*sealed.records, tail), "lz4")
            assert decompress(joined, "lz4", len(body) + len(tail)) == body + tail
        assert b"".join(sealed.records) == body
        del sealed
        gc.collect()


@pytest.mark.parametrize("length", [*range(100, 125), *range(16_350, 16_390)])
def test_a_log_of_any_length_is_its_exact_size_on_the_wire(length: int) -> None:
    """The size of a batch is exact even where a length takes one byte more."""
    producer, pipeline = by_hand()
    stream = _stream(producer)
    known(stream, LOG)
    log = {"m": "x" * length}
    batch = open_batch(pipeline)
    before, spent = batch.size, batch.open.spent  # type: ignore[union-attr]
    stream.send(log)
    size = len(encode_log(log, *moment_of(pipeline.clock.time())))
    assert (batch.size - before, batch.open.spent - spent) == (size, size + RECORD_OVERHEAD)  # type: ignore[union-attr]
    assert len(body_of(pipeline, batch)) == batch.size


# Limits.


def test_a_log_of_the_short_way_never_exceeds_the_memory() -> None:
    """At total_size_in_bytes, and not before, the next log is refused; after a completion it is accepted."""
    producer, pipeline = by_hand(total_size_in_bytes=20_000, max_block_ms=0, linger_ms=100_000)
    stream = _stream(producer)
    futures = known(stream, LOG)

    def fill() -> None:
        while pipeline.budget.used <= 20_000:
            futures.append(stream.send(LOG))

    with pytest.raises(SendTimeoutError) as caught:
        fill()
    assert caught.value.used + caught.value.wanted > 20_000
    assert producer.general == 1 + 1
    pipeline.flush(10)
    settle(pipeline)
    assert pipeline.budget.used == 0
    futures.append(stream.send(LOG))
    pipeline.flush(10)
    assert all(future.done() for future in futures)
    assert len(pipeline.sink.records()) == len(futures)  # type: ignore[attr-defined]


def test_while_a_sender_waits_for_memory_a_log_that_would_fit_waits_behind_it() -> None:
    """While a sender waits for memory, a log that would fit waits behind it."""
    producer, pipeline = by_hand(clock=ManualClock(), total_size_in_bytes=60_000, max_block_ms=-1)
    stream = _stream(producer)
    known(stream, LOG)
    memory = Reservation(pipeline.budget, None)
    first = Call(lambda: memory.reserve(59_000))
    eventually(lambda: pipeline.budget.waiting == 1)
    second = Call(lambda: stream.send(LOG))
    eventually(lambda: pipeline.budget.waiting == 2 or second.done)
    assert not second.done
    settled = pipeline.accumulator.seal_open()
    settle(pipeline)
    first.result()
    assert settled
    assert not second.done
    memory.end()
    second.result()
    pipeline.flush(10)
    settle(pipeline)
    assert pipeline.budget.used == 0


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("option", ["batch_count_threshold", "batch_size_threshold_in_bytes"])
@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_is_full_at_the_same_log_as_by_the_general_way(option: str, more: int, general: bool) -> None:
    """The log that reaches a threshold, exactly or by a byte more, is the last of its batch."""
    tail = RecordingSink().tail_size(StreamKey("p", "l", source="here"), None)
    value = 20 - more if option == "batch_count_threshold" else 20 * 20 + tail - more
    producer, pipeline = by_hand(**{option: value, "generate_pack_id": False})
    stream = _stream(producer)
    logs = [{"m": f"{number:05}"} for number in range(100)]
    for log in logs:
        producer.send("p", "l", log) if general else stream.send(log)
    pipeline.flush(10)
    sizes = [len(contents_of(delivery.payload.body)) for delivery in pipeline.sink.deliveries]  # type: ignore[attr-defined]
    each = value if option == "batch_count_threshold" else 20
    assert len(encode_log(logs[0], *moment_of(pipeline.clock.time()))) == 20
    assert sizes == [each] * (100 // each) + [100 % each] * (100 % each > 0)
    assert general or producer.general < 30


def test_a_batch_never_holds_more_logs_than_the_server_takes() -> None:
    """With the highest threshold, the last log that fits is the last one."""
    producer, pipeline = by_hand(
        batch_count_threshold=MAX_BATCH_COUNT, batch_size_threshold_in_bytes=2**22, linger_ms=100_000
    )
    stream = _stream(producer)
    known(stream, LOG)
    batch = open_batch(pipeline)
    producer.send("p", "l", [LOG] * (MAX_BATCH_COUNT - 2 - batch.log_count))
    stream.send(LOG)
    assert open_batch(pipeline) is batch
    stream.send(LOG)
    assert batch.log_count == MAX_BATCH_COUNT
    assert not pipeline.accumulator._open


# Memory.


def test_after_each_log_the_memory_in_use_is_that_of_the_records_of_open_batches() -> None:
    """After each log the memory in use is that of the records of open batches."""
    producer, pipeline = by_hand(linger_ms=100_000)
    stream = _stream(producer)
    owed = RECORD_OVERHEAD + len(encode_log({"m": "x" * 600}, 1_700_000_000, 0))
    for sent in range(1, 20):
        stream.send({"m": "x" * 600})
        stats = pipeline.stats()
        assert pipeline.budget.used == open_batch(pipeline).held == BATCH_OVERHEAD + sent * owed
        assert stats.memory_used == stats.memory_by_stage["open"] == stats.streams[0].pending_bytes
        assert stats.memory_by_stage["reserved"] == 0
    held = pipeline.budget.used
    pipeline.accumulator.seal_open()
    assert (pipeline.budget.used, pipeline.budget.sealed) == (held, held)


@pytest.mark.parametrize("state", ["full", "waited for", "closed"])
def test_a_log_takes_no_memory_that_is_not_free(open_records_twin: type[OpenRecords], state: str) -> None:
    """The open batch refuses a log, and is unchanged, if the memory is full, reserved for others, or closed."""
    budget = MemoryBudget(10_000, ManualClock())
    records = open_records_twin(Holder(), budget, ManualClock(), (2**30, 2**30), 0)  # type: ignore[arg-type]
    assert records.add(LOG, None) is not None
    before = records.spent, records.logs, budget.used
    assert before[0] == before[2] > 0
    if state == "full":
        budget.change(10_000 - before[2] - before[0] + 1)
    elif state == "closed":
        budget.close()
    else:
        budget.waiters.append(waiting := Reservation(budget, None))
        waiting.wanted = 10_000
        budget.serve()
    full = budget.used
    assert records.add(LOG, lambda _: None) is None
    assert (records.spent, records.logs, budget.used) == (*before[:2], full)
    assert [bytes(record) for record in records.seal().records] == [encode_log(LOG, 1_700_000_000, 0)]


def test_as_many_streams_are_open_at_once_as_their_records_leave_memory_for() -> None:
    """As many streams are open at once as fit in the memory."""
    producer, pipeline = by_hand(total_size_in_bytes=500_000, max_block_ms=0, linger_ms=100_000)
    pipeline.hurry = lambda: None  # type: ignore[method-assign]  # the batches stay open
    owed = BATCH_OVERHEAD + RECORD_OVERHEAD + len(encode_log(LOG, 1_700_000_000, 0))
    opened = 500_000 // owed
    for number in range(opened):
        _stream(producer, topic=f"{number}").send(LOG)
    with pytest.raises(SendTimeoutError):
        _stream(producer, topic="one more").send(LOG)
    assert pipeline.budget.used == sum(batch.held for batch in pipeline.accumulator.incomplete()) == opened * owed
    pipeline.flush(10)
    settle(pipeline)
    assert pipeline.budget.used == 0


# Several kinds, several handles.


@pytest.mark.parametrize("other", ["another handle", "a list", "the producer"])
def test_sends_of_two_kinds_that_alternate_keep_the_order(other: str) -> None:
    """Sends of the general way in between keep the order."""
    producer, pipeline = by_hand(batch_count_threshold=40_000, linger_ms=100_000)
    stream, second = _stream(producer), _stream(producer)
    known(stream, LOG)
    for number in range(300):
        log = {"m": f"{number}"}
        if number % 2:
            stream.send(log)
        elif other == "another handle":
            second.send(log)
        elif other == "a list":
            stream.send([log])
        else:
            producer.send("p", "l", log)
    batch = open_batch(pipeline)
    assert batch.size == len(body_of(pipeline, batch))
    pipeline.flush(10)
    assert _texts(pipeline.sink)[-300:] == [f"{number}" for number in range(300)]  # type: ignore[arg-type]


def test_a_piece_is_kept_as_it_is_beside_the_logs() -> None:
    """Encoded pieces are kept without a copy, in their place among the logs."""
    producer, pipeline = by_hand(linger_ms=100_000)
    piece = encode_log({"m": "x" * 5000}, 1)
    stream = _stream(producer)
    known(stream, LOG)
    pipeline.admission.accept(stream.key, piece, 1, None)
    stream.send(LOG)
    batch = open_batch(pipeline)
    log = encode_log(LOG, *moment_of(pipeline.clock.time()))
    pipeline.accumulator.seal_open()
    assert sum(one is piece for one in batch.records) == 1
    assert b"".join(batch.records) == log * 12 + piece + log


def test_in_the_native_implementation_records_of_both_ways_are_one_piece_of_memory(
    open_records_twin: type[OpenRecords],
) -> None:
    """In the native implementation, records of both ways are one piece of memory; with ``apart`` none is."""
    for apart in (False, True):
        records = open_records_twin(Holder(), enough_memory(), SystemClock(), (2**16, 10**6), 100, None, apart)  # type: ignore[arg-type]
        encoded = [encode_log({"m": "x" * size}, 1) for size in (10, 3000, 20)]
        added = [records.append(record, 1, None, 10_000) for record in encoded]
        assert [future._position for future in added if future is not None] == [0, 1, 2]
        (one, *more) = records.seal().records
        together = open_records_twin is not OPEN_RECORDS["pure"] and not apart
        assert [bytes(one), *map(bytes, more)] == ([b"".join(encoded)] if together else encoded)


def test_a_finalizer_may_send_to_the_stream_of_a_log_that_is_being_added() -> None:
    """A finalizer that sends to the same stream while a log is added: each log keeps its bytes and callback."""
    producer, pipeline = by_hand(linger_ms=100_000)
    stream, told = _stream(producer), Counter[str]()

    class Last:
        def __init__(self, name: str) -> None:
            self.name, self.me = name, self

        def __del__(self) -> None:
            send(self.name)

    def send(name: str) -> None:
        stream.send({"m": name}, callback=lambda _: told.update([name]))

    usual = gc.get_threshold()
    try:
        for turn in range(30):
            gc.collect()
            Last(f"late {turn}")
            gc.set_threshold(1)
            send(f"first {turn}")
            gc.set_threshold(*usual)
            gc.collect()
            pipeline.accumulator.seal_open()
            settle(pipeline)
    finally:
        gc.set_threshold(*usual)
    assert told == Counter(f"{kind} {turn}" for kind in ("first", "late") for turn in range(30))
    sent = [text for delivery in pipeline.sink.deliveries for ((_, text),) in contents_of(delivery.payload.body)]  # type: ignore[attr-defined]
    assert Counter(map(bytes.decode, sent)) == told


# The end.


def test_a_handle_holds_nothing_of_a_batch_that_was_sealed() -> None:
    """A completed batch, its records and its futures are garbage, even if the handle still exists."""
    producer, pipeline = by_hand()
    stream = _stream(producer)
    futures = known(stream, LOG)
    future, pack_id = weakref.ref(futures.pop()), open_batch(pipeline).pack_id
    del futures
    pipeline.flush(10)
    settle(pipeline)
    gc.collect()
    assert future() is None
    assert not any(batch.pack_id == pack_id for batch in living(ProducerBatch))
    assert not takes_short_way(stream)
    assert stream.send(LOG) is not None


def test_a_process_that_is_forked_while_a_batch_is_sealed_adds_nothing_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handles in the child find that the parent's batch takes no logs, wherever the other thread was."""
    producer, pipeline = by_hand()
    stream = _stream(producer)
    known(stream, LOG)
    seal = ProducerBatch.seal
    forked: list[bool] = []

    def fork_and_seal(batch: ProducerBatch) -> None:
        monkeypatch.undo()
        pipeline.abandon_in_child()  # as the child does, without waiting for a lock
        forked.append(takes_short_way(stream))
        seal(batch)

    monkeypatch.setattr(ProducerBatch, "seal", fork_and_seal)
    pipeline.accumulator.seal_open()
    assert forked == [False]
    assert stream._open is not None
    assert stream._open.add(LOG, None) is None


def test_a_stream_that_stopped_refuses_logs_of_the_short_way_until_it_is_resumed() -> None:
    """The open batch behind a failed one takes no more logs."""
    sink = ScriptedSink([RejectedError("ParameterInvalid", "no", http_status=400)])
    producer, pipeline = by_hand(sink)
    stream = _stream(producer, ordered=True)
    first = known(stream, LOG)
    pipeline.accumulator.seal_open()
    second = [stream.send(LOG) for _ in range(5)]
    assert takes_short_way(stream)
    settle(pipeline)
    assert all(future.exception(0) is not None for future in first + second)
    for _ in range(3):
        with pytest.raises(type(stream.stopped or Exception())):
            stream.send(LOG)
    assert stream.stopped is not None
    stream.resume()
    third = known(stream, LOG)
    pipeline.flush(10)
    assert all(future.result(0).successful for future in third)
    assert len(sink.records()) == len(third)
    assert pipeline.budget.used == 0


def test_a_value_that_cannot_be_sent_leaves_nothing_behind() -> None:
    """The log is refused as by the general way, and takes neither memory nor a place in the batch."""
    producer, pipeline = by_hand()
    stream = _stream(producer)
    known(stream, LOG)
    batch = open_batch(pipeline)
    before = batch.size, batch.held, batch.log_count, batch.sends, pipeline.budget.used
    for value in ("\ud800", object(), range(2)):
        with pytest.raises(InvalidArgumentError, match="'m'"):
            stream.send({"m": value})
    for callback in (5, "x"):
        with pytest.raises(InvalidArgumentError, match="callback"):
            stream.send(LOG, callback=callback)  # type: ignore[arg-type]
    assert before == (batch.size, batch.held, batch.log_count, batch.sends, pipeline.budget.used)


class Sending(Decimal):
    """A value that sends by the same handle while it becomes text."""

    send: Any = None

    def __str__(self) -> str:
        self.send()
        return "late"


def test_a_log_whose_value_sends_another_log_follows_it() -> None:
    """The log follows what its value sent: no lock is held meanwhile, and a batch sealed by that is not used."""
    producer, pipeline = by_hand()
    stream = _stream(producer)
    known(stream, LOG)
    value = Sending(1)
    value.send = lambda: (stream.send([{"m": "early"}]), pipeline.accumulator.seal_open())
    stream.send({"m": value})
    pipeline.flush(10)
    texts = _texts(pipeline.sink)  # type: ignore[arg-type]
    assert texts[12:].count("late") == 1
    assert texts[-1] == "late"
    assert set(texts[12:-1]) == {"early"}
    assert pipeline.stats().accepted == len(texts)


# Split batches.

_kinds = st.sampled_from(["log"] * 8 + ["refuse"] * 2 + ["list", "item"])


@given(st.lists(_kinds, min_size=1, max_size=40), st.integers(1, 9))
def test_each_future_of_a_cut_batch_is_settled_by_its_own_logs(kinds: list[str], most: int) -> None:
    """In a batch that is split any number of times, each send succeeds exactly if its own logs are on the server.

    Each callback runs once with that result.
    """
    sink = LimitedSink(most)
    producer, pipeline = by_hand(sink)
    stream = _stream(producer)
    warm = known(stream, LOG)
    told: Counter[tuple[int, bool]] = Counter()
    sent = []
    for number, kind in enumerate(kinds):
        log = {"m": f"{kind}-{number}"}
        logs: Any = [log, {"m": f"log-{number}"}] if kind == "list" else log
        callback = lambda result, number=number: told.update([(number, result.successful)])  # noqa: E731
        future = stream.send(logs, callback=callback if number % 3 == 0 else None)
        if number % 3 == 1:
            future.add_done_callback(lambda done, n=number: told.update([(n, done.exception(0) is None)]))
        sent.append((number, future, kind))
    pipeline.flush(100)
    settle(pipeline)
    stored = _texts(sink)
    assert stored.count("x") == sum(future.exception(0) is None for future in warm)
    for number, future, kind in sent:
        successful = future.exception(0) is None
        own = {f"{kind}-{number}", f"log-{number}"} if kind == "list" else {f"{kind}-{number}"}
        assert successful == (own <= set(stored))
        assert told[number, successful] == (number % 3 != 2)
    assert sum(told.values()) == sum(1 for number in range(len(kinds)) if number % 3 != 2)
    assert pipeline.budget.used == 0


def test_a_half_of_a_cut_batch_settles_the_futures_of_its_logs_alone() -> None:
    """If the first half fails and the second is delivered, each future has its own half's result."""
    sink = ScriptedSink([TOO_LARGE, RejectedError("ParameterInvalid", "no", http_status=400)])
    producer, pipeline = by_hand(sink)
    stream = _stream(producer)
    futures = known(stream, LOG, 20)
    pipeline.flush(10)
    assert [future.exception(0) is None for future in futures] == [False] * 10 + [True] * 10
    holders = {holder_of(future._holder, future._position) for future in futures}
    assert {holder.state for holder in holders} == {BatchState.FAILED, BatchState.SUCCEEDED}  # type: ignore[attr-defined]
    assert {future._holder.state for future in futures} == {BatchState.SPLIT}  # type: ignore[attr-defined]


def test_a_future_cannot_be_settled_from_outside() -> None:
    """A future cannot be completed by ``set_result`` of the base class."""
    with CountingProducer(sink=RecordingSink(), config=config(linger_ms=60_000)) as producer:
        stream = _stream(producer)
        stream.send(LOG)
        future = stream.send(LOG)
        for settle in (
            lambda: setattr(future, "_state", "FINISHED"),
            lambda: future.set_result(5),  # type: ignore[arg-type]
            lambda: future.set_exception(OSError()),
        ):
            with pytest.raises(AttributeError):
                settle()
        assert not future.done()
        assert future._state == "PENDING"


def test_a_future_that_holds_itself_is_collected(open_records_twin: type[OpenRecords]) -> None:
    """The garbage collector frees a future that refers to itself by an attribute or its dictionary."""
    del open_records_twin

    class Trace:
        pass

    producer, _ = by_hand()
    stream = producer.stream("p", "l")
    traces = []
    for put in (lambda f, one: setattr(f, "own", one), lambda f, one: f.__dict__.update(own=one)):
        future, trace = known(stream, {"k": "v"})[-1], Trace()
        put(future, (future, trace))
        assert future.own[0] is future  # type: ignore[attr-defined]
        assert vars(future)["own"][1] is trace
        traces.append(weakref.ref(trace))
        del future, trace
    gc.collect()
    assert [trace() for trace in traces] == [None, None]


def test_attributes_of_a_future_come_and_go(open_records_twin: type[OpenRecords]) -> None:
    """Attributes of a future can be set and deleted, as for ``concurrent.futures``."""
    del open_records_twin
    producer, _ = by_hand()
    future: Any = known(producer.stream("p", "l"), {"k": "v"})[-1]
    assert not hasattr(future, "number")
    future.number = 7
    assert future.number == 7
    del future.number
    with pytest.raises(AttributeError, match="number"):
        del future.number
    assert not hasattr(future, "number")


def test_futures_are_made_by_send_alone(open_records_twin: type[OpenRecords]) -> None:
    """A future cannot be created without a batch."""
    del open_records_twin
    producer, _ = by_hand()
    future = known(producer.stream("p", "l"), {"k": "v"})[-1]
    with pytest.raises(TypeError):
        type(future)()  # type: ignore[call-arg]


def test_reading_records_leaves_reference_counts_as_they_were(open_records_twin: type[OpenRecords]) -> None:
    """Reference counts do not change, above all that of None, with which every buffer's view begins."""
    del open_records_twin
    producer, pipeline = by_hand()
    known(producer.stream("p", "l"), {"k": "v"})
    batch = open_batch(pipeline)
    batch.seal()
    record = memoryview(batch.records[-1]).obj
    before = sys.getrefcount(None)
    for _ in range(2000):
        memoryview(record).release()
    assert sys.getrefcount(None) - before < 100  # other threads add and drop references


class Told:
    """Equal to any other object of its class; so are its methods, by ``==``."""

    def __init__(self) -> None:
        self.good, self.bad = list[Result](), list[Result]()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told)

    __hash__ = None  # type: ignore[assignment]

    def note(self, result: Result) -> None:
        self.good.append(result)

    def note_otherwise(self, result: Result) -> None:
        self.bad.append(result)


def test_a_method_that_is_given_for_many_logs_is_kept_once_and_called_for_each() -> None:
    """A method given for consecutive logs is kept once; each log calls the method of its own object.

    Equal objects are distinct, and so are two methods of one object.
    """
    one, equal, queues = Told(), Told(), (deque[Result](), deque[Result]())
    methods = [
        *((one, "note"), (one, "note"), (equal, "note"), (equal, "note_otherwise"), (one, "note_otherwise")),
        *((queues[0], "append"), (queues[0], "append"), (queues[1], "append"), (queues[1], "appendleft")),
    ]
    producer, pipeline = by_hand()
    stream = _stream(producer)
    for owner, name in methods:
        stream.send(LOG, callback=getattr(owner, name))  # a new object each time
    records = open_batch(pipeline).open
    assert records is not None
    kept = records.seal().callbacks
    assert [first is second for first, second in pairwise(kept)] == [
        *(True, False, False, False, False),
        *(True, False, False),
    ]
    pipeline.accumulator.seal_open()
    settle(pipeline)
    assert [len(told) for told in (one.good, one.bad, equal.good, equal.bad, *queues)] == [2, 1, 1, 1, 2, 2]
