"""Stop signals: the callback on a thread, the former handlers, and the block that installs them."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from producer.runtime import signals
from producer.runtime.signals import StopSignals, handling, on_stop_signal
from tests.support.waiting import Call, eventually, passed


@pytest.fixture
def former() -> Iterator[list[int]]:
    """Install a former handler of SIGTERM; return the numbers it gets on the main thread."""
    numbers: list[int] = []

    def handle(number: int, _frame: object) -> None:
        assert threading.current_thread() is threading.main_thread()
        numbers.append(number)

    before = signal.signal(signal.SIGTERM, handle)
    yield numbers
    signal.signal(signal.SIGTERM, before)


def installed(stops: StopSignals) -> StopSignals:
    """Install it for SIGTERM."""
    stops.former[signal.SIGTERM] = signal.signal(signal.SIGTERM, stops.handle)
    return stops


def test_handlers_are_installed_for_the_block_and_the_former_ones_restored_also_if_it_raises() -> None:
    """Handlers are installed for the block, and the former ones restored, also if it raises."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}

    def block() -> None:
        with handling(dict.fromkeys(before, lambda *got: came.append(got[0]))) as former:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert (came, former) == ([signal.SIGUSR1], before)
            former[signal.SIGUSR2] = signal.SIG_IGN
            raise OSError("x")

    try:
        with pytest.raises(OSError, match="x"):
            block()
        assert signal.getsignal(signal.SIGUSR1) == before[signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_handler_that_is_not_pythons_does_not_fail_the_end_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former handler not installed by Python is left out."""
    known = signal.getsignal
    before = known(signal.SIGUSR1)
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGUSR1 else known(number))
    try:
        with handling({signal.SIGUSR1: lambda *_: None}) as former:
            assert former == {signal.SIGUSR1: None}
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_beside_the_main_thread_nothing_is_installed() -> None:
    """Other threads install nothing."""

    def work() -> tuple[object, ...]:
        with handling({signal.SIGUSR1: lambda *_: None}) as former, on_stop_signal(pytest.fail):
            return dict(former), signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM)

    assert Call(work).result() == ({}, signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM))


def test_a_callback_may_need_the_lock_that_the_main_thread_held(former: list[int]) -> None:
    """A callback may need a lock that the main thread held at the signal."""
    lock, called = threading.Lock(), threading.Event()

    def callback(number: int) -> None:
        with lock:
            assert number == signal.SIGTERM
            called.set()

    with on_stop_signal(callback):
        with lock:
            signal.raise_signal(signal.SIGTERM)
            assert not called.is_set()
        signals.wait(called)
    assert not former


def test_a_second_signal_has_its_former_action_a_sigterm_within_half_a_second_is_an_echo(
    former: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second signal has its former action; a SIGTERM within half a second is an echo."""
    came: list[int] = []
    with on_stop_signal(came.append):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert not former
        monkeypatch.setattr(signals, "ECHO", 0.0)
        signal.raise_signal(signal.SIGTERM)
        assert former == [signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        eventually(lambda: came)
    assert came == [signal.SIGTERM]


def test_the_former_action_follows_the_callback_on_the_main_thread_and_a_later_signal_is_a_first_one(
    former: list[int],
) -> None:
    """The former action follows the callback, on the main thread, and a later signal is a first one."""
    gate = threading.Event()
    stops = installed(StopSignals(lambda _: passed(gate), then_former=True))
    for times in (1, 2):
        gate.clear()
        signal.raise_signal(signal.SIGTERM)
        assert stops.stopping
        assert len(former) == times - 1
        gate.set()
        eventually(lambda: not stops.stopping)
        assert former == [signal.SIGTERM] * times


def test_a_forked_child_has_signals_of_its_own(former: list[int]) -> None:
    """In a child forked during a stop the first signal is a first one."""
    gate, called = threading.Event(), list[int]()

    def callback(_number: int) -> None:
        called.append(os.getpid())
        passed(gate)

    stops = installed(StopSignals(callback, then_former=True))
    signal.raise_signal(signal.SIGTERM)
    eventually(lambda: called)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert not stops.stopping
            gate.set()
            signal.raise_signal(signal.SIGTERM)
            eventually(lambda: former)
            code = 0 if called[1:] == [os.getpid()] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not former
    gate.set()
    eventually(lambda: not stops.stopping)


def test_during_the_interpreters_exit_the_first_signal_changes_nothing_and_a_second_one_ends_it(
    former: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """During the interpreter's exit the first signal changes nothing, and a second one ends it."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    monkeypatch.setattr(signals, "ECHO", 0.0)
    installed(StopSignals(pytest.fail, second=pytest.fail, then_former=True))
    signal.raise_signal(signal.SIGTERM)
    assert not former
    signal.raise_signal(signal.SIGTERM)
    assert former == [signal.SIGTERM]
