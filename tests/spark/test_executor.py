"""get_producer returns one producer for each process and configuration."""

import contextlib
import dataclasses
import os
import pickle
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from producer import Producer, ProducerConfig, ProjectConfig
from producer.model.errors import ChannelError, CloseTimeoutError, InvalidArgumentError, ProducerClosedError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.spark import executor
from producer.spark.executor import IDLE_SECONDS, MAX_PRODUCERS, get_producer, leased_producer
from producer.testing import ManualClock
from tests.support.waiting import eventually


def project(name: str = "p") -> ProjectConfig:
    return ProjectConfig(name, endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="secret")


def test_equal_configuration_gives_the_same_producer() -> None:
    """An equal configuration, unpickled again in a later task, gives the same producer."""
    config = ProducerConfig(linger_ms=300, log_tags={"a": "b"})
    first = get_producer(project(), config=config)
    again = pickle.loads(pickle.dumps((project(), config)))
    assert get_producer(again[0], config=again[1]) is first


def test_other_credentials_of_another_projects_endpoint_give_the_same_producer() -> None:
    """The places of a project count, also those of other projects among its endpoints, and not their credentials."""

    def elsewhere(endpoint: str, secret: str) -> ProjectConfig:
        other = ProjectConfig("q", endpoint=endpoint, access_key_id="id", access_key_secret=secret)
        return dataclasses.replace(project("two"), endpoints=("http://127.0.0.1:9", other))

    first = get_producer(elsewhere("http://127.0.0.2:9", "a"))
    assert get_producer(elsewhere("http://127.0.0.2:9", "b")) is first
    assert get_producer(elsewhere("http://127.0.0.3:9", "a")) is not first


def test_a_project_that_is_only_a_name_is_refused_with_the_type_that_is_needed() -> None:
    """A project that is only a name is refused with the type that is needed."""
    said = r"projects: each must be a ProjectConfig, .*, got 'p' \(str\)"
    with pytest.raises(InvalidArgumentError, match=said):
        get_producer(project("other"), "p")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=said), leased_producer("p"):  # type: ignore[arg-type]
        pytest.fail("it was made")


def test_other_configuration_gives_another_producer() -> None:
    """A second project or other options give another producer."""
    producers = {
        get_producer(project()),
        get_producer(project("q")),
        get_producer(project(), project("q")),
        get_producer(project(), config=ProducerConfig(linger_ms=300)),
    }
    assert len(producers) == 4


def test_forked_process_gets_a_producer_of_its_own() -> None:
    """A forked child neither uses nor closes its parent's producer."""
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
    """Records in a channel survive the worker, and another channel is another producer."""
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


class Worker:
    """A worker process with a clock, its current task, and its producers, which close only by ``idle``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.producers = executor.WorkerProducers(self.clock)
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(executor, "_producers", self.producers)
        self.run_task(1)

    def run_task(self, number: int | None) -> None:
        """Set the attempt that the worker runs; None for no worker."""
        context = None if number is None else SimpleNamespace(taskAttemptId=lambda: number)
        self._monkeypatch.setattr(executor.TaskContext, "get", staticmethod(lambda: context))

    def idle(self, seconds: float = IDLE_SECONDS) -> list[Producer]:
        """Close unused producers before and after some time, and return those closed at the end."""
        closed = self.producers.close_unused()
        self.clock.advance(seconds)
        return closed + self.producers.close_unused()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def usable(producer: Producer) -> bool:
    try:
        producer.send(producer._sink.project_configs()[0].project, "l", {"k": "v"})
    except ProducerClosedError:
        return False
    return True


def test_a_task_keeps_every_producer_that_it_asked_for_until_it_ends(worker: Worker) -> None:
    """A task keeps every producer that it asked for until it ends."""
    asked = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS + 2)]
    assert worker.idle(10 * IDLE_SECONDS) == []
    assert [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS + 2)] == asked
    assert all(usable(producer) for producer in asked)


def test_producers_outside_of_a_task_are_never_surplus(worker: Worker) -> None:
    """Outside of a task a producer stays open, since its use has no known end."""
    worker.run_task(None)
    asked = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS + 2)]
    assert worker.idle(10 * IDLE_SECONDS) == []
    assert all(usable(producer) for producer in asked)


def test_producer_used_longest_ago_makes_room(worker: Worker) -> None:
    """Above the limit, the producer that was idle longest is closed."""
    of_first = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS)]
    worker.run_task(2)
    of_second = [get_producer(project("new")), get_producer(project("p0"))]
    assert of_second[1] is of_first[0]
    assert worker.producers.close_unused() == [of_first[1]]
    assert not usable(of_first[1])
    assert worker.producers.producers == [*of_first[2:], *of_second]


def test_producer_that_no_task_uses_is_closed(worker: Worker) -> None:
    """A producer is closed half a minute after its last task, and the next task gets a new one."""
    with leased_producer(project()) as producer:
        assert worker.idle(10 * IDLE_SECONDS) == []
    assert worker.idle(IDLE_SECONDS - 1) == []
    assert worker.idle(1) == [producer]
    assert not usable(producer)
    with leased_producer(project()) as other:
        assert other is not producer


def test_time_of_a_task_is_not_idle_time(worker: Worker) -> None:
    """The time of a running task does not count as idle time."""
    producer = get_producer(project())
    assert worker.idle(10 * IDLE_SECONDS) == []
    worker.run_task(2)
    assert worker.idle(IDLE_SECONDS - 1) == []
    assert worker.idle(1) == [producer]


def test_leases_of_more_configurations_than_are_kept_stay_open(worker: Worker) -> None:
    """A leased producer stays open above the limit, and is closed after its release."""
    with contextlib.ExitStack() as stack:
        leased = [stack.enter_context(leased_producer(project(f"p{n}"))) for n in range(MAX_PRODUCERS + 2)]
        assert worker.producers.close_unused() == []
        assert worker.producers.producers == leased
    assert worker.producers.close_unused() == leased[:2]


def test_producer_that_its_user_has_closed_is_replaced(worker: Worker) -> None:
    """A producer that its user closed is replaced in the next task."""
    with get_producer(project()) as first:
        pass
    assert usable(get_producer(project()))
    assert worker.producers.close_unused() == [first]


class Stubborn(Producer):
    """A producer whose close waits or fails."""

    def __init__(self, *projects: ProjectConfig, config: ProducerConfig) -> None:
        super().__init__(*projects, config=config)
        self.asked, self.may_end = threading.Event(), threading.Event()
        self.misses = 0
        self.closer: threading.Thread | None = None

    def close(self, timeout: float | None = None) -> None:
        """Wait for ``may_end``, and raise ``misses`` times."""
        self.closer = threading.current_thread()
        self.asked.set()
        assert self.may_end.wait(60)
        if self.misses:
            self.misses -= 1
            raise CloseTimeoutError(timeout or 0.0, 1, ("stubborn-io-0",))
        super().close(timeout)


def stubborn_producers() -> executor.WorkerProducers:
    return executor.WorkerProducers(
        SystemClock(), lambda projects, config, _channel: Stubborn(*projects, config=config)
    )


def test_no_task_waits_for_the_close_of_another_tasks_producer(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task waits for the close of another task's producer."""
    producers = stubborn_producers()
    monkeypatch.setattr(executor, "_producers", producers)
    monkeypatch.setattr(executor, "_idle_closer", executor._IdleCloser(producers, SystemClock()))
    of_first = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS)]
    worker.run_task(2)
    own = get_producer(project("own"))
    (surplus, *others) = of_first
    assert isinstance(surplus, Stubborn)
    assert surplus.asked.wait(60)
    again = get_producer(project("p0"))  # while the close of its namesake is in progress
    assert again is not surplus
    assert usable(own)
    assert surplus.closer is not threading.current_thread()
    for producer in (surplus, *others, own, again):
        producer.may_end.set()  # type: ignore[attr-defined]
    eventually(lambda: surplus not in producers.producers)


def test_producer_that_missed_its_close_is_tried_again(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
    """A producer whose close failed is closed later, and no task gets it meanwhile."""
    producers = stubborn_producers()
    monkeypatch.setattr(executor, "_producers", producers)
    first = get_producer(project())
    assert isinstance(first, Stubborn)
    first.may_end.set()
    first.misses = 2
    for number in range(MAX_PRODUCERS):
        producer = get_producer(project(f"other{number}"))
        assert isinstance(producer, Stubborn)
        producer.may_end.set()
    worker.run_task(2)
    assert producers.close_unused() == []
    assert first in producers.producers
    second = get_producer(project())
    assert isinstance(second, Stubborn)
    second.may_end.set()
    assert second is not first
    assert first not in producers.close_unused()
    assert first in producers.close_unused()
    assert first not in producers.producers


def test_producer_that_cannot_be_made_leaves_nothing_behind(worker: Worker, tmp_path: Path) -> None:
    """A producer that cannot be made raises its error, and leaves nothing behind."""
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        with pytest.raises(ChannelError):
            get_producer(project(), channel=str(tmp_path / "file"))
    assert worker.producers.producers == []
    assert worker.idle() == []


def test_other_credentials_are_signed_with_from_then_on(worker: Worker) -> None:
    """A producer signs with the credentials of the last call."""
    with LogHubServer(access_keys={"old": "s", "new": "s"}) as server:
        for key in ("old", "new"):
            config = ProjectConfig("p", endpoint=server.endpoint, access_key_id=key, access_key_secret="s")
            producer = get_producer(config, config=ProducerConfig(linger_ms=100))
            producer.send("p", "l", {"key": key}).result(30)
        assert len(worker.producers.producers) == 1
        signed = [request.headers["authorization"].split(":")[0] for request in server.requests]
        assert signed == ["LOG old", "LOG new"]
