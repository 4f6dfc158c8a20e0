"""A signal that interrupts nothing: the main thread is in a call that blocks, and another thread got the signal.

To the main thread that is the same as a signal that came just before the call: Python knows of it, the call does not.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer import install_signal_handlers
from producer.client import at_exit, signals
from producer.runtime import signal_wakeup
from tests.support.waiting import Call, eventually

#: So long the signal is given to be handled, seconds; so long the main thread blocks at most.
SOON, LONG = 5.0, 20.0


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers that a handler of SIGTERM got, which drains first."""
    monkeypatch.setattr(at_exit, "_draining", {})
    monkeypatch.setattr(signals, "_previous", {})
    monkeypatch.setattr(signals, "_current", None)
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: numbers.append(number))
    install_signal_handlers([signal.SIGTERM])
    yield numbers
    eventually(lambda: signals._current is None)
    signal.signal(signal.SIGTERM, before)


def handled_while_blocked(handled: list[int]) -> bool:
    """Block the main thread as a worker of a pool is that waits for its task; whether the signal is handled there."""
    task = multiprocessing.get_context("fork").Semaphore(0)
    blocking = threading.Event()
    already = len(handled)

    def press() -> bool:
        blocking.wait()
        eventually(lambda: _sleeps(main), "the main thread's sleep")
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        try:
            eventually(lambda: len(handled) > already, patience=SOON)
        except AssertionError:
            return False
        finally:
            task.release()
        return True

    main = threading.get_native_id()
    pressing = Call(press)
    blocking.set()
    assert task.acquire(timeout=LONG)
    return bool(pressing.result())


def _sleeps(thread: int) -> bool:
    """Whether the kernel has the thread wait; without its report, it does."""
    try:
        report = Path(f"/proc/self/task/{thread}/stat").read_text(encoding="ascii")
        return report.rpartition(")")[2].split()[0] == "S"
    except FileNotFoundError:
        return True


def test_a_main_thread_that_blocks_is_woken_for_its_handlers(handled: list[int]) -> None:
    """What came too late to interrupt a semaphore's wait is handled within it, once, and so is the next one."""
    for times in (1, 2):
        assert handled_while_blocked(handled)
        assert len(handled) == times


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_is_woken_likewise_and_its_parent_is_not_told(handled: list[int]) -> None:
    """A worker of a pool is forked with the handlers of its parent: it has a pipe and a thread of its own."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            code = 0 if handled_while_blocked(handled) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not handled


def test_a_descriptor_that_a_loop_has_set_stays(handled: list[int]) -> None:
    """The loop of asyncio gets its signals after our handlers were installed, and keeps them if they come later."""

    async def signalled() -> None:
        came = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)
        loops = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(loops)
        install_signal_handlers([signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(came.wait(), LONG)
        assert signal.set_wakeup_fd(loops) == loops

    asyncio.run(signalled())
    install_signal_handlers([signal.SIGTERM])
    assert handled_while_blocked(handled)  # the loop took the descriptor with it: now it is ours again


def test_a_handler_of_sigurg_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program has a use for that signal, nothing is installed and nothing is sent."""
    before = signal.signal(signal.SIGURG, lambda *_: None)
    theirs = signal.getsignal(signal.SIGURG)
    monkeypatch.setattr(signal_wakeup, "_pipe", None)
    try:
        signal_wakeup.wake_for([signal.SIGTERM])
        assert signal.getsignal(signal.SIGURG) is theirs
        assert signal_wakeup._pipe is None
    finally:
        signal.signal(signal.SIGURG, before)


_CLOSES_ALL = """
import os, signal, sys, threading
from pathlib import Path
from producer import install_signal_handlers
from producer.runtime import signal_wakeup

signal.signal(signal.SIGTERM, lambda *_: None)
install_signal_handlers([signal.SIGTERM])
(thread,) = [each for each in threading.enumerate() if each.name == "producer-signals"]
pipe = signal_wakeup._pipe
os.closerange(3, 64)
theirs = [os.open(sys.argv[1], os.O_RDWR) for _ in range(max(pipe) - 2)]
thread.join(60)
assert not thread.is_alive(), "it reads what is another's"
child = os.fork()
if child == 0:
    os._exit(0 if all(os.pread(each, 3, 0) == b"own" for each in theirs) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child closed what is another's"
assert [os.lseek(each, 0, os.SEEK_CUR) for each in theirs] == [0] * len(theirs), "another's file was read"
install_signal_handlers([signal.SIGTERM])
signal_wakeup.wake_for([signal.SIGTERM])
assert [each.name for each in threading.enumerate()].count("producer-signals") == 1, "nobody listens"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_who_closes_all_descriptors_keeps_those_that_it_opens_then(tmp_path: Path) -> None:
    """A program that makes a daemon of itself loses the pipe: its thread ends, no other file of that number is read or
    closed, not by a fork either, nothing is said, and handlers that are installed once more are woken again.
    """
    own = tmp_path / "own"
    own.write_text("own", encoding="ascii")
    command = [sys.executable, "-c", _CLOSES_ALL, str(own)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
