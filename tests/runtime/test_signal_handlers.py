"""Handlers of signals for the time of a block."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from producer.runtime import signal_wakeup
from producer.runtime.signal_handlers import call_former, handling
from producer.ship.jvm import held_interrupts
from producer.ship.stopping import stopping_on_signals
from tests.support.waiting import Call


def test_handlers_are_there_for_the_block_and_the_former_ones_after_it() -> None:
    """Also when the block raises; what is changed in its value is put back in their place."""
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
    """None stands for it; Python cannot put it back."""
    install = signal.signal
    monkeypatch.setattr(signal, "signal", lambda *handler: (install(*handler), None)[1])
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with handling({signal.SIGUSR1: lambda *_: None}) as former:
            assert former == {signal.SIGUSR1: None}
    finally:
        install(signal.SIGUSR1, before)


def test_beside_the_main_thread_nothing_is_installed() -> None:
    """It may not install handlers."""
    seen: list[object] = []

    def work() -> None:
        with handling({signal.SIGUSR1: lambda *_: None}) as former:
            seen.extend([dict(former), signal.getsignal(signal.SIGUSR1)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [{}, signal.getsignal(signal.SIGUSR1)]


def test_only_a_former_handler_that_can_be_called_is() -> None:
    """SIG_DFL and SIG_IGN are numbers."""
    came: list[tuple[object, ...]] = []
    former = {1: signal.SIG_DFL, 2: lambda *got: came.append(got)}
    for number in (1, 2, 3):
        call_former(former, number, None)
    assert came == [(2, None)]


def test_a_block_by_itself_changes_nothing_else_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who needs his main thread woken asks for that; on another thread there is nothing to wake for."""
    monkeypatch.setattr(signal_wakeup, "_listen", lambda: pytest.fail("a thread and a pipe for signals"))
    with handling({signal.SIGUSR1: lambda *_: None}):
        pass
    with held_interrupts():
        pass
    stop = threading.Event()
    call = Call(lambda: stopping_on_signals(stop).__enter__())
    assert call.result() is None
