"""Idempotent streams store every record exactly once: they know which batches the server has."""

import gc
import logging
import math
import os
import pickle
import random
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from producer import (
    BodyTooLargeError,
    InvalidArgumentError,
    NetworkError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    RejectedError,
    SendFuture,
    SequenceKey,
    Stream,
)
from producer.model.sequence import Numbering
from producer.pipeline.batching.unconfirmed import REFUSALS_BEFORE_SPLIT
from producer.server import LogHubServer
from producer.server.faults import Action, Cut, HalfAnswer, Refuse
from producer.server.messages import ApiRequest
from producer.wire.put_logs import adjust_shard_hash
from tests.durable.kit import KeptChannel, by_hand, drive, durable, values
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, config, record, settle, threadless
from tests.support.sequenced import Server
from tests.support.waiting import PATIENCE, Call

IDEMPOTENT = KEY._replace(order="idempotent")
KEY_A, KEY_B = "ab" * 16, "cd" * 16
LOST = NetworkError("RequestError", "no answer", may_have_been_stored=True)
DOWN = NetworkError("RequestError", "refused")
BAD = RejectedError("ParameterInvalid", "no good", http_status=400)
FAILS = Refuse(status=500, code="InternalServerError")


def sequenced(key: str = KEY_A, first: int = 1) -> Any:
    """Return the option for a stream whose numbers the caller owns."""
    return KEY._replace(order=Numbering(SequenceKey(key, first)))


def test_batches_carry_one_key_and_numbers_from_one_on() -> None:
    """The key has 32 hexadecimal digits for each stream, the number grows by one with each batch; ordinary batches have
    neither.
    """
    sink = Server()
    pipeline = threadless(sink, batch_count_threshold=2)
    for n in range(6):
        pipeline.admission.accept(IDEMPOTENT, record(str(n)), 1, None)
    pipeline.admission.accept(KEY, record("plain"), 1, None)
    pipeline.flush(None)
    assert sink.numbers() == [1, 2, 3]
    (key,) = sink.last
    assert len(key) == 32
    assert int(key, 16) >= 0
    assert [delivery.sequence for delivery in sink.deliveries if not delivery.key.order] == [None]


def test_invalidsequenceid_after_an_attempt_that_may_have_stored_the_batch_is_a_success() -> None:
    """InvalidSequenceId after an attempt that may have stored the batch is a success, marked as already written."""
    sink = Server(LOST)
    pipeline = threadless(sink)
    future = pipeline.admission.accept(IDEMPOTENT, record("0"), 1, None)
    pipeline.flush(None)
    result = future.result(0)
    assert values(sink) == ["0"]
    assert result.already_written
    assert not result.may_have_been_stored
    first, last = result.attempts
    assert (first.success, first.already_written, first.may_have_been_stored) == (False, False, True)
    assert (last.success, last.already_written, last.http_status, last.error_code) == (True, True, 400, "")
    assert pipeline.stats().delivered == 1


def test_if_another_writer_used_the_number_the_batch_fails_the_stream_stops() -> None:
    """If another writer used the number, the batch fails, the stream stops, and resumes with a new key."""
    sink = Server()
    pipeline = threadless(sink, batch_count_threshold=1)
    pipeline.admission.accept(IDEMPOTENT, record("0"), 1, None)
    settle(pipeline)
    (key,) = sink.last
    sink.last[key] = 99
    future = pipeline.admission.accept(IDEMPOTENT, record("1"), 1, None)
    settle(pipeline)
    result = future.exception(0).result  # type: ignore[union-attr]
    assert result.error_code == "InvalidSequenceId"
    assert "another process uses the key" in result.error_message
    assert result.may_have_been_stored
    assert pipeline.stopped(IDEMPOTENT) is not None
    pipeline.resume(IDEMPOTENT)
    pipeline.admission.accept(IDEMPOTENT, record("1"), 1, None)
    settle(pipeline)
    assert values(sink) == ["0", "1"]
    assert len(sink.last) == 2


def test_an_attempt_that_cannot_have_stored_anything_explains_no_refused_number() -> None:
    """After a refused connection, InvalidSequenceId still means another writer."""
    sink = Server(DOWN)
    pipeline = threadless(sink, batch_count_threshold=1)
    future = pipeline.admission.accept(IDEMPOTENT, record("0"), 1, None)
    assert pipeline.io_pool.run_next()
    (attempt,) = sink.attempts
    assert attempt.sequence is not None
    sink.last[attempt.sequence.key] = 1
    pipeline.flush(None)
    assert future.exception(0).result.error_code == "InvalidSequenceId"  # type: ignore[union-attr]


def test_halves_of_a_batch_that_is_too_large_take_numbers_that_follow() -> None:
    """The first half has the number of the whole, the second the next, and later batches follow."""
    sink = Server(BodyTooLargeError("PostBodyTooLarge", "too large"))
    pipeline = threadless(sink, batch_count_threshold=4)
    for n in range(8):
        pipeline.admission.accept(IDEMPOTENT, record(str(n)), 1, None)
    settle(pipeline)
    assert sink.numbers() == [1, 2, 3]
    assert values(sink) == [str(n) for n in range(8)]


def test_a_lost_answer_to_a_half_is_not_mistaken_for_one_to_the_other() -> None:
    """An unconfirmed attempt for the whole does not explain a refused number of the second half."""
    sink = Server(DOWN, BodyTooLargeError("PostBodyTooLarge", "too large"), LOST)
    pipeline = threadless(sink, batch_count_threshold=4)
    futures = [pipeline.admission.accept(IDEMPOTENT, record(str(n)), 1, None) for n in range(4)]
    pipeline.flush(None)
    assert values(sink) == ["0", "1", "2", "3"]
    assert [future.result(0).already_written for future in futures] == [True, True, False, False]


def test_the_second_halfs_number_was_never_sent_before_another_writer_used_it_and_the_half_fails() -> None:
    """The second half's number was never sent before: another writer used it, and the half fails."""
    too_large = BodyTooLargeError("PostBodyTooLarge", "too large")
    sink = Server(LOST, *[too_large] * REFUSALS_BEFORE_SPLIT)
    pipeline = threadless(sink, batch_count_threshold=4)
    futures = [pipeline.admission.accept(IDEMPOTENT, record(str(n)), 1, None) for n in range(4)]
    assert pipeline.io_pool.run_next()
    (key,) = sink.last
    sink.last[key] = 0  # unconfirmed, and not stored
    for _ in range(REFUSALS_BEFORE_SPLIT):
        for batch in pipeline.retry_queue.take_due(math.inf):
            pipeline.resubmit(batch)
        assert pipeline.io_pool.run_next()  # the last run splits it in two
    assert pipeline.io_pool.run_next()  # the first half
    sink.last[key] = 2
    settle(pipeline)
    assert [future.exception(0) is None for future in futures] == [True, True, False, False]


def test_a_stream_that_was_forgotten_gets_a_new_key() -> None:
    """The number and key of an idle stream are forgotten together; nothing is refused or stored twice."""
    sink, clock = Server(LOST, None, None, LOST), JumpingClock()
    pipeline = threadless(sink, clock, batch_count_threshold=1)
    for n in range(3):
        pipeline.admission.accept(IDEMPOTENT, record(str(n)), 1, None)
        pipeline.flush(None)
        clock.advance(120)
        pipeline.accumulator.seal_expired(clock.monotonic())
    assert values(sink) == ["0", "1", "2"]
    assert len(sink.last) == 3
    assert set(sink.last.values()) == {1}


def test_a_shard_hash_keeps_the_bits_that_choose_the_shard() -> None:
    """The first bits of the key are those of the adjusted shard hash; the others are random."""
    sink = Server()
    with Producer(config=config(buckets=64), sink=sink) as producer:
        for topic in ("a", "b"):
            stream = producer.stream("p", "l", topic=topic, shard_hash="host-1", idempotent=True)
            stream.send({"a": "b"})
    chosen = int(adjust_shard_hash("host-1", 64), 16) >> 122
    assert [int(key, 16) >> 122 for key in sink.last] == [chosen] * 2
    assert len({int(key, 16) & (1 << 122) - 1 for key in sink.last}) == 2


# -- the caller's own numbers


def test_every_piece_is_a_batch_of_its_own_with_the_next_number() -> None:
    """Sends, lists and pieces of send_many are sent at once, never merged, numbered in the order of acceptance."""
    sink = Server()
    with Producer(config=config(batch_count_threshold=2, linger_ms=60_000), sink=sink) as producer:
        stream = producer.stream("p", "l", idempotent=SequenceKey(KEY_A, 7))
        futures = [stream.send({"n": "0"}), stream.send([{"n": "1"}, {"n": "2"}, {"n": "3"}])]
        futures += stream.send_many({"n": str(n)} for n in range(4, 7))
        assert all(future.result(PATIENCE).successful for future in futures)
    assert sink.numbers() == [7, 8, 9, 10]
    assert set(sink.last) == {KEY_A}
    assert [len(sink.decode(delivery.payload)) for delivery in sink.deliveries] == [1, 3, 2, 1]
    assert values(sink) == [str(n) for n in range(7)]


def test_a_second_handle_sends_the_same_numbers_and_nothing_is_stored_twice() -> None:
    """A retried task in the same process begins at ``first`` again; batches already written count as success."""
    sink = Server()
    with Producer(config=config(), sink=sink) as producer:
        for _ in range(2):
            stream = producer.stream("p", "l", idempotent=SequenceKey(KEY_A))
            futures = [stream.send({"n": str(n)}) for n in range(5)]
            results = [future.result(PATIENCE) for future in futures]
            assert all(result.successful for result in results)
    assert all(result.already_written for result in results)
    assert values(sink) == ["0", "1", "2", "3", "4"]


def test_a_stopped_handle_does_not_stop_the_next_one() -> None:
    """A task that is retried after a failure is not stopped by it."""
    sink = Server(None, BAD)
    with Producer(config=config(), sink=sink) as producer:
        failed = producer.stream("p", "l", idempotent=SequenceKey(KEY_A))
        assert failed.send({"n": "0"}).result(PATIENCE).successful
        assert failed.send({"n": "1"}).exception(PATIENCE) is not None
        assert failed.stopped is not None
        again = producer.stream("p", "l", idempotent=SequenceKey(KEY_A))
        assert again.stopped is None
        results = [again.send({"n": str(n)}).result(PATIENCE) for n in range(3)]
    assert [result.already_written for result in results] == [True, False, False]
    assert values(sink) == ["0", "1", "2"]


def test_a_stopped_handle_is_forgotten_with_its_stream(caplog: pytest.LogCaptureFixture) -> None:
    """Many failed tasks leave no state behind."""
    caplog.set_level(logging.CRITICAL)  # captured log records hold errors, and these their frames
    sink = Server(*(RejectedError("ParameterInvalid", "no good") for _ in range(3)))
    pipeline = threadless(sink)
    for _ in range(3):
        pipeline.admission.accept(sequenced(), record(), 1, None)
        settle(pipeline)
    assert len(pipeline.accumulator._stopped._handles) == 3
    sink.attempts.clear()
    pipeline.accumulator._idle.clear()
    pipeline.accumulator._streams.clear()
    gc.collect()
    assert not pipeline.accumulator._stopped._streams
    assert not pipeline.accumulator._stopped._handles


def test_a_numbered_piece_is_never_cut() -> None:
    """Status 413 fails a numbered piece permanently, since its halves would need the numbers of others."""
    sink = Server(BodyTooLargeError("PostBodyTooLarge", "too large", http_status=413))
    pipeline = threadless(sink)
    future = pipeline.admission.accept(sequenced(), record(logs=4), 4, None)
    settle(pipeline)
    result = future.exception(0).result  # type: ignore[union-attr]
    assert result.error_code == "PostBodyTooLarge"
    assert "never split" in result.error_message
    assert len(sink.attempts) == 1


def test_pieces_of_one_key_with_different_topics_are_sent_one_after_the_other() -> None:
    """Pieces of one key with different topics are sent one after the other, in the order of their numbers."""
    sink = Server(LOST, LOST)
    pipeline = threadless(sink)
    key = sequenced()
    for n in range(4):
        pipeline.admission.accept(key._replace(topic=str(n % 2)), record(str(n)), 1, None)
    pipeline.flush(None)
    assert sink.numbers() == [1, 2, 3, 4]
    assert values(sink) == ["0", "1", "2", "3"]


def test_each_number_is_given_once_in_memory_and_with_a_durable_channel_and_all_records_are_stored() -> None:
    """Each number is given once, in memory and with a durable channel, and all records are stored."""
    for channel in (None, KeptChannel()):
        sink = Server()
        with Producer(config=config(linger_ms=100), sink=sink, channel=channel) as producer:
            stream = producer.stream("p", "l", idempotent=SequenceKey(KEY_A))
            calls = [Call(partial(_send_fifty, stream)) for _ in range(4)]
            futures = [future for call in calls for future in call.result()]
            assert not any(future.result(PATIENCE).already_written for future in futures)
        assert sink.numbers() == list(range(1, 201))


def _send_fifty(stream: Stream) -> list[SendFuture]:
    return [stream.send({"n": "0"}) for _ in range(50)]


@pytest.mark.parametrize("wrong", [("AB" * 16, 1), ("ab", 1), (7, 1), (KEY_A, 0), (KEY_A, True), (KEY_A, 2**63)])
def test_a_wrong_sequence_key_is_refused_in_words(wrong: tuple[Any, Any]) -> None:
    """The key is 32 lower-case hexadecimal digits, the number from 1 to 2**63 - 1."""
    with pytest.raises(InvalidArgumentError, match=r"SequenceKey\.(key|first): must be"):
        SequenceKey(*wrong)


def test_a_sequence_key_and_a_shard_hash_exclude_each_other() -> None:
    """The key of a SequenceKey chooses the shard, so a shard hash is refused."""
    with pytest.raises(InvalidArgumentError, match="shard_hash: a SequenceKey chooses the shard"):
        Producer(config=config()).stream("p", "l", shard_hash="x", idempotent=SequenceKey(KEY_A))


def test_a_fresh_stream_with_a_sequence_key_can_be_pickled_and_a_used_one_cannot() -> None:
    """A copy begins at ``first``; two copies from the same later number would overwrite each other."""
    sink = Server()
    with Producer(config=config(), sink=sink) as producer:
        stream = producer.stream("p", "l", idempotent=SequenceKey(KEY_A, 3))
        copy = pickle.loads(pickle.dumps(stream.key))
        assert copy.order.startswith(f"sequence:{KEY_A}:")
        assert (copy.order.next, copy != stream.key) == (3, True)
        stream.send({"a": "b"}).result(PATIENCE)
        with pytest.raises(TypeError, match=r"SequenceKey\('abab.*first=4\)"):
            pickle.dumps(stream.key)


def test_a_forked_child_never_uses_the_parents_key() -> None:
    """An idempotent stream has a key of its own in the child; one with a SequenceKey is refused there."""
    with LogHubServer() as server, Producer(_project(server), config=ProducerConfig(linger_ms=100)) as producer:
        own = producer.stream("my-project", "random", idempotent=True)
        given = producer.stream("my-project", "given", idempotent=SequenceKey(KEY_A))
        assert own.send({"n": "parent"}).result(PATIENCE).successful
        assert given.send({"n": "parent"}).result(PATIENCE).successful
        if (child := os.fork()) == 0:
            code = 1
            try:
                sent = own.send({"n": "child"}).result(PATIENCE)
                with pytest.raises(InvalidArgumentError, match="opened before a fork"):
                    given.send({"n": "child"})
                code = 0 if sent.successful and not sent.already_written else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert own.send({"n": "parent"}).result(PATIENCE).successful
        assert len({key for _, key in _sequences(server)}) == 3
        assert server.count("my-project", "random") == 3


def _sequences(server: LogHubServer) -> set[tuple[str, str]]:
    rows = server._service.store._database.submit(
        lambda connection: connection.execute("SELECT logstore, hash_key FROM sequences").fetchall()
    )
    return {(str(row[0]), str(row[1])) for row in rows.result()}


def _project(server: LogHubServer, name: str = "my-project") -> ProjectConfig:
    keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
    return ProjectConfig(name, endpoint=server.endpoint, **keys)


# -- with a durable channel


def test_numbers_of_the_caller_survive_in_the_channel() -> None:
    """Records that a channel kept are sent under the numbers of their acceptance, each piece on its own."""
    channel = KeptChannel()
    pipeline = by_hand(Server(*[DOWN] * 1000), channel)
    key = sequenced(KEY_B, 5)
    for n in range(3):
        pipeline.admission.accept(key, record(str(n)), 1, None)
    pipeline.give_back()
    sink = Server()
    with durable(sink, channel) as producer:
        producer.flush(PATIENCE)
    assert sink.numbers() == [5, 6, 7]
    assert sink.last == {KEY_B: 7}


def test_a_send_that_the_channel_refused_spends_no_number() -> None:
    """The next accepted piece has the number that the refused one would have had."""
    channel = KeptChannel(capacity=1, transaction_capacity=1)
    sink = Server()
    pipeline = by_hand(sink, channel, max_block_ms=0)
    key = sequenced()
    pipeline.admission.accept(key, record("0"), 1, None)
    with pytest.raises(TimeoutError):
        pipeline.admission.accept(key, record("1"), 1, None)
    drive(pipeline)
    pipeline.admission.accept(key, record("1"), 1, None)
    drive(pipeline)
    assert sink.numbers() == [1, 2]


def test_a_dead_letter_carries_no_number_of_its_sender() -> None:
    """A dead letter with a number would be refused as written: the server has seen higher numbers by then."""
    channel, letters = KeptChannel(), KeptChannel()
    pipeline = by_hand(Server(BAD), channel, letters)
    pipeline.admission.accept(sequenced(), record(), 1, None)
    drive(pipeline)
    (letter,) = letters.events()
    assert not letter.headers.keys() & {"order", "seqid"}


# -- a real server


@pytest.fixture(scope="module")
def server() -> Iterator[LogHubServer]:
    with LogHubServer(shards=1) as running:
        yield running


@pytest.mark.parametrize("options", [{}, {"sign_version": "v4", "region": "here"}], ids=["v1", "v4"])
def test_under_faults_an_idempotent_stream_stores_each_record_once_and_an_ordinary_one_does_not(
    server: LogHubServer, options: dict[str, Any]
) -> None:
    """Under 500s, resets and lost responses, an idempotent stream stores once and in order; an ordinary one has
    duplicates.
    """
    for logstore, idempotent in (("plain", False), ("idempotent", True)):
        place = "-".join((logstore, *options))
        arrived = _sent_under_faults(server, place, options, idempotent=idempotent)
        if idempotent:
            assert arrived == list(range(200))
        else:
            assert set(arrived) == set(range(200))
            assert max(Counter(arrived).values()) > 1, "no fault duplicated anything: the test cannot tell"


def _sent_under_faults(server: LogHubServer, logstore: str, options: dict[str, Any], *, idempotent: bool) -> list[int]:
    dice, lock = random.Random(7), threading.Lock()

    def fault(_request: ApiRequest) -> Action | None:
        with lock:
            return dice.choice([None, None, FAILS, Cut("in_body"), Cut("stored")])

    server.faults.add(fault)
    quick = {"linger_ms": 100, "batch_count_threshold": 5, "base_retry_backoff_ms": 1, "max_retry_backoff_ms": 5}
    try:
        with Producer(_project(server), config=ProducerConfig(**quick, retries=100, **options)) as producer:
            stream = producer.stream("my-project", logstore, idempotent=idempotent)
            for n in range(200):
                stream.send({"n": str(n)})
            producer.flush(PATIENCE)
    finally:
        server.faults.clear()
    return [int(dict(log.contents)["n"]) for log in server.logs("my-project", logstore)]


def test_a_truncated_refusal_of_a_known_number_is_asked_for_again() -> None:
    """A truncated refusal of a known number is asked for again: the batch was written, and its result says so."""
    seen: list[int] = []

    def fault(_request: object) -> object:
        seen.append(1)
        return Cut("stored") if len(seen) == 1 else HalfAnswer(0.3) if len(seen) == 2 else None

    with LogHubServer() as server:
        server.faults.add(fault, operation="PutLogs")  # type: ignore[arg-type]
        project = ProjectConfig(
            "p",
            endpoint=server.endpoint,
            access_key_id=server.access_key_id,
            access_key_secret=server.access_key_secret,
        )
        with Producer(project, config=ProducerConfig(linger_ms=100, base_retry_backoff_ms=1)) as producer:
            result = producer.stream("p", "l", idempotent=True).send({"n": 1}).result(30)
        assert result.already_written
        assert server.count("p", "l") == 1
