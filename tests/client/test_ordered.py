"""Ordered streams deliver records in the order of ``send``, or stop."""

import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from producer import (
    InvalidArgumentError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    RejectedError,
    ServerError,
    StreamStoppedError,
)
from producer.model.errors import AttemptError
from producer.model.interfaces import Delivery, Receipt
from producer.pipeline.batching.accumulator import Piece
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.shutdown import _abandon_rest, close_pipeline
from producer.runtime.clock import Deadline
from producer.server import LogHubServer
from producer.server.faults import Action, Cut, Refuse
from producer.server.messages import ApiRequest
from producer.testing import RecordingSink, ScriptedSink
from tests.durable.kit import KeptChannel, by_hand, drive, durable, values
from tests.support.clocks import JumpingClock
from tests.support.log_group_schema import contents_of
from tests.support.pipelines import KEY, config, record, settle, threadless
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, Call

ORDERED = KEY._replace(order="ordered")
BAD = RejectedError("ParameterInvalid", "no good", http_status=400)
FAILS = Refuse(status=500, code="InternalServerError")
BUSY = ServerError("ServerBusy", "later", may_have_been_stored=True)


class Picky(ScriptedSink):
    """Refuses records by their value: once for each error that is given for it."""

    def __init__(self, **errors: list[AttemptError]) -> None:
        super().__init__()
        self.errors = {value.removeprefix("n"): list(some) for value, some in errors.items()}

    def write(self, delivery: Delivery) -> Receipt:
        errors = self.errors.get(first_value(delivery.payload.body))
        if errors:
            self.script.append(errors.pop(0))
        return super().write(delivery)


def first_value(body: bytes) -> str:
    """Return the first value of the first log of a body."""
    return contents_of(body)[0][0][1].decode()


def producer_of(sink: RecordingSink, **options: Any) -> Producer:
    """Return a producer with small batches and short backoffs."""
    quick = {"linger_ms": 100, "batch_count_threshold": 3, "base_retry_backoff_ms": 1, "max_retry_backoff_ms": 5}
    return Producer(config=config(**(quick | options)), sink=sink)


def numbers(sink: RecordingSink) -> list[int]:
    return [int(value) for value in values(sink)]


def test_one_batch_of_an_ordered_stream_is_in_flight_at_a_time() -> None:
    """While a batch of an ordered stream is in flight, no other batch of it is; other streams send."""
    sink = GatedSink()
    with producer_of(sink, io_thread_count=4) as producer:
        ordered = producer.stream("project", "logstore", ordered=True)
        plain = producer.stream("project", "logstore")
        for n in range(9):
            ordered.send({"n": str(n)})
        assert sink.entered.acquire(timeout=PATIENCE)
        futures = [plain.send({"n": "100"}) for _ in range(6)]
        assert sink.entered.acquire(timeout=PATIENCE)
        assert sink.entered.acquire(timeout=PATIENCE)
        assert not sink.entered.acquire(timeout=0.05), "a second batch of the ordered stream is in flight"
        sink.gate.set()
        assert all(future.result(PATIENCE).successful for future in futures)
        producer.flush(PATIENCE)
    assert [n for n in numbers(sink) if n < 100] == list(range(9))


def test_a_retry_holds_up_its_own_stream_only_and_keeps_its_place() -> None:
    """A retried batch is delivered before those behind it; other streams pass it."""
    sink = Picky(n0=[BUSY] * 3)
    pipeline = threadless(sink, batch_count_threshold=1, base_retry_backoff_ms=1000)
    for n in range(3):
        pipeline.admission.accept(ORDERED, record(str(n)), 1, None)
    pipeline.admission.accept(KEY, record("other"), 1, None)
    settle(pipeline)
    assert values(sink) == ["other"]
    pipeline.flush(None)
    assert values(sink) == ["other", "0", "1", "2"]


def test_an_ordered_stream_and_an_ordinary_one_of_the_same_names_do_not_share_batches() -> None:
    """The keys differ; an ordered stream that is opened twice is one stream with one order."""
    sink = RecordingSink()
    with producer_of(sink, batch_count_threshold=4) as producer:
        first = producer.stream("project", "logstore", ordered=True)
        second = producer.stream("project", "logstore", ordered=True)
        plain = producer.stream("project", "logstore")
        assert first.key == second.key != plain.key
        for n in range(2):
            first.send({"n": str(2 * n)})
            second.send({"n": str(2 * n + 1)})
            plain.send({"n": "9"})
            plain.send({"n": "9"})
    assert len(sink.deliveries) == 2
    assert sorted(values(sink)[start : start + 4] for start in (0, 4)) == [["0", "1", "2", "3"], ["9"] * 4]


def test_a_permanent_failure_stops_the_stream_until_it_is_resumed() -> None:
    """A failed batch stops the stream with its reason; later batches and sends fail, until resume()."""
    sink = Picky(n1=[BAD])
    pipeline = threadless(sink, batch_count_threshold=1)
    futures = [pipeline.admission.accept(ORDERED, record(str(n)), 1, None) for n in range(4)]
    other = pipeline.admission.accept(KEY, record("other"), 1, None)
    settle(pipeline)
    assert futures[0].result(0).successful
    assert other.result(0).successful
    assert futures[1].exception(0).result.error_code == "ParameterInvalid"  # type: ignore[union-attr]
    for behind in futures[2:]:
        result = behind.exception(0).result  # type: ignore[union-attr]
        assert (result.error_code, result.attempt_count, result.may_have_been_stored) == ("StreamStopped", 1, False)
        assert "ParameterInvalid: no good" in result.error_message
    with pytest.raises(StreamStoppedError, match=r"project/logstore.*no good.*resume\(\)") as caught:
        pipeline.admission.accept(ORDERED, record("4"), 1, None)
    assert caught.value.first.error_code == "ParameterInvalid"
    assert caught.value.stream == ORDERED
    assert pipeline.budget.used == 0
    pipeline.resume(ORDERED)
    pipeline.admission.accept(ORDERED, record("5"), 1, None)
    settle(pipeline)
    assert values(sink) == ["0", "other", "5"]
    assert pipeline.stats().failed == 3


def test_a_waiter_of_the_failed_future_finds_the_stream_stopped() -> None:
    """When a failed future wakes its thread, send raises StreamStoppedError and Stream.stopped has the error."""
    sink = ScriptedSink([BAD])
    with producer_of(sink) as producer:
        stream = producer.stream("project", "logstore", ordered=True)
        assert stream.stopped is None
        stream.resume()
        assert stream.send({"n": "0"}).exception(PATIENCE) is not None
        assert isinstance(stream.stopped, StreamStoppedError)
        with pytest.raises(StreamStoppedError):
            stream.send({"n": "1"})
        with pytest.raises(StreamStoppedError):
            producer.stream("project", "logstore", ordered=True).send({"n": "1"})
        assert producer.send("project", "logstore", {"n": "2"}).result(PATIENCE).successful
        stream.resume()
        assert stream.stopped is None
        assert stream.send({"n": "3"}).result(PATIENCE).successful


def test_send_many_reports_the_accepted_pieces_when_the_stream_stops() -> None:
    """If a stream stops between two pieces, the error has the accepted pieces."""
    sink = ScriptedSink([BAD])
    pipeline = threadless(sink, batch_count_threshold=1)

    def pieces() -> Iterator[Piece]:
        for number in range(5):
            if number == 2:
                settle(pipeline)
            yield Piece(ORDERED, record(str(number)), 1)

    with pytest.raises(StreamStoppedError) as caught:
        pipeline.admission.accept_pieces(pieces(), None)
    assert (len(caught.value.accepted), caught.value.accepted_logs) == (2, 2)


def test_exhausted_retries_stop_the_stream() -> None:
    """A batch whose retries are used up has failed permanently."""
    pipeline = threadless(ScriptedSink([BUSY] * 3), batch_count_threshold=1, retries=2)
    futures = [pipeline.admission.accept(ORDERED, record(str(n)), 1, None) for n in range(2)]
    pipeline.flush(None)
    assert [future.exception(0).result.error_code for future in futures] == ["ServerBusy", "StreamStopped"]  # type: ignore[union-attr]


def test_an_open_batch_behind_a_failure_fails_with_it() -> None:
    """Lingering records behind a failure are not sent."""
    sink = ScriptedSink([BAD])
    pipeline = threadless(sink, batch_count_threshold=2)
    futures = [pipeline.admission.accept(ORDERED, record(str(n)), 1, None) for n in range(3)]
    assert pipeline.io_pool.run_next()
    settle(pipeline)
    assert futures[2].exception(0).result.error_code == "StreamStopped"  # type: ignore[union-attr]
    pipeline.resume(ORDERED)
    pipeline.admission.accept(ORDERED, record("3"), 1, None)
    pipeline.flush(None)
    assert values(sink) == ["3"]


def test_if_close_fails_the_first_batch_of_an_ordered_stream_no_later_batch_reaches_the_server() -> None:
    """If close fails the first batch of an ordered stream, no later batch reaches the server."""
    sink = ScriptedSink([BUSY] * 1000)
    pipeline = threadless(sink, JumpingClock(), batch_count_threshold=1, retries=1000, base_retry_backoff_ms=1000)
    futures = [pipeline.admission.accept(ORDERED, record(str(n)), 1, None) for n in range(5)]
    settle(pipeline)
    abandoned, _ = close_pipeline(pipeline, Deadline.after(pipeline.clock, 0))
    assert abandoned == 5
    assert [future.exception(0).result.error_code for future in futures] == ["ProducerClosed"] * 5  # type: ignore[union-attr]
    assert {first_value(delivery.payload.body) for delivery in sink.attempts} == {"0"}


def test_while_close_fails_a_stream_an_io_thread_finds_nothing_to_send() -> None:
    """While close fails the batches of an ordered stream, even a quick IO thread finds nothing to send."""
    sink = Picky(n0=[BUSY])
    pipeline = threadless(sink, batch_count_threshold=1)
    for n in range(5):
        pipeline.admission.accept(ORDERED, record(str(n)), 1, None)
    settle(pipeline)
    submit = pipeline.io_pool.submit

    def at_once(batch: ProducerBatch) -> None:
        submit(batch)
        pipeline.io_pool.run_next()

    pipeline.io_pool.submit = at_once  # type: ignore[method-assign]
    assert _abandon_rest(pipeline) == 5
    assert [first_value(delivery.payload.body) for delivery in sink.attempts] == ["0"]


def test_concurrent_senders_are_ordered_by_acceptance() -> None:
    """Each thread's records arrive in the order of its own sends."""
    dice = random.Random(4)
    sink = ScriptedSink([dice.choice([None, BUSY]) for _ in range(200)])
    with producer_of(sink, retries=1000) as producer:
        stream = producer.stream("project", "logstore", ordered=True)

        def send(thread: int) -> None:
            for n in range(100):
                stream.send({"n": f"{thread * 1000 + n}"})

        for call in [Call(lambda thread=thread: send(thread)) for thread in range(4)]:
            call.result()
        producer.flush(PATIENCE)
    for thread in range(4):
        assert [n for n in numbers(sink) if n // 1000 == thread] == [thread * 1000 + n for n in range(100)]


def test_bad_flags_are_refused_in_words() -> None:
    """Flags that are not booleans, and a shard hash without free bits, get an error that says so."""
    producer = Producer(config=ProducerConfig(adjust_shard_hash=False), sink=ScriptedSink())
    for wrong in ({"ordered": 1}, {"idempotent": "yes"}, {"idempotent": True, "shard_hash": "0" * 32}):
        with pytest.raises(InvalidArgumentError, match=r"ordered|idempotent"):
            producer.stream("project", "logstore", **wrong)  # type: ignore[arg-type]
    assert producer.stream("project", "logstore", ordered=True, shard_hash="0" * 32).key.shard_hash == "0" * 32


def test_a_pickled_stream_keeps_its_order() -> None:
    """A pickled stream keeps its flags."""
    project = ProjectConfig("project", endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="b")
    stream = Producer(project, config=config()).stream("project", "logstore", ordered=True)
    assert pickle.loads(pickle.dumps(stream)).key == stream.key


def test_a_stopped_error_can_be_pickled() -> None:
    """A StreamStoppedError can cross processes, as errors of Spark tasks do."""
    pipeline = threadless(ScriptedSink([BAD]), batch_count_threshold=1)
    pipeline.admission.accept(ORDERED, record(), 1, None)
    settle(pipeline)
    error = pipeline.stopped(ORDERED)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# -- with a durable channel


def test_without_dead_letters_the_refused_record_is_dropped() -> None:
    """Without dead letters the refused record is dropped; the rest of its stream is delivered after resume()."""
    channel, sink = KeptChannel(), Picky(n1=[BAD])
    pipeline = by_hand(sink, channel, batch_count_threshold=1)
    futures = [pipeline.admission.accept(ORDERED, record(str(n)), 1, None) for n in range(4)]
    pipeline.admission.accept(KEY, record("other"), 1, None)
    drive(pipeline)
    assert values(sink) == ["0", "other"]
    codes = [future.exception(0).result.error_code for future in futures[1:]]  # type: ignore[union-attr]
    assert codes == ["ParameterInvalid", "StreamStopped", "StreamStopped"]
    assert pipeline.stats().kept_back == 2
    assert pipeline.pipeline.budget.used == 0
    with pytest.raises(StreamStoppedError):
        pipeline.admission.accept(ORDERED, record("x"), 1, None)
    pipeline.resume(ORDERED)
    last = pipeline.admission.accept(ORDERED, record("4"), 1, None)
    drive(pipeline)
    pipeline.pipeline.accumulator.seal_open()
    drive(pipeline)
    assert values(sink) == ["0", "other", "2", "3", "4"]
    assert last.result(0).successful
    assert pipeline.stats().kept_back == 0
    assert pipeline.stored == 0


def test_behind_a_channel_later_events_of_a_stopped_stream_cost_no_memory() -> None:
    """Records fed after the stop are parked in the channel; their futures fail, and other streams continue."""
    channel, sink = KeptChannel(), ScriptedSink([BAD])
    pipeline = by_hand(sink, channel, batch_count_threshold=1)
    pipeline.admission.accept(ORDERED, record("0"), 1, None)
    backlog = pipeline.admission.accept(ORDERED, record("1"), 1, None)
    while not pipeline.pipeline.stopped(ORDERED):
        pipeline.feeder.run_once(0)
        pipeline.pipeline.io_pool.run_next()
    drive(pipeline)
    assert backlog.exception(0).result.error_code == "StreamStopped"  # type: ignore[union-attr]
    assert pipeline.pipeline.budget.used == 0
    assert pipeline.stored == 1


def test_a_stop_does_not_outlive_its_producer() -> None:
    """A stop does not outlive its producer."""
    channel = KeptChannel()
    with durable(ScriptedSink([BAD]), channel, batch_count_threshold=1) as producer:
        stream = producer.stream("project", "logstore", ordered=True)
        first = stream.send({"n": "0"})
        assert first.exception(PATIENCE) is not None
        with pytest.raises(StreamStoppedError):
            stream.send({"n": "1"})
        stream.resume()
        producer.flush(PATIENCE)
        stream.send({"n": "2"})
        producer.flush(PATIENCE)
    pipeline = by_hand(ScriptedSink([BAD]), channel, batch_count_threshold=1)
    for n in range(3):
        pipeline.admission.accept(ORDERED, record(str(n)), 1, None)
    drive(pipeline)
    pipeline.give_back()
    sink = RecordingSink()
    with durable(sink, channel) as producer:
        producer.flush(PATIENCE)
    assert values(sink) == ["1", "2"]


def test_the_refused_record_becomes_a_dead_letter_with_its_order() -> None:
    """The refused record becomes a dead letter with its order; waiting records are delivered after resume()."""
    channel, letters, sink = KeptChannel(), KeptChannel(), ScriptedSink([BAD])
    pipeline = by_hand(sink, channel, letters, batch_count_threshold=1)
    for n in range(3):
        pipeline.admission.accept(ORDERED, record(str(n)), 1, None)
    drive(pipeline)
    (letter,) = letters.events()
    assert (letter.headers["order"], letter.headers["error_code"]) == ("ordered", "ParameterInvalid")
    assert pipeline.stored == 2
    pipeline.resume(ORDERED)
    drive(pipeline)
    pipeline.pipeline.accumulator.seal_open()
    drive(pipeline)
    assert values(sink) == ["1", "2"]


def test_a_record_that_no_channel_could_store_is_retried_before_those_behind_it() -> None:
    """A record that no channel could store is retried before those behind it."""
    channel, sink = KeptChannel(), ScriptedSink([BAD])
    pipeline = by_hand(sink, channel, batch_count_threshold=1)
    pipeline.acks._dead_letters = _Refusing()  # type: ignore[assignment]
    for n in range(3):
        pipeline.admission.accept(ORDERED, record(str(n)), 1, None)
    drive(pipeline)
    assert pipeline.stored == 3
    pipeline.resume(ORDERED)
    drive(pipeline)
    pipeline.pipeline.accumulator.seal_open()
    drive(pipeline)
    assert values(sink) == ["0", "1", "2"]


class _Refusing:
    stored = 0

    def reason_of(self, _result: object) -> dict[str, str]:
        return {}

    def store(self, _events: object) -> int:
        return 0


# -- a real server


@pytest.fixture(scope="module")
def server() -> Iterator[LogHubServer]:
    with LogHubServer(shards=1) as running:
        yield running


def test_the_order_holds_under_random_faults(server: LogHubServer) -> None:
    """Under 500s, resets and lost responses, first arrivals keep the order of send."""
    dice, lock = random.Random(7), threading.Lock()

    def fault(_request: ApiRequest) -> Action | None:
        with lock:
            return dice.choice(
                [None, None, Refuse(status=500, code="InternalServerError"), Cut("in_body"), Cut("stored")]
            )

    server.faults.add(fault)
    try:
        project = ProjectConfig("ordered-project", endpoint=server.endpoint, **_keys(server))
        quick = {"linger_ms": 100, "batch_count_threshold": 5, "base_retry_backoff_ms": 1, "max_retry_backoff_ms": 5}
        with Producer(project, config=ProducerConfig(**quick, retries=100)) as producer:
            stream = producer.stream("ordered-project", "logstore", ordered=True)
            for n in range(200):
                stream.send({"n": str(n)})
            producer.flush(PATIENCE)
    finally:
        server.faults.clear()
    arrived = [int(dict(log.contents)["n"]) for log in server.logs("ordered-project", "logstore")]
    assert list(dict.fromkeys(arrived)) == list(range(200))
    assert len(arrived) > 200, "no fault duplicated anything: the test cannot tell"


def _keys(server: LogHubServer) -> dict[str, str]:
    return {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
