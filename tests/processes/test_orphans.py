"""A producer that its owner forgot delivers: dropped without close, or left at the exit."""

import gc
import threading
from collections.abc import Callable

from producer import Producer, ProducerConfig, ProjectConfig
from producer.server import LogHubServer

from .child import LOGSTORE, PROJECT, Ended, messages, numbered, until

Run = Callable[..., Ended]


def _project(server: LogHubServer) -> ProjectConfig:
    return ProjectConfig(
        PROJECT,
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=server.access_key_secret,
    )


def _threads(prefix: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(f"{prefix}-")]


def test_producer_dropped_without_close_delivers_and_its_threads_end(server: LogHubServer) -> None:
    """A dropped producer drains and ends by itself."""
    producer = Producer(_project(server), config=ProducerConfig(linger_ms=100, name="dropped"))
    future = producer.send(PROJECT, LOGSTORE, {"n": "record-0"})
    assert _threads("dropped")
    del producer
    gc.collect()
    assert future.result(timeout=60).successful
    until(lambda: not _threads("dropped"), what="threads of a dropped producer go on")
    assert messages(server) == ["record-0"]


def test_stream_alone_keeps_its_producer(server: LogHubServer) -> None:
    """A stream keeps its producer alive, so the producer is not an orphan."""
    producer = Producer(_project(server), config=ProducerConfig(linger_ms=100, name="streamed"))
    stream = producer.stream(PROJECT, LOGSTORE)
    del producer
    for number in range(3):
        gc.collect()
        assert stream.send({"n": f"record-{number}"}).result(timeout=60).successful
    assert len(_threads("streamed")) > 0
    assert messages(server) == numbered("record", 3)


def test_fifty_dropped_producers_leave_no_thread_and_no_descriptor(run: Run, server: LogHubServer) -> None:
    """A program that makes producers and drops them loses no record and leaks nothing."""
    ended = run("orphans.py")
    assert ended.number("threads_of_one") == 0, ended.stderr
    assert ended.number("threads") == 0
    assert ended.number("descriptors") <= 0
    assert len(set(messages(server))) == len(messages(server)) == 50 * 10


def test_producer_dropped_just_before_the_exit_delivers(python: str, run: Run, server: LogHubServer) -> None:
    """Its own drain and the exit's drain meet: each record is stored exactly once, and stderr is empty."""
    ended = run("exits.py", "dropped", 20, python=python)
    assert ended.stderr == ""
    assert messages(server) == numbered("record", 20)
