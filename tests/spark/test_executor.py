"""get_producer: one producer for each process and configuration."""

import contextlib
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
    """A later task, whose configuration was unpickled anew, uses the producer of the earlier one."""
    config = ProducerConfig(linger_ms=300, log_tags={"a": "b"})
    first = get_producer(project(), config=config)
    again = pickle.loads(pickle.dumps((project(), config)))
    assert get_producer(again[0], config=again[1]) is first


def test_a_project_that_is_only_a_name_is_refused_with_what_is_needed() -> None:
    """Both ways to a producer say which argument is wrong, and what it must be."""
    said = r"projects: each must be a ProjectConfig, .*, got 'p' \(str\)"
    with pytest.raises(InvalidArgumentError, match=said):
        get_producer(project("other"), "p")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=said), leased_producer("p"):  # type: ignore[arg-type]
        pytest.fail("it was made")


def test_other_configuration_gives_another_producer() -> None:
    """A second project or other options never use the first one's endpoint, credentials or options."""
    producers = {
        get_producer(project()),
        get_producer(project("q")),
        get_producer(project(), project("q")),
        get_producer(project(), config=ProducerConfig(linger_ms=300)),
    }
    assert len(producers) == 4


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


class Worker:
    """A worker process: its clock, the task that it runs, and its producers, which nobody closes by himself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.producers = executor.WorkerProducers(self.clock)
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(executor, "_producers", self.producers)
        self.run_task(1)

    def run_task(self, number: int | None) -> None:
        """From now on it runs that attempt at a task; None is a process that is no worker."""
        context = None if number is None else SimpleNamespace(taskAttemptId=lambda: number)
        self._monkeypatch.setattr(executor.TaskContext, "get", staticmethod(lambda: context))

    def idle(self, seconds: float = IDLE_SECONDS) -> list[Producer]:
        """Look, let time pass, look again: what is closed then."""
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


def test_task_keeps_every_producer_that_it_asked_for(worker: Worker) -> None:
    """However many projects a task sends to, and however long it takes, its producers stay open until it has ended."""
    asked = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS + 2)]
    assert worker.idle(10 * IDLE_SECONDS) == []
    assert [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS + 2)] == asked
    assert all(usable(producer) for producer in asked)


def test_producers_outside_of_a_task_are_never_surplus(worker: Worker) -> None:
    """Where there is no task, nobody can tell when a producer is done with: it stays open, however many there are."""
    worker.run_task(None)
    asked = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS + 2)]
    assert worker.idle(10 * IDLE_SECONDS) == []
    assert all(usable(producer) for producer in asked)


def test_producer_used_longest_ago_makes_room(worker: Worker) -> None:
    """A process whose tasks meet ever new configurations does not collect threads without end."""
    of_first = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS)]
    worker.run_task(2)
    of_second = [get_producer(project("new")), get_producer(project("p0"))]
    assert of_second[1] is of_first[0]
    assert worker.producers.close_unused() == [of_first[1]]
    assert not usable(of_first[1])
    assert worker.producers.producers == [*of_first[2:], *of_second]


def test_producer_that_no_task_uses_is_closed(worker: Worker) -> None:
    """Half a minute after its last task a producer ends its threads and connections; the next task gets a new one."""
    with leased_producer(project()) as producer:
        assert worker.idle(10 * IDLE_SECONDS) == []
    assert worker.idle(IDLE_SECONDS - 1) == []
    assert worker.idle(1) == [producer]
    assert not usable(producer)
    with leased_producer(project()) as other:
        assert other is not producer


def test_time_of_a_task_is_not_idle_time(worker: Worker) -> None:
    """After a long task the next one, which begins a moment later, finds the connections still open."""
    producer = get_producer(project())
    assert worker.idle(10 * IDLE_SECONDS) == []
    worker.run_task(2)
    assert worker.idle(IDLE_SECONDS - 1) == []
    assert worker.idle(1) == [producer]


def test_leases_of_more_configurations_than_are_kept_stay_open(worker: Worker) -> None:
    """What is in use is not closed to make room; once it is given back, it is."""
    with contextlib.ExitStack() as stack:
        leased = [stack.enter_context(leased_producer(project(f"p{n}"))) for n in range(MAX_PRODUCERS + 2)]
        assert worker.producers.close_unused() == []
        assert worker.producers.producers == leased
    assert worker.producers.close_unused() == leased[:2]


def test_producer_that_its_user_has_closed_is_replaced(worker: Worker) -> None:
    """A task that closes the producer that it got spoils nothing for the tasks after it."""
    with get_producer(project()) as first:
        pass
    assert usable(get_producer(project()))
    assert worker.producers.close_unused() == [first]


class Stubborn(Producer):
    """A producer that does not close before it is told to."""

    def __init__(self, *projects: ProjectConfig, config: ProducerConfig) -> None:
        super().__init__(*projects, config=config)
        self.asked, self.may_end = threading.Event(), threading.Event()
        self.misses = 0
        self.closer: threading.Thread | None = None

    def close(self, timeout: float | None = None) -> None:
        """Wait for ``may_end``; raise as often as ``misses`` says."""
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


def test_no_task_waits_for_the_close_of_another_ones_producer(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that takes long to close is closed by a thread beside the tasks, which get theirs meanwhile."""
    producers = stubborn_producers()
    monkeypatch.setattr(executor, "_producers", producers)
    monkeypatch.setattr(executor, "_caretaker", executor._Caretaker(producers, SystemClock()))
    of_first = [get_producer(project(f"p{number}")) for number in range(MAX_PRODUCERS)]
    worker.run_task(2)
    own = get_producer(project("own"))
    (surplus, *others) = of_first
    assert isinstance(surplus, Stubborn)
    assert surplus.asked.wait(60)
    again = get_producer(project("p0"))  # while its namesake is on its way out
    assert again is not surplus
    assert usable(own)
    assert surplus.closer is not threading.current_thread()
    for producer in (surplus, *others, own, again):
        producer.may_end.set()  # type: ignore[attr-defined]
    eventually(lambda: surplus not in producers.producers)


def test_producer_that_missed_its_close_is_tried_again(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
    """One whose close failed is not forgotten with its threads: it is closed later, and given to nobody meanwhile."""
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
    """A wrong channel is told to whoever asked, and nothing is kept that would hinder the next task."""
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        with pytest.raises(ChannelError):
            get_producer(project(), channel=str(tmp_path / "file"))
    assert worker.producers.producers == []
    assert worker.idle() == []


def test_other_credentials_are_signed_with_from_then_on(worker: Worker) -> None:
    """A job with renewed temporary credentials keeps the worker's producer, which signs with the new ones."""
    with LogHubServer(access_keys={"old": "s", "new": "s"}) as server:
        for key in ("old", "new"):
            config = ProjectConfig("p", endpoint=server.endpoint, access_key_id=key, access_key_secret="s")
            producer = get_producer(config, config=ProducerConfig(linger_ms=100))
            producer.send("p", "l", {"key": key}).result(30)
        assert len(worker.producers.producers) == 1
        signed = [request.headers["authorization"].split(":")[0] for request in server.requests]
        assert signed == ["LOG old", "LOG new"]
