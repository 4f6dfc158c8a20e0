"""get_producer: one producer for each process and configuration."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path

import pytest

from producer import ProducerConfig, ProjectConfig
from producer.errors import ProducerClosedError
from producer.spark import executor
from producer.spark.executor import MAX_PRODUCERS, get_producer


def project(name: str = "p") -> ProjectConfig:
    return ProjectConfig(name, endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="secret")


def test_equal_configuration_gives_the_same_producer() -> None:
    """A later task, whose configuration was unpickled anew, uses the producer of the earlier one."""
    config = ProducerConfig(linger_ms=300, log_tags={"a": "b"})
    first = get_producer(project(), config=config)
    again = pickle.loads(pickle.dumps((project(), config)))
    assert get_producer(again[0], config=again[1]) is first


def test_other_configuration_gives_another_producer() -> None:
    """A second project or other options never use the first one's endpoint, credentials or options."""
    producers = {
        get_producer(project()),
        get_producer(project("q")),
        get_producer(project(), project("q")),
        get_producer(project(), config=ProducerConfig(linger_ms=300)),
    }
    assert len(producers) == 4


def test_producer_used_longest_ago_makes_room() -> None:
    """A process that meets ever new configurations does not collect threads without end."""
    first = get_producer(project("p0"))
    kept = get_producer(project("p1"))
    for number in range(2, MAX_PRODUCERS):
        get_producer(project(f"p{number}"))
    get_producer(project("p1"))
    get_producer(project("p0"))
    get_producer(project("new"))
    get_producer(project("newer"))
    assert get_producer(project("p0")) is first
    assert get_producer(project("p1")) is kept
    assert len(executor._entries) == MAX_PRODUCERS


def test_producer_that_made_room_is_closed() -> None:
    """The one that is forgotten has its threads ended, and says so if it is used."""
    first = get_producer(project("p0"))
    for number in range(MAX_PRODUCERS):
        get_producer(project(f"other{number}"))
    with pytest.raises(ProducerClosedError):
        first.send("p0", "l", {"k": "v"})


def test_forked_process_gets_a_producer_of_its_own() -> None:
    """The child neither uses nor closes its parent's producer."""
    parents = get_producer(project())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, b"own" if get_producer(project()) is not parents else b"same")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"own"
    os.close(reading)
    os.close(writing)
    assert get_producer(project()) is parents


def test_records_behind_a_channel_survive_the_worker(tmp_path: Path) -> None:
    """What a killed worker had stored is found by the next one there; another channel is another producer."""
    base = str(tmp_path / "channel")
    child = os.fork()
    if child == 0:
        get_producer(project(), channel=base).send("p", "l", {"n": "1"})
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    producer = get_producer(project(), channel=base)
    assert producer is get_producer(project(), channel=base)
    assert producer is not get_producer(project())
    assert producer.stats().recovered == 1
    producer.close(0)
