"""A producer with a channel and a real server on a socket: errors, an outage, projects added late."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer import HttpConfig, Producer, ProducerConfig, ProjectConfig
from producer.durable.event_ref import Ticket
from producer.model.futures import SendFuture
from producer.model.interfaces import Channel
from producer.pipeline.batching.batch import ProducerBatch
from producer.server import LogHubServer, faults
from tests.durable.kit import KeptChannel, crashed, file_channel, pipeline_of
from tests.support.living import living
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


def _project(server: LogHubServer, name: str = "p") -> ProjectConfig:
    return ProjectConfig(
        name, endpoint=server.endpoint, access_key_id=server.access_key_id, access_key_secret=server.access_key_secret
    )


def _producer(
    *projects: ProjectConfig, channel: Channel, dead_letter: Channel | None = None, **options: Any
) -> Producer:
    quick = {
        "linger_ms": 100,
        "base_retry_backoff_ms": 5,
        "max_retry_backoff_ms": 50,
        "io_thread_count": 2,
        "http": HttpConfig(connect_timeout_ms=2000, read_timeout_ms=5000, proxies={}),
        "source": "here",
    }
    return Producer(*projects, config=ProducerConfig(**(quick | options)), channel=channel, dead_letter=dead_letter)


def _first_times(server: LogHubServer, topic: str) -> list[int]:
    """Return the numbers that arrived in a topic, each at its first time."""
    numbers = [
        int(log.fields["n"])
        for group in server.log_groups("p", "l")
        if group.topic == topic
        for log in group.iter_logs()
    ]
    return list(dict.fromkeys(numbers))


def test_with_errors_of_every_kind_nothing_is_lost_and_streams_keep_their_order(
    server: LogHubServer, tmp_path: Path
) -> None:
    """With five in a hundred requests each refused, cut, and unanswered, all records arrive, in the order of their
    streams.
    """
    refused = server.faults.add(faults.answer(500, "InternalServerError"), probability=0.05, seed=1)
    quota = server.faults.add(faults.answer(403, "WriteQuotaExceed"), probability=0.05, seed=2)
    dropped = server.faults.add(faults.drop_answer(), probability=0.05, seed=3)
    too_large = server.faults.add(faults.answer(400, "PostBodyTooLarge"), times=3)
    with _producer(
        _project(server), channel=file_channel(tmp_path / "d", fsync="os"), batch_count_threshold=5
    ) as producer:
        for n in range(800):
            producer.send("p", "l", {"n": str(n)}, topic=str(n % 4))
        producer.flush(PATIENCE)
        stats = producer.stats()
        assert (stats.stored, stats.delivered, stats.failed) == (0, 800, 0)
    assert all(fault.fired for fault in (refused, quota, dropped, too_large))
    for topic in range(4):
        assert _first_times(server, str(topic)) == list(range(topic, 800, 4))


def _living() -> int:
    """Return the number of futures, tickets and batches in this process, those of other tests included."""
    gc.collect()
    return sum(len(living(kind)) for kind in (SendFuture, Ticket, ProducerBatch))


def test_an_outage_in_miniature_loses_nothing_and_keeps_memory_bounded(server: LogHubServer, tmp_path: Path) -> None:
    """While the server is down, ten times the memory is sent without blocking; later all arrives in order.

    Neither the accounted memory nor the number of objects exceeds its bound.
    """
    memory, size, count = 50_000, 500, 1000
    producer = _producer(
        _project(server), channel=file_channel(tmp_path / "d", fsync="os"), total_size_in_bytes=memory, max_block_ms=0
    )
    producer.send("p", "l", {"n": "0", "x": ""}, topic="0").result(PATIENCE)
    server.stop()
    living = _living()
    used: list[int] = []
    budget = pipeline_of(producer).pipeline.budget
    for n in range(1, count):
        producer.send("p", "l", {"n": str(n), "x": "x" * size}, topic=str(n % 3))
        used.append(budget.used)
    assert producer.stats().stored == count - 1
    assert _living() - living < 3 * memory / size
    server.start()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            used.append(budget.used)
            done.wait(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    producer.flush(PATIENCE)
    done.set()
    watcher.join()
    producer.close()
    assert count * size >= 10 * memory
    assert memory / 2 < max(used) <= memory
    for topic in range(3):
        assert _first_times(server, str(topic)) == list(range(topic, count, 3))


def test_a_crash_in_an_outage_loses_nothing(server: LogHubServer, tmp_path: Path) -> None:
    """After a crash during an outage, everything reaches the server, in order."""
    server.stop()
    channel = file_channel(tmp_path / "before")
    producer = _producer(_project(server), channel=channel, drain_timeout_ms=0)
    for n in range(300):
        producer.send("p", "l", {"n": str(n)}, topic=str(n % 2))
    eventually(lambda: producer.stats().retried > 0)
    copy = crashed(channel, tmp_path / "after")
    producer.close()
    server.start()
    with _producer(_project(server), channel=copy) as second:
        second.flush(PATIENCE)
        assert (second.stats().recovered, second.stats().stored) == (300, 0)
    for topic in range(2):
        assert _first_times(server, str(topic)) == list(range(topic, 300, 2))


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_record_waits_for_its_projectconfig_and_is_delivered_soon_after_it_is_added(
    server: LogHubServer, dead_letters: bool
) -> None:
    """A record waits for its ProjectConfig, and is delivered soon after it is added."""
    channel = KeptChannel()
    with _producer(channel=channel, dead_letter=KeptChannel() if dead_letters else None) as producer:
        future = producer.send("p", "l", {"n": "1"})
        eventually(lambda: producer.stats().retried >= 2)
        assert producer.stats().stored == 1
        producer.put_project_config(_project(server))
        assert future.result(PATIENCE).successful
    assert server.count("p", "l") == 1


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "ProjectForbidden", "ProjectNotExist", "LogStoreNotExist"])
def test_a_key_that_was_rotated_does_not_flush_the_channel_into_the_dead_letters(
    server: LogHubServer, code: str
) -> None:
    """Faults that an operator can fix are waited for, also with dead letters; then all is delivered."""
    dead = KeptChannel()
    refused = server.faults.add(faults.answer(403, code))
    with _producer(_project(server), channel=KeptChannel(), dead_letter=dead) as producer:
        futures = [producer.send("p", "l", {"n": str(n)}, topic=str(n)) for n in range(3)]
        eventually(lambda: refused.fired >= 2)
        assert (producer.stats().stored, producer.stats().dead_lettered) == (3, 0)
        server.faults.clear()
        assert all(future.result(PATIENCE).successful for future in futures)
    assert (server.count("p", "l"), dead.events()) == (3, [])


def test_a_record_without_a_projectconfig_becomes_a_dead_letter_after_delivery_timeout_ms(server: LogHubServer) -> None:
    """A record without a ProjectConfig becomes a dead letter after delivery_timeout_ms, and does not delay the
    others.
    """
    dead = KeptChannel()
    with _producer(_project(server), channel=KeptChannel(), dead_letter=dead, delivery_timeout_ms=200) as producer:
        lost, good = producer.send("nobody", "l", {"n": "1"}), producer.send("p", "l", {"n": "2"})
        assert good.result(PATIENCE).successful
        assert lost.exception(PATIENCE) is not None
        producer.flush(PATIENCE)
    assert [event.headers["error_code"] for event in dead.events()] == ["ProjectConfigNotExist"]


def test_a_refused_record_is_buried_with_the_servers_own_words(server: LogHubServer, tmp_path: Path) -> None:
    """The headers of the dead letter have the code, message and request id of the server's answer."""
    server.faults.add(faults.answer(400, "ParameterInvalid", "no such thing"), times=1)
    with _producer(
        _project(server), channel=file_channel(tmp_path / "d"), dead_letter=file_channel(tmp_path / "dead")
    ) as producer:
        error = producer.send("p", "l", {"n": "1"}).exception(PATIENCE)
        assert error is not None
        producer.flush(PATIENCE)
        assert producer.stats().dead_lettered == 1
    with file_channel(tmp_path / "dead") as dead:
        headers = next(iter(dead.peek())).headers
    assert (headers["error_code"], headers["error_message"]) == ("ParameterInvalid", "no such thing")
    assert headers["request_id"] == error.result.request_id != ""
