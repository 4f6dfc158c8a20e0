"""The registry of what a forked child makes anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import producer
from producer import forks
from producer.forks import Stage, call_in_child, hold_across_fork, watch_fork
from tests.support.waiting import Call, passed


class Told:
    """Something that notes that it was told of a fork."""

    def __init__(self, order: list[str], name: str) -> None:
        self._order, self._name = order, name

    def renew_in_child(self) -> None:
        """Note it."""
        self._order.append(self._name)


def in_child(order: list[str]) -> str:
    """Fork; what the child has noted."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(order).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        return told.read().decode()


def test_what_stands_below_is_told_first() -> None:
    """Whatever was imported first: a child renews locks, then channels, then the producers that stand on them."""
    order: list[str] = []
    told = [Told(order, name) for name in ("producer", "channel")]
    watch_fork(told[0], Stage.PRODUCERS)
    watch_fork(told[1], Stage.CHANNELS)
    call_in_child(lambda: order.append("lock"), Stage.LOCKS)
    assert in_child(order) == "lock channel producer"
    assert order == []


def test_what_is_gone_is_not_told() -> None:
    """The registry keeps nothing alive."""
    order: list[str] = []
    watch_fork(Told(order, "gone"), Stage.PRODUCERS)
    assert "gone" not in in_child(order)


def test_there_is_one_registry() -> None:
    """Nothing else asks the interpreter to be told."""
    root = Path(producer.__file__).parent
    asking = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"os\.register_at_fork\(", path.read_text(encoding="utf-8"))
    }
    assert asking == {"forks.py"}


class AskedFor:
    """A lock that tells when somebody asks for it, and then waits as any lock does."""

    def __init__(self, asked: threading.Event) -> None:
        self.lock, self._asked = threading.Lock(), asked

    def acquire(self) -> None:
        """Tell, then take it."""
        self._asked.set()
        self.lock.acquire()

    def release(self) -> None:
        """Give it back."""
        self.lock.release()


def test_what_is_held_across_a_fork_is_whole_in_the_child() -> None:
    """A fork waits for the thread that changes something under such a lock; afterwards it is free on both sides."""
    forking, changing = threading.Event(), threading.Event()
    held, halves = AskedFor(forking), list[str]()

    def change() -> None:
        with held.lock:
            halves.append("one")
            changing.set()
            passed(forking)
            halves.append("other")

    changed = Call(change)
    passed(changing)
    hold_across_fork(held)  # type: ignore[arg-type]  # it has what is needed of a lock
    try:
        assert in_child(halves) == "one other"
    finally:
        forks._held.remove(held)  # type: ignore[arg-type]
    changed.result()
    assert not held.lock.locked()


@pytest.mark.parametrize("first", ["channels", "client"])
def test_order_of_imports_does_not_matter(first: str) -> None:
    """A producer behind a channel in memory works in a child, whichever of the two was imported first."""
    program = f"""
import os
import producer.{first}
from producer import MemoryChannel, Producer
from producer.testing import RecordingSink

channel, sink = MemoryChannel(), RecordingSink()
parents = Producer(sink=sink, channel=channel)
parents.send("p", "l", {{"who": "parent"}}).result(20)
child = os.fork()
if child == 0:
    try:
        parents.send("p", "l", {{"who": "child"}}).result(20)
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
