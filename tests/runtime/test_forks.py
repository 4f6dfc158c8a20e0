"""Forks: the registry of renewals in a child."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import producer
from producer.runtime import forks
from producer.runtime.forks import Stage, call_in_child, hold_across_fork, watch_fork
from tests.support.held_locks import AskedFor
from tests.support.waiting import Call, passed


class Told:
    """An object that records its renewal."""

    def __init__(self, order: list[str], name: str) -> None:
        self._order, self._name = order, name

    def _renew_in_child(self) -> None:
        self._order.append(self._name)


def in_child(order: list[str]) -> str:
    """Fork; return what the child recorded."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(order).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        return told.read().decode()


def test_locks_are_renewed_first_then_channels_then_producers_in_any_order_of_imports() -> None:
    """Locks are renewed first, then channels, then producers, in any order of imports."""
    order: list[str] = []
    told = [Told(order, name) for name in ("producer", "channel")]
    watch_fork(told[0], Stage.PRODUCERS)
    watch_fork(told[1], Stage.CHANNELS)
    call_in_child(lambda: order.append("lock"), Stage.LOCKS)
    assert in_child(order) == "lock channel producer"
    assert order == []


def test_the_registry_keeps_no_object_alive() -> None:
    """The registry keeps no object alive."""
    order: list[str] = []
    watch_fork(Told(order, "gone"), Stage.PRODUCERS)
    assert "gone" not in in_child(order)


def test_only_the_registry_is_registered_with_the_interpreter() -> None:
    """Only the registry is registered with the interpreter."""
    root = Path(producer.__file__).parent
    asking = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"os\.register_at_fork\(", path.read_text(encoding="utf-8"))
    }
    assert asking == {"runtime/forks.py"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kinds", [(ValueError,), (ValueError, KeyboardInterrupt)])
def test_a_renewal_that_raises_does_not_prevent_the_others(kinds: tuple[type[BaseException], ...]) -> None:
    """A renewal that raises does not prevent the others."""
    order: list[str] = []

    def failing(kind: type[BaseException]) -> None:
        order.append(kind.__name__)
        raise kind

    calls = [partial(failing, kind) for kind in kinds]
    told = Told(order, "producer")
    for call in calls:
        call_in_child(call, Stage.CHANNELS)
    call_in_child(lambda: order.append("channel"), Stage.CHANNELS)
    watch_fork(told, Stage.PRODUCERS)
    try:
        assert in_child(order) == " ".join([*(kind.__name__ for kind in kinds), "channel", "producer"])
    finally:
        del forks._functions[Stage.CHANNELS][-1 - len(calls) :]


def interrupt_once() -> Callable[[], None]:
    """Raise once, as a signal handler does."""
    left = [KeyboardInterrupt()]

    def interrupt() -> None:
        if left:
            raise left.pop()

    return interrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("when", ["before it is taken", "after it was taken"])
def test_an_interrupted_fork_releases_only_locks_that_it_took_and_renews_the_child(when: str) -> None:
    """An interrupted fork releases only locks that it took, and renews the child."""
    order: list[str] = []
    steps = [interrupt_once(), lambda: None]
    held = AskedFor(*(steps if when.startswith("before") else reversed(steps)))
    told = Told(order, "child")
    watch_fork(told, Stage.LOCKS)
    hold_across_fork(held)
    try:
        assert in_child(order) == "child"
    finally:
        forks._held.remove(held)
    assert Call(lambda: held.lock.acquire(blocking=False)).result()


def test_a_fork_by_the_locks_owner_does_not_deadlock_and_the_owner_keeps_the_lock() -> None:
    """A fork by the lock's owner does not deadlock, and the owner keeps the lock."""
    order: list[str] = []
    held = AskedFor(lambda: order.append("taken"))
    hold_across_fork(held)
    try:
        with held.lock:
            in_child(order)
            assert held._is_owned()
    finally:
        forks._held.remove(held)
    assert order == []
    assert not held._is_owned()


def test_data_under_a_lock_held_across_a_fork_are_consistent_in_the_child() -> None:
    """Data under a lock held across a fork are consistent in the child."""
    forking, changing = threading.Event(), threading.Event()
    held, halves = AskedFor(forking.set), list[str]()

    def change() -> None:
        with held.lock:
            halves.append("one")
            changing.set()
            passed(forking)
            halves.append("other")

    changed = Call(change)
    passed(changing)
    hold_across_fork(held)
    try:
        assert in_child(halves) == "one other"
    finally:
        forks._held.remove(held)
    changed.result()
    assert Call(lambda: held.lock.acquire(blocking=False)).result()


@pytest.mark.parametrize("first", ["channels", "client"])
def test_order_of_imports_does_not_matter(first: str) -> None:
    """A producer with a memory channel works in a child, in any order of imports."""
    program = f"""
import os
import producer.{first}
from producer import MemoryChannel, Producer
from producer.testing import RecordingSink

channel, sink = MemoryChannel(), RecordingSink()
parents = Producer(sink=sink, channel=channel)
parents.send("p", "l", {{"who": "parent"}}).result(60)
child = os.fork()
if child == 0:
    try:
        parents.send("p", "l", {{"who": "child"}}).result(60)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
parents.close(20)
raise SystemExit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
