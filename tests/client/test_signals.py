"""Signal handlers in this process: where the main thread is when the signal comes, and what follows."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

import producer as package
from producer import InvalidArgumentError, Producer, ProducerClosedError
from producer.client import at_exit, signals
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import Call, eventually

Handled = list[int]


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handled]:
    """A handler of SIGTERM that was there before ours; the numbers that it got."""
    monkeypatch.setattr(at_exit, "_draining", {})
    monkeypatch.setattr(signals, "_previous", {})
    monkeypatch.setattr(signals, "_current", None)
    numbers: Handled = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: numbers.append(number))
    package.install_signal_handlers([signal.SIGTERM])
    package.install_signal_handlers([signal.SIGTERM])  # once more changes nothing
    yield numbers
    eventually(lambda: signals._current is None)
    signal.signal(signal.SIGTERM, before)


def test_a_signal_drains_and_then_calls_the_handler_that_was_there(handled: Handled) -> None:
    """What was accepted is delivered before the previous handler runs, and the program goes on; a later one works."""
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
    """It may hold what a delivery needs, so it is not stopped there: the drain goes on beside it, and ends its wait."""
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


def test_a_second_signal_does_not_wait(handled: Handled, caplog: pytest.LogCaptureFixture) -> None:
    """Where a server hangs, the next signal has the previous handler called at once, and the log says what is lost."""
    sink = GatedSink()
    one = Producer(sink=sink, config=config(linger_ms=100, drain_timeout_ms=60_000))
    one.send("p", "l", {"k": "v"})

    def press() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: signals._current is not None and signals._current.parked_at is not None)
        while not handled:
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(0.01)

    pressing = Call(press)
    eventually(lambda: handled)
    pressing.result()
    assert "1 record was not delivered when a second signal came" in caplog.text
    sink.gate.set()
    one.close()


def test_only_the_main_thread_installs_handlers_and_ignored_signals_stay_ignored(handled: Handled) -> None:
    """Elsewhere, and for what is no signal, it is an error in words."""
    with pytest.raises(InvalidArgumentError, match="only the main thread"):
        Call(package.install_signal_handlers).result()
    with pytest.raises(InvalidArgumentError, match="cannot be handled"):
        package.install_signal_handlers([signal.SIGKILL])
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    package.install_signal_handlers([signal.SIGUSR1])
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    signal.signal(signal.SIGUSR1, before)
    assert not handled
