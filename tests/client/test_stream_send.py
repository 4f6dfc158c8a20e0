"""``Stream.send`` of many logs: futures, threads, close, pickles, unusual callers."""

import asyncio
import concurrent.futures
import gc
import inspect
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from producer import (
    InvalidArgumentError,
    LogItem,
    Producer,
    ProducerClosedError,
    ProjectConfig,
    RejectedError,
    Result,
    ResultFailedError,
    SendFuture,
    SendTimeoutError,
    SequenceKey,
    Stream,
)
from producer.channels import MemoryChannel
from producer.pipeline.batching import accumulator
from producer.testing import RecordingSink, ScriptedSink
from tests.support.living import within_reach
from tests.support.log_group_schema import LogGroup, contents_of
from tests.support.pipelines import config, settle, threadless
from tests.support.short_way import CountingProducer, by_hand, known, takes_short_way
from tests.support.sinks import GatedSink
from tests.support.twins import OPEN_RECORDS
from tests.support.waiting import PATIENCE, eventually

LOG = {"m": "x"}


def _texts(sink: RecordingSink) -> list[str]:
    """Return the first value of each delivered log, in the order of delivery."""
    return [log[0][1].decode() for delivery in sink.deliveries for log in contents_of(delivery.payload.body)]


@pytest.fixture
def switching() -> Iterator[None]:
    """Make threads switch much more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_logs_take_the_short_way_from_the_second_of_a_batch_on() -> None:
    """The general way is used once for each batch; other times and names change nothing."""
    producer, pipeline = by_hand()
    stream = producer.stream("p", "l")
    stream.send(LOG)
    assert takes_short_way(stream)
    for number in range(1000):
        stream.send({"m": f"{number}"})
    assert producer.general == 1
    pipeline.accumulator.seal_open()
    for number in range(1000):
        stream.send({"m": number})
    assert producer.general == 2
    pipeline.clock.advance(1)  # type: ignore[attr-defined]
    for _ in range(1000):
        stream.send({"m": None})
    assert producer.general == 2
    stream.send([LOG])
    for _ in range(1000):
        stream.send(LOG)
    assert producer.general == 3
    for number in range(1000):
        stream.send({"m": "x"} if number % 2 else {f"n{number}": "x", "o": "y"})
    assert producer.general == 3


def test_a_batch_of_one_log_is_few_objects_to_the_garbage_collector() -> None:
    """A batch of one log has at most six objects for the garbage collector, with the native implementation four."""
    producer, _ = by_hand()
    streams = [producer.stream("p", "l", topic=f"{number}") for number in range(201)]
    streams[200].send(LOG)
    before = _tracked([producer, *streams])
    for stream in streams[:200]:
        stream.send(LOG)
    most = 6 if accumulator.OpenRecords is OPEN_RECORDS["pure"] else 4
    assert (_tracked([producer, *streams]) - before) / 200 <= most


def _tracked(things: list[object]) -> int:
    """Return the number of objects that the garbage collector tracks for them."""
    gc.collect()  # a collection untracks tuples of untracked items
    return sum(map(gc.is_tracked, within_reach(things)))


def test_logs_with_a_time_of_their_own_take_the_short_way() -> None:
    """Logs with a time of their own take the short way, and arrive with their time."""
    producer, pipeline = by_hand()
    stream = producer.stream("p", "l")
    for number in range(1000):
        stream.send(LogItem({"m": f"{number}"}, 1_700_000_000 + number, number))
    assert producer.general == 1
    pipeline.accumulator.seal_open()
    settle(pipeline)
    [delivery] = pipeline.sink.deliveries  # type: ignore[attr-defined]
    logs = LogGroup.FromString(delivery.payload.body).Logs
    assert [(log.Time, log.Time_ns) for log in logs] == [(1_700_000_000 + number, number) for number in range(1000)]


@pytest.mark.parametrize("ordered", [False, True])
def test_send_after_close_has_begun_is_refused_though_the_handle_knew_an_open_batch(ordered: bool) -> None:
    """send is refused during and after close, even with a known open batch; earlier logs are delivered."""
    sink = GatedSink()
    producer = Producer(sink=sink, config=config(linger_ms=100_000, drain_timeout_ms=20_000))
    stream = producer.stream("p", "l", ordered=ordered)
    futures = known(stream, LOG)
    closing = threading.Thread(target=producer.close)
    closing.start()
    assert sink.entered.acquire(timeout=PATIENCE)
    with pytest.raises(ProducerClosedError):
        stream.send(LOG)
    sink.gate.set()
    closing.join(PATIENCE)
    with pytest.raises(ProducerClosedError):
        stream.send(LOG)
    assert all(future.result(0).successful for future in futures)
    assert len(sink.records()) == len(futures)


def test_a_stream_with_a_sequence_key_has_no_open_batch() -> None:
    """Each send of a stream with a SequenceKey is a batch of its own, with the next number."""
    sink = RecordingSink()
    with Producer(sink=sink, config=config(io_thread_count=1)) as producer:
        stream = producer.stream("p", "l", idempotent=SequenceKey("a" * 32))
        for _ in range(30):
            stream.send(LOG)
            assert stream._open is None
    numbers = [delivery.sequence.number for delivery in sink.deliveries if delivery.sequence is not None]
    assert sorted(numbers) == list(range(1, 31))


def test_a_producer_with_a_channel_has_no_short_way() -> None:
    """With a channel, each send is stored before it returns."""
    sink, channel = RecordingSink(), MemoryChannel()
    with Producer(sink=sink, config=config(), channel=channel) as producer:
        stream = producer.stream("p", "l")
        futures = []
        for number in range(1, 31):
            futures.append(stream.send(LOG))
            assert stream._open is None
            assert channel.stats().put_successes == number
        producer.flush(PATIENCE)
    assert all(future.result(0).successful for future in futures)


def test_an_idempotent_stream_takes_the_short_way_and_its_batches_are_numbered() -> None:
    """The open batches of an idempotent stream take logs like others, and are numbered."""
    sink = RecordingSink()
    with CountingProducer(sink=sink, config=config(batch_count_threshold=50, linger_ms=100_000)) as producer:
        stream = producer.stream("p", "l", idempotent=True)
        for number in range(200):
            stream.send({"m": f"{number}"})
        assert producer.general < 100
        producer.flush(PATIENCE)
    assert _texts(sink) == [f"{number}" for number in range(200)]
    assert [delivery.sequence.number for delivery in sink.deliveries if delivery.sequence] == [1, 2, 3, 4]


def test_a_stream_with_an_open_batch_can_be_pickled() -> None:
    """A pickled stream leaves its open batch behind; the copy finds its own."""
    project = ProjectConfig("p", endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="b")
    with Producer(project, config=config()) as producer:
        producer._pipeline = threadless()
        stream = producer.stream("p", "l")
        known(stream, LOG)
        copy: Stream = pickle.loads(pickle.dumps(stream))
        assert takes_short_way(stream)
        assert copy._open is None
        pipeline = copy._producer._pipeline = threadless()
        futures = known(copy, LOG)
        pipeline.flush(10)
        assert len(pipeline.sink.records()) == len(futures)  # type: ignore[attr-defined]


# Futures.


@pytest.fixture(params=[True, False], ids=["delivered", "failed"])
def delivered(request: pytest.FixtureRequest) -> bool:
    """Return whether the batch is delivered."""
    return bool(request.param)


def _sent(delivered: bool) -> tuple[list[SendFuture], Callable[[], None]]:
    """Return futures of the short way, and a function that completes them."""
    script = [] if delivered else [RejectedError("ParameterInvalid", "no", http_status=400)]
    producer, pipeline = by_hand(ScriptedSink(script))
    stream = producer.stream("p", "l")
    futures = known(stream, LOG, 20)[10:]
    assert producer.general == 1

    def end() -> None:
        assert producer is not None
        pipeline.accumulator.seal_open()
        settle(pipeline)

    return futures, end


def test_result_and_exception_wait_then_have_the_batchs_result_so_does_the_repr(delivered: bool) -> None:
    """result and exception wait, then have the batch's result; so does the repr."""
    futures, end = _sent(delivered)
    first = futures[0]
    assert repr(first) == "<SendFuture pending>"
    assert not first.done()
    with pytest.raises(TimeoutError):
        first.result(0)
    end()
    assert all(future.done() for future in futures)
    if delivered:
        assert repr(first) == "<SendFuture delivered>"
        assert first.result().successful
        assert first.exception() is None
    else:
        assert repr(first) == "<SendFuture failed: ParameterInvalid>"
        with pytest.raises(ResultFailedError):
            first.result()
        assert first.exception().result.error_code == "ParameterInvalid"  # type: ignore[union-attr]


def test_done_callbacks_run_once_added_before_or_after_completion(delivered: bool) -> None:
    """Done-callbacks run once, added before or after completion, even if no other future of the batch has one."""
    futures, end = _sent(delivered)
    called: list[SendFuture] = []
    futures[3].add_done_callback(called.append)  # type: ignore[arg-type]
    end()
    assert called == [futures[3]]
    futures[4].add_done_callback(called.append)  # type: ignore[arg-type]
    assert called == [futures[3], futures[4]]


@pytest.mark.parametrize("way", ["wait", "as_completed", "await"])
def test_concurrent_futures_and_asyncio_are_notified_even_if_no_callback_was_given(way: str, delivered: bool) -> None:
    """concurrent.futures and asyncio are notified, even if no callback was given."""
    futures, end = _sent(delivered)
    waiting = threading.Event()

    def waited() -> int:
        if way == "wait":
            return len(concurrent.futures.wait(futures, PATIENCE).done)
        if way == "as_completed":
            return len(list(concurrent.futures.as_completed(futures, PATIENCE)))

        async def gathered() -> int:
            return len(await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), PATIENCE))

        return asyncio.run(gathered())

    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiter = pool.submit(waited)
        eventually(lambda: all(future._watch is not None for future in futures))
        waiting.set()
        end()
        assert waiter.result(PATIENCE) == len(futures)


def test_a_callback_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A callback that raises is logged; later callbacks run, and the memory is returned."""
    producer, pipeline = by_hand()
    stream = producer.stream("p", "l")
    known(stream, LOG)
    told: list[Result] = []

    def wild(_: object) -> None:
        raise SystemExit("wild")

    stream.send(LOG, callback=wild)
    stream.send(LOG).add_done_callback(wild)
    stream.send(LOG, callback=told.append)
    assert producer.general == 1
    pipeline.flush(10)
    settle(pipeline)
    assert [result.successful for result in told] == [True]
    assert sum("a callback raised" in record.getMessage() for record in caplog.records) == 2
    assert pipeline.budget.used == 0


# Threads.


def _in_threads(count: int, work: Callable[[int], None], meanwhile: Callable[[], None] = lambda: None) -> None:
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        running = [pool.submit(work, number) for number in range(count)]
        while not all(one.done() for one in running):
            meanwhile()
        for one in running:
            one.result()


@pytest.mark.parametrize("handles", ["one handle", "a handle each", "a shape each"])
def test_threads_that_send_at_once_lose_nothing(handles: str, switching: None) -> None:
    """While others flush, linger and fill batches, each log of each thread arrives once, in the thread's order.

    There is a future for each log, each is notified once, and the counters are right in the end.
    """
    sink, told = RecordingSink(), Counter[tuple[int, int]]()
    options = {"io_thread_count": 1, "linger_ms": 100, "batch_count_threshold": 150, "total_size_in_bytes": 300_000}
    producer = CountingProducer(sink=sink, config=config(**options, max_block_ms=-1))
    shared, futures, each = producer.stream("p", "l", ordered=True), [], 600

    def work(thread: int) -> None:
        stream = shared if handles == "one handle" else producer.stream("p", "l", ordered=True)
        name = f"m{thread}" if handles == "a shape each" else "m"
        for number in range(each):
            mine = (thread, number)
            callback = (lambda _, mine=mine: told.update([mine])) if number % 3 == 0 else None
            future = stream.send({name: f"{thread}-{number}"}, callback=callback)
            if number % 3 == 1:
                future.add_done_callback(lambda _, mine=mine: told.update([mine]))
            futures.append(future)

    _in_threads(8, work, lambda: producer.flush(PATIENCE))
    stats = producer.stats()
    producer.close(PATIENCE)
    assert (stats.accepted, producer.stats().delivered, len(futures)) == (8 * each, 8 * each, 8 * each)
    assert all(future.result(0).successful for future in futures)
    texts = _texts(sink)
    for thread in range(8):
        assert [text for text in texts if text.startswith(f"{thread}-")] == [f"{thread}-{i}" for i in range(each)]
    assert len(texts) == 8 * each
    assert told == Counter({(thread, i): 1 for thread in range(8) for i in range(each) if i % 3 != 2})
    assert producer.stats().memory_used == 0
    (counts,) = producer.stats().streams
    assert (counts.accepted, counts.delivered, counts.pending) == (8 * each, 8 * each, 0)
    assert producer.general < 8 * each


def test_close_while_threads_send_settles_whatever_was_accepted(switching: None) -> None:
    """Each send raises, or is delivered once, also between the open batch and the close."""
    for _ in range(10):
        sink, accepted = RecordingSink(), []
        producer = Producer(sink=sink, config=config(linger_ms=100_000, drain_timeout_ms=20_000))
        streams = [producer.stream("p", "l") for _ in range(2)]
        for stream in streams:
            known(stream, LOG)
        begun = threading.Semaphore(0)

        def work(thread: int, streams: list[Stream] = streams, accepted: list[SendFuture] = accepted) -> None:
            while True:
                try:
                    accepted.append(streams[thread % 2].send({"m": "y"}))
                except ProducerClosedError:
                    return
                begun.release()  # noqa: B023

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(work, number) for number in range(4)]
            for _ in range(40):
                assert begun.acquire(timeout=PATIENCE)
            producer.close(PATIENCE)
            for one in running:
                one.result(PATIENCE)
        assert all(future.result(0).successful for future in accepted)
        assert _texts(sink).count("y") == len(accepted)
        assert producer.stats().memory_used == 0


@pytest.mark.parametrize("way", ["send", "send of a list", "send_many", "producer.send"])
def test_a_log_that_another_thread_changes_is_sent_as_it_was_at_one_moment(way: str, switching: None) -> None:
    """A log that another thread changes is sent as it was at one moment; futures, records and memory agree."""
    sink = RecordingSink()
    producer = Producer(sink=sink, config=config(batch_count_threshold=500, max_block_ms=-1))
    stream = producer.stream("p", "l")
    known(stream, {"a": "a", "b": "b", "c": "c"})
    log: dict[str, Any] = {"a": "a", "b": "b", "c": "c"}
    stop = threading.Event()
    ways: dict[str, Callable[[], Any]] = {
        "send": lambda: stream.send(log),
        "send of a list": lambda: stream.send([log]),
        "send_many": lambda: stream.send_many([log])[0],
        "producer.send": lambda: producer.send("p", "l", log),
    }

    def change() -> None:
        while not stop.is_set():
            for name in ("a", "b", "c"):
                log[name] = log.pop(name)

    changing = threading.Thread(target=change)
    changing.start()
    futures = [ways[way]() for _ in range(20_000)]
    stop.set()
    changing.join()
    producer.close(PATIENCE)
    stats = producer.stats()
    assert (stats.delivered, stats.memory_used) == (len(futures) + 12, 0)
    assert all(future.result(0).successful for future in futures)
    logs = [log for delivery in sink.deliveries for log in contents_of(delivery.payload.body)]
    assert len(logs) == len(futures) + 12
    assert all(set(value) == set(name) for log in logs for name, value in log)


def _full(**options: Any) -> tuple[Producer, GatedSink]:
    """Return a producer with full memory whose sends would wait forever."""
    sink = GatedSink()
    producer = Producer(sink=sink, config=config(total_size_in_bytes=20_000, max_block_ms=-1, **options))
    producer.send("p", "l", {"m": "x" * 15_000})
    return producer, sink


@pytest.mark.parametrize("log", [{"m": "y" * 9_000}, LogItem({"m": "y" * 9_000}, 1, 1)])
def test_a_handle_waits_for_its_own_max_block_ms_0_included_whatever_other_sends_do_a_pickle_keeps_it(log: Any) -> None:
    """A handle waits for its own max_block_ms, 0 included, whatever other sends do; a pickle keeps it."""
    producer, sink = _full()
    for milliseconds in (0, 20):
        stream = producer.stream("p", "l", max_block_ms=milliseconds)
        with pytest.raises(SendTimeoutError) as caught:
            stream.send(log)
        assert caught.value.waited >= milliseconds / 1000
    sink.gate.set()
    producer.stream("p", "l", max_block_ms=-1).send(log).result(PATIENCE)
    producer.close()
    assert pickle.loads(pickle.dumps(Stream(Producer(), stream.key, 7))).max_block_ms == 7


def test_a_handle_waits_for_room_in_a_channel_as_long_as_for_memory() -> None:
    """A handle waits for room in a channel as long as for memory."""
    sink = GatedSink()
    with Producer(
        sink=sink, config=config(max_block_ms=-1), channel=MemoryChannel(capacity=1, transaction_capacity=1)
    ) as producer:
        producer.send("p", "l", LOG)
        with pytest.raises(SendTimeoutError):
            producer.stream("p", "l", max_block_ms=0).send(LOG)
        sink.gate.set()


def test_an_invalid_max_block_ms_is_refused_when_the_handle_is_made() -> None:
    """An invalid max_block_ms is refused when the handle is made."""
    with pytest.raises(InvalidArgumentError, match="max_block_ms: must be None or an integer, got '5'"):
        Producer(sink=RecordingSink()).stream("p", "l", max_block_ms="5")  # type: ignore[arg-type]


def test_a_replaced_stream_send_is_not_overwritten_by_the_native_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced Stream.send, such as a test's double, stays when the native implementation is imported."""
    said: list[Any] = []
    monkeypatch.setattr(Stream, "send", lambda _stream, log: said.append(log))
    with Producer(sink=RecordingSink(), config=config()) as producer:
        producer.stream("p", "l").send(LOG)
    assert said == [LOG]


def test_send_tells_its_parameters_whichever_twin_it_is() -> None:
    """Both implementations of send show their parameters to ``help`` and to editors."""
    Producer(sink=RecordingSink()).close()
    assert list(inspect.signature(Stream.send).parameters) == ["self", "log", "more", "callback", "urgent"]
    assert "StreamStoppedError" in (Stream.send.__doc__ or "")
    assert (Stream.send.__module__, Stream.send.__qualname__) == ("producer.client.stream", "Stream.send")


def test_send_and_wait_sends_at_once_and_returns_or_raises_the_outcome() -> None:
    """The call does not linger; it returns the result of a delivered log, and raises for a failed or a late one."""
    sink = GatedSink(None, RejectedError("InvalidLog", "no", http_status=400))
    with Producer(sink=sink, config=config(linger_ms=60_000)) as producer:
        stream = producer.stream("p", "l")
        with pytest.raises(TimeoutError, match="the delivery goes on"):
            stream.send_and_wait({"n": 1}, timeout=0.01)
        sink.gate.set()
        producer.flush(PATIENCE)  # The first log's attempt takes the first outcome.
        with pytest.raises(ResultFailedError, match="InvalidLog"):
            stream.send_and_wait({"n": 2}, timeout=PATIENCE)
        assert stream.send_and_wait([{"n": 3}, {"n": 4}], timeout=PATIENCE).successful
        with pytest.raises(InvalidArgumentError, match="timeout: must be None or seconds"):
            stream.send_and_wait({"n": 5}, timeout=-1)
        with pytest.raises(InvalidArgumentError, match="a stream knows its logstore p/l: send_and_wait takes the log"):
            stream.send_and_wait({"n": 5}, 10)  # type: ignore[arg-type]
