"""A killed agent between two Kafka topics."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.kafka_clients import QUIET, QUIET_ADMIN

from ..support.waiting import eventually
from .killing import SOAK, agent, numbers_in, seed_for

_KILLS = 50 if SOAK else 2
#: A longer timeout than other tests', since a group waits for each killed member.
pytestmark = pytest.mark.timeout(3600 if SOAK else 300)

#: librdkafka's broker has a group's first member wait for three seconds, and drops one with a shorter session.
_CONFIG = """
[agent]
name = "a"
state = "{folder}/state"

[sources.topic]
type = "kafka"
bootstrap_servers = "{cluster}"
topics = ["in"]
batch_size = 50
batch_duration = 0.05
config = {{ "session.timeout.ms" = "4000", "heartbeat.interval.ms" = "200" }}
channels = ["disk", "kept"]

[channels.disk]
type = "file"
minimum_free_space = 0

[channels.kept]
type = "file"
minimum_free_space = 0

[sinks.files]
type = "file_roll"
channel = "kept"
directory = "{folder}/out"

[sinks.topic]
type = "kafka"
channel = "disk"
bootstrap_servers = "{cluster}"
topic = "out"
batch_size = 50
headers = false
topic_header = "none"
"""


@pytest.fixture
def cluster() -> Iterator[str]:
    """Yield the address of librdkafka's mock broker, which lives as long as its client."""
    client = AdminClient({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 0, **QUIET_ADMIN})
    for topic in ("in", "out"):  # creates the topic, which a consumer's request does not
        (broker,) = client.list_topics(topic, timeout=60).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del client


class _Feeding:
    """A thread that sends numbers to the topic until it is stopped."""

    def __init__(self, cluster: str) -> None:
        self._client = Producer({"bootstrap.servers": cluster}, **QUIET)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self.count = 0

    def __enter__(self) -> _Feeding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._end.set()
        self._thread.join()
        assert self._client.flush(20) == 0

    def _feed(self) -> None:
        while not self._end.wait(0.05):
            for _ in range(20):
                self._client.produce("in", b"line %09d" % self.count)
                self.count += 1
            self._client.poll(0)


class _Found:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.times: Counter[int] = Counter()
        self.highest = -1

    def look(self) -> int:
        """Return the number of different numbers received."""
        messages = self._consumer.consume(1000, timeout=0.05)
        numbers = [int(message.value().split()[1]) for message in messages if message.error() is None]
        self.times.update(numbers)
        self.highest = max([self.highest, *numbers])
        return len(self.times)


@contextmanager
def _reading(cluster: str) -> Iterator[_Found]:
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": "none", "auto.offset.reset": "earliest"}, **QUIET)
    try:
        partitions = consumer.list_topics("out", timeout=60).topics["out"].partitions
        assert partitions
        consumer.assign([TopicPartition("out", partition, 0) for partition in partitions])
        yield _Found(consumer)
    finally:
        consumer.close()


def test_no_message_between_two_topics_is_lost(tmp_path: Path, cluster: str) -> None:
    """After kill -9 of an agent between two topics every message arrives, in files once.

    The agent has the source ``kafka``, file channels and the sinks ``kafka`` and ``file_roll``. In the topic a message
    arrives at least once.
    """
    seed = seed_for(8)
    chance = random.Random(seed)
    config = tmp_path / "a.toml"
    config.write_text(_CONFIG.format(folder=tmp_path, cluster=cluster))
    with ExitStack() as ends:
        found = ends.enter_context(_reading(cluster))
        feeding = ends.enter_context(_Feeding(cluster))
        for _ in range(_KILLS):
            before = feeding.count
            with agent(config):
                eventually(lambda: found.look() and found.highest > before, "a delivery", 60)
                threading.Event().wait(chance.uniform(0, 0.5))
        feeding.end()
        with agent(config):
            eventually(lambda: found.look() == feeding.count, "the delivery of each message", 60)
            eventually(lambda: len(numbers_in(tmp_path / "out")) == feeding.count, "the writing of each message", 60)
        twice = sum(found.times.values()) - feeding.count
        print(f"seed {seed}, {_KILLS} kills, {feeding.count} messages, {twice} came again")
    assert set(found.times) == set(range(feeding.count))
    assert numbers_in(tmp_path / "out") == Counter(b"%09d" % number for number in range(feeding.count))
