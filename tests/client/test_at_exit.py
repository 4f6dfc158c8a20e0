"""Signals that drain, in this process: the state of the main thread when the signal comes, and the consequences."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import producer as package
from producer import FlushTimeoutError, InvalidArgumentError, MemoryChannel, Producer, ProducerClosedError
from producer.client import at_exit
from producer.runtime import signals
from producer.runtime.signals import StopSignals
from producer.testing import RecordingSink
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, Call, eventually

Handled = list[int]


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handled]:
    """Install a former handler of SIGTERM; return the signal numbers that it gets."""
    monkeypatch.setattr(at_exit, "_draining", {})
    stops = StopSignals(at_exit._drain_at_signal, second=at_exit._log_pending, then_former=True)
    monkeypatch.setattr(at_exit, "_stop_signals", stops)
    numbers: Handled = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: numbers.append(number))
    package.install_signal_handlers([signal.SIGTERM])
    package.install_signal_handlers([signal.SIGTERM])  # a second call changes nothing
    yield numbers
    eventually(lambda: not stops.stopping)
    signal.signal(signal.SIGTERM, before)


def test_a_signal_drains_and_then_calls_the_handler_that_was_there(handled: Handled) -> None:
    """Accepted records are delivered before the former handler runs; the program continues, and a later signal
    works.
    """
    for _ in range(2):
        sink = GatedSink()
        sink.gate.set()
        one = Producer(sink=sink, config=config(linger_ms=60_000, drain_timeout_ms=10_000))
        one.send("p", "l", {"k": "v"})
        before = len(handled)
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda before=before: len(handled) > before)
        assert len(sink.records()) == 1
        with pytest.raises(ProducerClosedError):
            one.send("p", "l", {"k": "v"})
        assert one.closed
        assert "closed" in repr(one)
        one.close()
    assert handled == [signal.SIGTERM] * 2


def test_a_main_thread_that_waits_in_flush_is_not_in_the_way(handled: Handled) -> None:
    """A main thread in flush may hold a lock that a delivery needs: the drain runs beside it, and ends its wait."""
    sink = GatedSink()
    one = Producer(sink=sink, config=config(linger_ms=60_000, drain_timeout_ms=10_000))
    one.send("p", "l", {"k": "v"})

    def press() -> None:
        assert sink.entered.acquire(timeout=60)
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: one._shutdown is not None and one._shutdown.begun)
        sink.gate.set()

    pressing = Call(press)
    one.flush(timeout=20)
    pressing.result()
    eventually(lambda: handled)
    assert len(sink.records()) == 1
    one.close()


class EndedError(Exception):
    """Raised by the former handler, as that of SIGINT does."""


LOG = {"k": "v"}


@pytest.mark.parametrize(
    "send",
    [
        lambda one: one.send("p", "l", LOG),
        lambda one: one.stream("p", "l").send(LOG),
        lambda one: one.stream("p", "l").send_many([LOG]),
        lambda one: one.stream("p", "l").send_lines(b"line\n"),
        lambda one: one.stream("p", "l").send_arrow(pa.table({"k": ["v"]})),
        pytest.param(
            lambda one: asyncio.run(one.stream("p", "l").asend(LOG)),
            # The handler may raise as asyncio.run begins, which then closes neither its loop nor the coroutine.
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
    ],
    ids=["send", "stream", "many", "lines", "arrow", "asend"],
)
def test_a_program_that_sends_in_a_loop_ends_by_its_signal_not_by_a_refused_send(
    handled: Handled, send: Callable[[Producer], Any]
) -> None:
    """A program that sends in a loop ends by its signal, not by a refused send; sends of other threads are refused."""

    def end(*_: object) -> None:
        handled.append(1)
        raise EndedError

    at_exit._stop_signals.former[signal.SIGTERM] = end
    sink = GatedSink()
    one = Producer(sink=sink, config=config(linger_ms=60_000, drain_timeout_ms=10_000))
    accepted = one.send("p", "l", LOG)
    os.kill(os.getpid(), signal.SIGTERM)
    eventually(lambda: one.closed)
    with pytest.raises(ProducerClosedError):
        Call(lambda: send(one)).result()
    assert not handled
    opening = Call(lambda: sink.entered.acquire(timeout=10) and sink.gate.set())
    with pytest.raises(EndedError):
        send(one)
    opening.result()
    assert accepted.result(timeout=0)
    one.close()


def test_a_second_signal_does_not_wait(
    handled: Handled, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a server hangs, the next signal calls the former handler at once, and the log reports the losses."""
    sink = GatedSink()
    one = Producer(sink=sink, config=config(linger_ms=100, drain_timeout_ms=60_000))
    one.send("p", "l", {"k": "v"})
    os.kill(os.getpid(), signal.SIGTERM)
    eventually(lambda: one.closed)
    os.kill(os.getpid(), signal.SIGTERM)  # an echo of the first signal
    assert not handled
    monkeypatch.setattr(signals, "ECHO", 0.0)
    os.kill(os.getpid(), signal.SIGTERM)
    eventually(lambda: handled)
    assert "1 record was not delivered when a second signal came" in caplog.text
    sink.gate.set()
    one.close()


def test_only_the_main_thread_installs_handlers_and_ignored_signals_stay_ignored(handled: Handled) -> None:
    """Other threads and invalid signals get an error that says what to do."""
    with pytest.raises(InvalidArgumentError, match="only the main thread"):
        Call(package.install_signal_handlers).result()
    with pytest.raises(InvalidArgumentError, match="cannot be handled"):
        package.install_signal_handlers([signal.SIGKILL])
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    package.install_signal_handlers([signal.SIGUSR1])
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    signal.signal(signal.SIGUSR1, before)
    assert not handled


def test_flush_all_flushes_every_open_producer_of_the_process(handled: Handled) -> None:  # no others
    """Open batches of all producers are sent at once, the channel's too; a hanging server ends the wait in time."""
    package.flush_all(timeout=0)  # there is none
    hanging, sinks = GatedSink(), [RecordingSink(), RecordingSink()]
    slow = Producer(sink=hanging, config=config(linger_ms=60_000))
    others = [
        Producer(sink=sinks[0], config=config(linger_ms=60_000)),
        Producer(sink=sinks[1], config=config(linger_ms=60_000), channel=MemoryChannel()),
    ]
    for producer in (slow, *others):
        producer.send("p", "l", {"k": "v"})
    with pytest.raises(FlushTimeoutError, match=r"1 batch is still in flight after 0\.050 s") as raised:
        package.flush_all(timeout=0.05)
    assert raised.value.remaining == 1
    hanging.gate.set()
    package.flush_all(timeout=PATIENCE)
    assert [len(sink.records()) for sink in (hanging, *sinks)] == [1, 1, 1]
    for producer in (slow, *others):
        producer.close()
    with pytest.raises(InvalidArgumentError, match="timeout: must be None or seconds"):
        package.flush_all(timeout=-1)
