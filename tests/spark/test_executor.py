"""get_producer: one producer for each process and configuration."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from producer import ProducerConfig, ProjectConfig
from producer.errors import ProducerClosedError
from producer.server import LogHubServer
from producer.spark import executor
from producer.spark.executor import IDLE_SECONDS, MAX_PRODUCERS, get_producer, leased_producer
from producer.testing import ManualClock


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which producers of this process grow idle; no thread closes them meanwhile."""
    clock = ManualClock()
    monkeypatch.setattr(executor, "_clock", clock)
    monkeypatch.setattr(executor, "_closers", {os.getpid(): threading.current_thread()})
    return clock


def task(monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    """As if this process ran that attempt at a task."""
    context = None if number is None else SimpleNamespace(taskAttemptId=lambda: number)
    monkeypatch.setattr(executor.TaskContext, "get", staticmethod(lambda: context))


def test_producer_that_no_task_uses_is_closed(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute after its last task a producer ends its threads and connections; the next task gets a new one."""
    task(monkeypatch, 1)
    with leased_producer(project()) as producer:
        assert executor.close_idle(clock.monotonic() + 10 * IDLE_SECONDS) == []
    assert executor.close_idle(clock.monotonic() + IDLE_SECONDS - 1) == []
    assert executor.close_idle(clock.monotonic() + IDLE_SECONDS) == [producer]
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", {"a": "b"})
    with leased_producer(project()) as other:
        assert other is not producer


def test_producer_of_a_running_task_is_never_closed(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that reads for long before it sends keeps its producer; once another one runs, it may be closed."""
    task(monkeypatch, 1)
    producer = get_producer(project())
    later = clock.monotonic() + 10 * IDLE_SECONDS
    assert executor.close_idle(later) == []
    task(monkeypatch, 2)
    assert executor.close_idle(later) == [producer]


def test_producer_outside_of_spark_is_never_closed(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no task, nobody can tell when a producer is done with."""
    task(monkeypatch, None)
    get_producer(project())
    assert executor.close_idle(clock.monotonic() + 10 * IDLE_SECONDS) == []


def test_other_credentials_are_signed_with_from_then_on() -> None:
    """A job with renewed temporary credentials keeps the worker's producer, which signs with the new ones."""
    with LogHubServer(access_keys={"old": "s", "new": "s"}) as server:
        for key in ("old", "new"):
            config = ProjectConfig("p", endpoint=server.endpoint, access_key_id=key, access_key_secret="s")
            producer = get_producer(config, config=ProducerConfig(linger_ms=100))
            producer.send("p", "l", {"key": key}).result(30)
        assert len(executor._entries) == 1
        signed = [request.headers["authorization"].split(":")[0] for request in server.requests]
        assert signed == ["LOG old", "LOG new"]


def test_leases_of_more_configurations_than_are_kept_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in use is not closed to make room."""
    task(monkeypatch, 1)
    with contextlib.ExitStack() as stack:
        leased = [stack.enter_context(leased_producer(project(f"p{n}"))) for n in range(MAX_PRODUCERS + 2)]
        assert len({id(producer) for producer in leased}) == len(executor._entries) == MAX_PRODUCERS + 2
