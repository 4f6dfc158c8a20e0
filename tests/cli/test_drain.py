"""The figures of ``producer channel drain``, and its independence of single directories."""

import contextlib
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer import Producer, ProducerConfig
from producer.agent.events.batch import EventBatch
from producer.agent.events.event_format import write_batch
from producer.channels import FileChannel
from producer.cli.drain import Outcome, _Sink
from producer.cli.drain_all import drain_all
from producer.cli.profiles import Settings
from producer.model.errors import UnauthorizedError
from producer.server import LogHubServer
from producer.server.faults import ApiRequest, Cut, answer, clock_offset, cut, delay
from producer.sinks.loghub.sink import LogHubSink
from producer.testing import RecordingSink

from .test_channel import _unreachable, leave
from .test_channel_logs import Run, run, target

__all__ = ["run", "target"]  # fixtures

Target = Callable[[LogHubServer], None]


def leave_event(directory: Path, logstore: str, *numbers: int) -> None:
    """Make a directory with one more event, which a producer could not deliver."""
    sink = RecordingSink()
    sink.write = _unreachable  # type: ignore[method-assign]
    config = ProducerConfig(linger_ms=100, drain_timeout_ms=0)
    producer = Producer(sink=sink, config=config, channel=FileChannel(directory, minimum_free_space=0))
    producer.stream("my-project", logstore).send_many([{"n": str(number)} for number in numbers])
    producer.close(20)


def test_a_directory_that_loghub_refuses_does_not_keep_the_others_waiting(
    run: Run, tmp_path: Path, target: Target
) -> None:
    """A directory that LogHub refuses is reported, does not stop the others, and the exit code is 1."""
    for name in ("a", "b"):
        leave(tmp_path / "base" / name, 2)
    with LogHubServer() as server:
        target(server)
        server.faults.add(answer(404, "LogStoreNotExist", "no such store"), operation="ListShards", times=1)
        code, out, err = run("drain", "--all", tmp_path / "base")
        assert (code, server.count("my-project", "app-log")) == (1, 2)
    assert "nothing was taken from the channel: my-project/app-log: " in err
    assert out.endswith("1 of 2 directories are delivered\n")


def test_the_time_is_that_of_all_directories_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout is shared by all directories; the exit code is 1 if one was not started."""
    now, given = [100.0], list[float | None]()

    def drained(*_: object, timeout: float | None, **__: object) -> Outcome:
        given.append(timeout)
        now[0] += 4
        return Outcome(1, 0, 0, 0)

    for name in ("a", "b", "c"):
        leave_event(tmp_path / "base" / name, "app-log", 1)
    monkeypatch.setattr("producer.cli.drain_all.drain", drained)
    monkeypatch.setattr("producer.cli.drain_all.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    assert not drain_all(str(tmp_path / "base"), settings=Settings(), timeout=7)
    assert given == [7, 3]


@pytest.mark.parametrize("when", ["after_body", "stored"])
def test_a_drain_that_is_killed_is_run_again_and_nothing_is_lost(
    run: Run, tmp_path: Path, target: Target, when: str
) -> None:
    """A drain that is killed at any moment loses nothing: undelivered events are in the channel again."""
    for begin in range(0, 30, 10):
        leave_event(tmp_path / "logs", "app-log", *range(begin, begin + 10))
    with LogHubServer() as server:
        target(server)
        command = [sys.executable, "-m", "producer", "channel", "drain", str(tmp_path / "logs")]
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.PIPE)

        def kill(_: ApiRequest) -> Cut:
            killed.kill()
            return Cut(when)

        server.faults.add(kill, operation="PutLogs", times=1)
        with killed:
            assert killed.wait(60) == -signal.SIGKILL
        code, out, _ = run("drain", tmp_path / "logs")
        stored = [dict(log.contents)["n"] for log in server.logs("my-project", "app-log")]
    assert (code, "0 refused permanently, 0 damaged, 0 left in the channel" in out) == (0, True), out
    assert set(stored) == set(map(str, range(30)))


def test_a_project_that_does_not_answer_is_queried_for_one_logstore_only_and_the_drain_continues(
    run: Run, tmp_path: Path, target: Target
) -> None:
    """A project that does not answer is queried for one logstore only, and the drain continues with a warning."""
    for logstore in ("one", "two", "three"):
        leave_event(tmp_path / "logs", logstore, 1)
    with LogHubServer() as server:
        target(server)
        server.faults.add(cut("before_body"), operation="ListShards")
        code, out, err = run("drain", tmp_path / "logs")
        asked = {request.path for request in server.requests if request.operation == "ListShards"}
    assert (code, len(asked), err.count("cannot check the target before the drain")) == (0, 1, 1)
    assert "3 events delivered" in out


def test_a_clock_that_differs_is_learned_before_the_drain(run: Run, tmp_path: Path, target: Target) -> None:
    """A clock difference is learned from the first refusal, without a message."""
    leave_event(tmp_path / "logs", "app-log", 1)
    with LogHubServer() as server:
        target(server)
        server.faults.add(clock_offset(7200))
        code, out, err = run("drain", tmp_path / "logs")
    assert (code, err, "1 event delivered" in out) == (0, "", True), out


def test_a_request_in_flight_at_the_timeout_gets_a_while_longer(run: Run, tmp_path: Path, target: Target) -> None:
    """A request in flight at the timeout gets more time, so that its events are not stored twice."""
    leave_event(tmp_path / "logs", "app-log", 1)
    with LogHubServer() as server:
        target(server)
        server.faults.add(delay(1.5, stored=True), operation="PutLogs", times=1)
        code, out, _ = run("drain", tmp_path / "logs", "--timeout", "0.5")
    assert (code, "1 event delivered" in out) == (0, True), out


def test_an_agent_s_events_behind_a_producer_s_are_not_drained(run: Run, tmp_path: Path, target: Target) -> None:
    """A channel with an agent's events behind a producer's is not drained, and the exit code is 2."""
    leave_event(tmp_path / "logs", "app-log", 1)
    with FileChannel(tmp_path / "logs", minimum_free_space=0) as channel, channel.transaction() as transaction:
        transaction.put(write_batch(EventBatch.of_events([({}, b"one")])))
    with LogHubServer() as server:
        target(server)
        code, _, err = run("drain", tmp_path / "logs")
        assert (code, "an agent's batches" in err, server.requests) == (2, True, [])
    with FileChannel(tmp_path / "logs", minimum_free_space=0) as channel:
        assert channel.stats().size == 2


def test_an_event_that_was_cut_and_refused_counts_once(run: Run, tmp_path: Path, target: Target) -> None:
    """An event that was split and rejected counts once; its dead letters have both halves."""
    leave_event(tmp_path / "logs", "app-log", *range(4))
    with LogHubServer() as server:
        target(server)
        server.faults.add(answer(413, "PostBodyTooLarge", "cut it"), operation="PutLogs", times=1)
        server.faults.add(answer(400, "InvalidFormat", "no"), operation="PutLogs")
        code, out, _ = run("drain", tmp_path / "logs")
    assert (code, "0 events delivered, 1 refused permanently, 0 damaged, 0 left" in out) == (1, True), out
    with FileChannel(tmp_path / "logs.dead-letter", minimum_free_space=0) as refused:
        assert refused.stats().size == 2


def test_a_key_that_is_refused_now_and_then_does_not_end_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only consecutive refusals of the credentials end a drain: an answer in between resets the count."""
    error = UnauthorizedError("Unauthorized", "not now")
    most = error.max_consecutive or 0
    outcomes: list[Any] = []

    def write(_: LogHubSink, __: Any) -> str:
        if outcomes.pop():
            return "receipt"
        raise error

    monkeypatch.setattr(LogHubSink, "write", write)
    sink = _Sink(ProducerConfig())
    delivery: Any = type("Delivery", (), {"key": type("Key", (), {"project": "p", "logstore": "l"})})

    def attempts(*good: bool) -> str:
        outcomes[:] = good[::-1]
        for _ in good:
            with contextlib.suppress(UnauthorizedError):
                sink.write(delivery)
        return sink.stopped

    try:
        assert attempts(*([False] * most + [True]) * 3) == ""
        assert "p/l: " in attempts(*[False] * (most + 1))
    finally:
        sink.close()
