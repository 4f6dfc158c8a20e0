"""Kafka source and sink with librdkafka's mock broker in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from producer.agent.config.options import from_flume, read_options
from producer.agent.events.batch import EventBatch, Position
from producer.agent.events.interfaces import Lag, RefusedError, Sink, SinkError, Source
from producer.agent.sinks.kafka import KafkaSink
from producer.agent.sources.kafka import KafkaSource, _parts, _Reading
from producer.agent.testing import RecordingOutlet, SinkConformance
from producer.model.errors import ConfigError
from producer.runtime.clock import Deadline, Stop, SystemClock
from tests.support.kafka_clients import QUIET, QUIET_ADMIN

from ..support.waiting import eventually
from .doubles import context


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Yield the address of a broker, which lives as long as its client."""
    client = AdminClient({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 0, **QUIET_ADMIN})
    brokers = client.list_topics(timeout=60).brokers
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
    del client


_topics = iter(f"topic-{number}" for number in range(1000))


@pytest.fixture
def topic() -> str:
    """Return the name of a new topic; the broker creates it with four partitions on first use."""
    return next(_topics)


#: Messages without a key all go to the same partition, so that they have an order.
_ONE_PARTITION = {"partitioner": "consistent"}


def _messages(cluster: str, topic: str) -> list[Any]:
    """Return all messages of a topic, read without a group."""
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": "none"}, **QUIET)
    found: list[Any] = []
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    for partition in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        if high > low:
            consumer.assign([TopicPartition(topic, partition, low)])
            while len(found) < high - low:
                found += [message for message in consumer.consume(high - low, timeout=1) if message.error() is None]
    consumer.close()
    return found


class TestKafkaSink(SinkConformance):
    @pytest.fixture(autouse=True)
    def _broker(self, cluster: str, topic: str) -> None:
        self._cluster, self._topic, self._made_any = cluster, topic, False

    def make(self) -> Sink:
        options = KafkaSink.Options(bootstrap_servers=self._cluster, topic=self._topic, config=_ONE_PARTITION)
        return KafkaSink(options, self.context)

    def delivered(self) -> list[bytes]:
        return [message.value() for message in _messages(self._cluster, self._topic)]


def test_headers_choose_topic_and_key(cluster: str, topic: str, tmp_path: Path) -> None:
    """Headers select topic and key, and are sent as headers."""
    options = KafkaSink.Options(bootstrap_servers=cluster, topic="elsewhere")
    sink = KafkaSink(options, context(tmp_path))
    sink.write([EventBatch.of_lines(b"a\n", {"topic": topic, "key": "k", "host": "h"})])
    sink.close()
    (message,) = _messages(cluster, topic)
    assert (message.value(), message.key()) == (b"a", b"k")
    assert dict(message.headers()) == {"topic": topic.encode(), "key": b"k", "host": b"h"}


def test_a_message_that_is_too_large_becomes_a_dead_letter_or_is_dropped(
    cluster: str, topic: str, tmp_path: Path
) -> None:
    """A message that is too large becomes a dead letter or is dropped; the rest of its batch is delivered."""
    options = KafkaSink.Options(
        bootstrap_servers=cluster, topic=topic, config={"message.max.bytes": "2000", **_ONE_PARTITION}
    )
    sink = KafkaSink(options, context(tmp_path))
    with pytest.raises(RefusedError) as raised:
        sink.write([EventBatch.of_bodies([b"1", b"x" * 5000, b"2"])])
    sink.close()
    assert [batch.bodies() for batch in raised.value.batches] == [[b"x" * 5000]]
    assert raised.value.refusals[0].undeliverable
    assert [message.value() for message in _messages(cluster, topic)] == [b"1", b"2"]


def test_events_that_are_refused_for_several_reasons_keep_their_own(cluster: str, topic: str, tmp_path: Path) -> None:
    """Without dead letters an event too large for the client is dropped, and others that the broker refuses are not."""
    options = KafkaSink.Options(
        bootstrap_servers=cluster,
        topic=topic,
        partition_id_header="p",
        config={"message.max.bytes": "2000", **_ONE_PARTITION},
    )
    sink = KafkaSink(options, context(tmp_path))
    with pytest.raises(RefusedError) as raised:
        sink.write([EventBatch.of_bodies([b"1", b"x" * 5000, b"2"], {}, {"p": [None, None, "77"]})])
    sink.close()
    refusals = {refusal.batch.bodies()[0][:1]: refusal for refusal in raised.value.refusals}
    assert {name: (each.batch.count, each.undeliverable) for name, each in refusals.items()} == {
        b"x": (1, True),
        b"2": (1, False),
    }
    assert "too large" in refusals[b"x"].reason
    assert "artition" in refusals[b"2"].reason
    assert [message.value() for message in _messages(cluster, topic)] == [b"1"]


def test_a_header_name_in_a_topic_is_replaced_by_the_headers_value(cluster: str, topic: str, tmp_path: Path) -> None:
    """``%{name}`` in a topic is replaced by a header; a missing one is empty."""
    options = KafkaSink.Options(bootstrap_servers=cluster, topic="%{kind}-%{number}%{none}")
    sink = KafkaSink(options, context(tmp_path))
    kind, number = topic.split("-")
    sink.write([EventBatch.of_bodies([b"a"], {"kind": kind}, {"number": [number]})])
    sink.close()
    assert [message.value() for message in _messages(cluster, topic)] == [b"a"]


@pytest.mark.parametrize(("header", "default", "partition"), [("2", 1, 2), (None, 1, 1), ("no number", 1, 1)])
def test_a_header_or_the_default_chooses_the_partition(
    cluster: str, topic: str, tmp_path: Path, header: str | None, default: int, partition: int
) -> None:
    """A header or the default selects the partition; text that is not a number is ignored."""
    values = {
        "kafka.bootstrap.servers": cluster,
        "kafka.topic": topic,
        "partitionIdHeader": "p",
        "defaultPartitionId": str(default),
    }
    options = read_options(KafkaSink.Options, from_flume(KafkaSink.Options, values), "sinks.k")
    sink = KafkaSink(options, context(tmp_path))
    sink.write([EventBatch.of_lines(b"a\n", {} if header is None else {"p": header})])
    sink.close()
    assert [message.partition() for message in _messages(cluster, topic)] == [partition]


def test_no_header_chooses_the_partition_unless_it_is_named(cluster: str, topic: str, tmp_path: Path) -> None:
    """No header selects the partition unless its name is set and not empty."""
    sink = KafkaSink(KafkaSink.Options(bootstrap_servers=cluster, topic=topic), context(tmp_path))
    sink.write([EventBatch.of_bodies([b"a"], {"": "77"})])
    sink.close()
    assert [message.value() for message in _messages(cluster, topic)] == [b"a"]


@pytest.mark.parametrize("header", ["77", "2147483648", "9" * 30])
def test_an_event_for_a_missing_partition_is_refused_alone_an_impossible_number_is_ignored(
    cluster: str, topic: str, tmp_path: Path, header: str
) -> None:
    """An event for a missing partition is refused alone; an impossible number is ignored."""
    options = KafkaSink.Options(bootstrap_servers=cluster, topic=topic, partition_id_header="p", config=_ONE_PARTITION)
    sink = KafkaSink(options, context(tmp_path))
    refused: list[bytes] = []
    try:
        sink.write([EventBatch.of_bodies([b"1", b"2"], {}, {"p": [header, None]})])
    except RefusedError as error:
        refused = [body for batch in error.batches for body in batch.bodies()]
    sink.close()
    stored = [message.value() for message in _messages(cluster, topic)]
    assert (refused, stored) in (([b"1"], [b"2"]), ([], [b"1", b"2"]))
    assert bool(refused) == (header == "77")


@pytest.mark.parametrize("header", ["a/b", "a\0b", "t" * 250, "..", "caf\xe9"])
def test_an_event_that_names_a_topic_that_cannot_be_keeps_nothing_up(
    cluster: str, topic: str, tmp_path: Path, header: str
) -> None:
    """An event with an invalid topic is refused alone, without a request."""
    sink = KafkaSink(KafkaSink.Options(bootstrap_servers=cluster, topic=topic), context(tmp_path))
    with pytest.raises(RefusedError, match="invalid topic name") as refusal:
        sink.write([EventBatch.of_bodies([b"1", b"2"], {}, {"topic": [header, None]})])
    sink.close()
    assert [batch.bodies() for batch in refusal.value.batches] == [[b"1"]]
    assert refusal.value.refusals[0].undeliverable
    assert [message.value() for message in _messages(cluster, topic)] == [b"2"]


def _running(source: Source, outlet: RecordingOutlet) -> Callable[[], None]:
    stop = Stop()
    thread = threading.Thread(target=source.run, args=(outlet, stop), daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()

    return end


def test_topic_partition_offset_time_key_and_headers_become_headers(cluster: str, topic: str, tmp_path: Path) -> None:
    """Topic, partition, offset, time, key and headers become headers, and a restart reads on."""
    client = Producer({"bootstrap.servers": cluster}, **QUIET)
    client.produce(
        topic, b"a", key=b"k", partition=0, headers={"host": b"h", "timestamp": b"x"}, timestamp=1_700_000_000_000
    )
    client.produce(topic, b"b", partition=0, timestamp=1_700_000_000_001)
    client.flush(20)
    outlet = RecordingOutlet()
    outlet.refuse(2)
    options = KafkaSource.Options(
        bootstrap_servers=cluster,
        topics=(topic,),
        group_id=topic,
        batch_duration=0.05,
        config={"session.timeout.ms": "4000", "heartbeat.interval.ms": "300"},
    )
    end = _running(KafkaSource(options, context(tmp_path)), outlet)
    eventually(lambda: len(outlet.bodies) == 2)
    end()
    events = [event for batch in outlet.committed for event in batch.events()]
    common = {"topic": topic, "partition": "0"}
    first = {**common, "offset": "0", "timestamp": "1700000000000", "key": "k", "host": "h", "field_timestamp": "x"}
    assert events == [(first, b"a"), ({**common, "offset": "1", "timestamp": "1700000000001"}, b"b")]

    client.produce(topic, b"c", partition=0)
    client.flush(20)
    end = _running(KafkaSource(options, context(tmp_path)), outlet)
    eventually(lambda: len(outlet.bodies) > 2)
    end()
    assert outlet.bodies == [b"a", b"b", b"c"]


def test_if_the_clients_buffer_is_full_the_whole_batch_returns_to_the_channel(tmp_path: Path) -> None:
    """If the client's buffer is full, the whole batch returns to the channel, and none of it is delivered meanwhile."""
    config = {"queue.buffering.max.messages": "2", "delivery.timeout.ms": "60000"}
    options = KafkaSink.Options(bootstrap_servers="127.0.0.1:1", topic="t", timeout=0.2, config=config)
    sink = KafkaSink(options, context(tmp_path))
    with pytest.raises(SinkError, match="no room in the client's queue"):
        sink.write([EventBatch.of_lines(b"a\nb\nc\n")])
    assert sink._producer.flush(1) == 0
    sink.close()


def test_a_channel_that_is_full_does_not_cost_the_membership(cluster: str, topic: str, tmp_path: Path) -> None:
    """A channel that is full for longer than the poll limit neither ends the membership nor loses events."""
    client = Producer({"bootstrap.servers": cluster}, **QUIET)
    for number in range(50):
        client.produce(topic, b"%d" % number, partition=0)
    client.flush(20)
    outlet, group = RecordingOutlet(), f"full-{topic}"
    outlet.hold()
    options = KafkaSource.Options(
        bootstrap_servers=cluster,
        topics=(topic,),
        group_id=group,
        batch_size=20,
        batch_duration=0.05,
        config={"session.timeout.ms": "4000", "max.poll.interval.ms": "4000", "heartbeat.interval.ms": "300"},
    )
    end = _running(KafkaSource(options, context(tmp_path)), outlet)
    begun = time.monotonic()
    eventually(lambda: time.monotonic() - begun > 8, "more than the longest silence, once it has joined")
    outlet.let_go()
    eventually(lambda: len(outlet.bodies) >= 50)
    end()
    assert outlet.bodies == [b"%d" % number for number in range(50)]


def test_messages_that_no_channel_has_yet_are_the_lag(cluster: str, topic: str, tmp_path: Path) -> None:
    """The lag counts messages not put yet, and is 0 once all are put."""
    _produced(cluster, topic, 1, 60)
    outlet, source = RecordingOutlet(), KafkaSource(_options(cluster, topic), context(tmp_path))
    assert source.lag() == Lag(events=0)
    outlet.hold()
    end = _running(source, outlet)
    eventually(lambda: source.lag() == Lag(events=60), "what waits")
    outlet.let_go()
    eventually(lambda: len(outlet.bodies) == 60 and source.lag() == Lag(events=0), "nothing waits")
    end()


def _produced(cluster: str, topic: str, partitions: int, count: int) -> None:
    client = Producer({"bootstrap.servers": cluster}, **QUIET)
    for partition in range(partitions):
        for number in range(count):
            client.produce(topic, b"%d-%d" % (partition, number), partition=partition)
    assert client.flush(20) == 0


@contextmanager
def _group(cluster: str, group: str) -> Iterator[Consumer]:
    """Yield a client that reads and commits a group's offsets without joining it."""
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": group}, **QUIET)
    try:
        yield consumer
    finally:
        consumer.close()


def _offset(group: Consumer, topic: str, partition: int) -> int:
    return int(group.committed([TopicPartition(topic, partition)], timeout=20)[0].offset)


class _Unsafe(RecordingOutlet):
    """An outlet with a memory channel, which delivers later."""

    delivered = 0

    def safe_end(self, name: str) -> int:
        return min(self.delivered, super().safe_end(name))


def _options(cluster: str, topic: str, batch_size: int = 1000) -> KafkaSource.Options:
    brisk = {"session.timeout.ms": "4000", "heartbeat.interval.ms": "300"}
    return KafkaSource.Options(
        bootstrap_servers=cluster,
        topics=(topic,),
        group_id=f"group-{topic}",
        batch_size=batch_size,
        batch_duration=0.05,
        config=brisk,
    )


def test_after_a_crash_events_that_a_channel_has_are_skipped(
    cluster: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a crash, events that a channel has are skipped in an unchanged partition only."""
    _produced(cluster, topic, 3, 10)
    outlet, options = RecordingOutlet(), _options(cluster, topic, batch_size=2)
    same, unknown, shorter = (f"{options.group_id}/{topic}-{partition}" for partition in range(3))
    for name, end in ((same, 7), (unknown, 7), (shorter, 50)):
        outlet.pass_over(Position(name, end))
    with _group(cluster, options.group_id) as group:
        group.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 2, 4)], asynchronous=False)
        end = _running(KafkaSource(options, context(tmp_path)), outlet)
        eventually(lambda: len(outlet.bodies) >= 3 + 10 + 6)
        end()
        assert [_offset(group, topic, partition) for partition in range(3)] == [10, 10, 10]
    found = sorted(outlet.bodies)
    wanted = (
        [b"0-%d" % n for n in range(7, 10)] + [b"1-%d" % n for n in range(10)] + [b"2-%d" % n for n in range(4, 10)]
    )
    assert found == wanted
    assert {batch.position for batch in outlet.committed} >= {Position(name, 10) for name in (same, unknown, shorter)}
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for text in (
        "messages between these offsets are skipped",
        "the group has no offset for it",
        "it ends at offset 10",
    ):
        assert [text in message for message in told].count(True) == 1


def test_with_a_memory_channel_the_group_offset_follows_delivery(cluster: str, topic: str, tmp_path: Path) -> None:
    """With a memory channel the group's offset is the start of the partition, and then the delivered offset."""
    _produced(cluster, topic, 1, 10)
    outlet, options = _Unsafe(), _options(cluster, topic)
    with _group(cluster, options.group_id) as group:
        end = _running(KafkaSource(options, context(tmp_path)), outlet)
        eventually(lambda: len(outlet.bodies) == 10)
        assert _offset(group, topic, 0) == 0
        outlet.delivered = 6
        eventually(lambda: _offset(group, topic, 0) == 6)
        end()
        assert _offset(group, topic, 0) == 6


def test_a_partition_shorter_than_the_known_offsets_is_a_new_one(
    cluster: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition shorter than the known offsets is a new one: it is read from its start, and committed anew."""
    _produced(cluster, topic, 1, 10)
    outlet, options = RecordingOutlet(), _options(cluster, topic)
    outlet.pass_over(Position(f"{options.group_id}/{topic}-0", 50))
    with _group(cluster, options.group_id) as group:
        group.commit(offsets=[TopicPartition(topic, 0, 50)], asynchronous=False)
        end = _running(KafkaSource(options, context(tmp_path)), outlet)
        eventually(lambda: len(outlet.bodies) == 10)
        end()
        assert _offset(group, topic, 0) == 10
    assert "but Kafka delivers offset 0, and 50 was expected: reading it as a new partition" in caplog.text


class _Told:
    """A group that records commits, and fails the first one."""

    def __init__(self, messages: Sequence[_Message]) -> None:
        self._messages, self._failed = list(messages), False
        self.offsets: list[int] = []

    def committed(self, partitions: Sequence[Any], timeout: float) -> Sequence[Any]:
        return [TopicPartition("t", 0, OFFSET_INVALID)]

    def get_watermark_offsets(self, partition: Any, *, cached: bool) -> tuple[int, int]:
        return 0, 10

    def consume(self, count: int, timeout: float) -> list[_Message]:
        given, self._messages = self._messages[:count], self._messages[count:]
        return given

    def commit(self, offsets: Sequence[Any], asynchronous: bool) -> None:
        if not self._failed:
            self._failed = True
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        self.offsets += [each.offset for each in offsets]


def test_if_the_commit_of_a_partitions_start_fails_the_start_is_committed_later(tmp_path: Path) -> None:
    """If the commit of a partition's start fails, the start is committed later, not the present offset."""
    consumer = _Told([_Message(offset) for offset in range(4)])
    reading = _Reading(_options("", "t", batch_size=2), context(tmp_path), consumer, _Unsafe(), Stop())
    reading._assigned(consumer, [TopicPartition("t", 0)])
    assert reading.look()
    assert reading.look()
    assert consumer.offsets == [0]


def test_messages_of_a_recreated_partition_are_put_and_committed_even_within_one_poll(tmp_path: Path) -> None:
    """Messages of a recreated partition are put and committed, even within one poll."""
    consumer, outlet = _Told([_Message(offset) for offset in (7, 8, 9, 0, 1, 2)]), RecordingOutlet()
    reading = _Reading(_options("", "t", batch_size=6), context(tmp_path), consumer, outlet, Stop())
    reading._assigned(consumer, [TopicPartition("t", 0)])
    assert reading.look()
    assert [body for batch in outlet.committed for body in batch.bodies()] == [b"7", b"8", b"9", b"0", b"1", b"2"]
    assert consumer.offsets == [0, 3]


def test_messages_that_waited_during_a_rebalance_are_not_put_since_kafka_delivers_them_again(tmp_path: Path) -> None:
    """Messages that waited during a rebalance are not put, since Kafka delivers them again."""
    consumer, outlet = _Told([_Message(offset) for offset in (0, 1, 2)]), RecordingOutlet()
    reading = _Reading(_options("", "t"), context(tmp_path), consumer, outlet, Stop())
    reading._assigned(consumer, [TopicPartition("t", 0)])
    runs = reading._runs(consumer.consume(3, 0))
    reading._lost(consumer, [TopicPartition("t", 0)])
    reading._assigned(consumer, [TopicPartition("t", 0)])
    assert all(reading._put(share, run) for share, run in runs)
    assert outlet.bodies == []


def test_a_commit_that_fails_is_retried_at_each_poll_and_logged_at_a_limited_rate(
    cluster: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit that fails is retried at each poll, and logged at a limited rate."""
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": f"group-{topic}"}, **QUIET)
    where = context(tmp_path)
    reading = _Reading(_options(cluster, topic), where, consumer, RecordingOutlet(), Stop())
    for offset in range(5):
        reading._commit_offsets({("", -5): offset})
    consumer.close()
    assert caplog.text.count("offsets of 1 partitions are not committed to the group yet") == 1


def test_a_batch_of_a_partition_ends_where_one_of_the_channels_is() -> None:
    """Batches end at each channel's offset, so that a channel gets only missing messages."""
    messages = [_Message(offset) for offset in (0, 1, 4, 5, 6, 9)]
    assert [[each.offset() for each in part] for part in _parts(messages, [1, 2, 6])] == [[1], [4, 5], [6, 9]]
    assert list(_parts(messages, [10, 12])) == []


class _Message:
    """A message of partition 0, whose value is its offset."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def value(self) -> bytes:
        return b"%d" % self._offset

    def timestamp(self) -> tuple[int, int]:
        return 0, 0

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def error(self) -> None:
        return None


def test_a_pattern_of_names_is_subscribed_to(cluster: str, topic: str, tmp_path: Path) -> None:
    """A pattern subscribes to all matching topics, and the topic is in the named header."""
    for name in (f"{topic}-a", f"{topic}-b", f"other-{topic}"):
        client = Producer({"bootstrap.servers": cluster}, **QUIET)
        client.produce(name, name.encode(), headers={"topic": b"own"})
        assert client.flush(20) == 0
    options = replace(
        _options(cluster, topic), topics=(), topics_regex=f"{topic}-[ab]", batch_size=1, topic_header="from"
    )
    outlet = RecordingOutlet()
    end = _running(KafkaSource(options, context(tmp_path)), outlet)
    eventually(lambda: len(outlet.bodies) == 2)
    end()
    events = [event for batch in outlet.committed for event in batch.events()]
    assert {(headers["from"], headers["topic"], body) for headers, body in events} == {
        (f"{topic}-{end}", "own", f"{topic}-{end}".encode()) for end in "ab"
    }
    assert not any("key" in headers for headers, _ in events)


def test_flumes_keys_are_known() -> None:
    """Flume's lists of topics have commas, and ``kafka.consumer.*`` goes to the client."""
    values = {
        "kafka.bootstrap.servers": "b:1",
        "kafka.topics": "x,y",
        "batchDurationMillis": "500",
        "kafka.consumer.group.id": "g",
        "kafka.consumer.fetch.min.bytes": "7",
    }
    options = read_options(KafkaSource.Options, from_flume(KafkaSource.Options, values), "sources.s")
    assert (options.topics, options.batch_duration, options.group_id) == (("x", "y"), 0.5, "g")
    assert options.config == {"fetch.min.bytes": "7"}


@pytest.mark.parametrize("given", [{}, {"topics": ("t",), "topics_regex": "t.*"}])
def test_topics_or_a_pattern_are_needed(given: dict[str, Any]) -> None:
    """Exactly one of topics and pattern is required."""
    with pytest.raises(ConfigError, match="either topics or topics_regex"):
        KafkaSource.Options(bootstrap_servers="b:1", **given)


def test_with_the_broker_away_the_events_stay_in_the_channel(tmp_path: Path) -> None:
    """With the broker away, the events stay in the channel."""
    options = KafkaSink.Options(bootstrap_servers="127.0.0.1:1", topic="t", timeout=1)
    sink = KafkaSink(options, context(tmp_path))
    with pytest.raises(Exception, match=r"not acknowledged|timed out|Local") as raised:
        sink.write([EventBatch.of_lines(b"a\n")])
    sink.close()
    assert not isinstance(raised.value, RefusedError)


def test_the_end_of_the_sink_does_not_wait_for_a_broker_that_is_away(tmp_path: Path) -> None:
    """A write is abandoned when the sink ends, before its own timeout."""
    sink = KafkaSink(KafkaSink.Options(bootstrap_servers="127.0.0.1:1", topic="t"), context(tmp_path))
    clock, errors = SystemClock(), list[Exception]()

    def write() -> None:
        try:
            sink.write([EventBatch.of_lines(b"a\n")])
        except SinkError as error:
            errors.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    sink.give_up(Deadline.after(clock, 0.3))
    thread.join(60)
    sink.close()
    assert "1 messages were not acknowledged before the sink had to end" in str(errors)
