"""A program whose main thread uses a channel while a timer's signal handler raises; run by ``test_interrupts``."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from producer.channels import Event, FileChannel, MemoryChannel, SpillableChannel
from producer.model.errors import ChannelFullError

#: Number of interrupts of one run.
INTERRUPTS = 400


class Alarm(KeyboardInterrupt):
    """Raised by the signal handler."""


def ring(*_: object) -> None:
    raise Alarm


def open_channel(kind: str, directory: str) -> Any:
    if kind == "memory":
        return MemoryChannel(capacity=30, keep_alive=0.002)
    file = FileChannel(
        directory,
        capacity=30,
        fsync="commit" if kind == "file" else "os",
        keep_alive=0.002,
        segment_size=1 << 16,
        minimum_free_space=0,
        reserve=0,
    )
    return file if kind == "file" else SpillableChannel(MemoryChannel(capacity=10, keep_alive=0.002), file)


class Books:
    def __init__(self) -> None:
        self.put, self.seen, self.unsure = Counter[str](), Counter[str](), set[str]()
        self.made = 0

    def names(self, who: str) -> list[str]:
        self.made += 3
        return [f"{who}{self.made + place}" for place in range(3)]


def put(channel: Any, names: list[str]) -> None:
    with channel.transaction() as transaction:
        transaction.put_many([Event({}, name.encode()) for name in names])


def take(channel: Any, got: list[str], *, back: bool) -> None:
    with channel.transaction() as transaction:
        got += [event.body.decode() for event in transaction.take(4, timeout=0.002)]
        if back:
            transaction.rollback()


def beside(channel: Any, books: Books, stop: threading.Event) -> None:
    """Put and take on a thread that is never interrupted."""
    while not stop.is_set():
        names, got = books.names("b"), list[str]()
        with suppress(ChannelFullError):
            put(channel, names)
            books.put.update(names)
        take(channel, got, back=False)
        books.seen.update(got)


def was_interrupted(call: Callable[[], object]) -> bool:
    """Make a call that the handler may interrupt at a random point; True if it did."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.choice((1e-4, 1e-3, 3e-3)) * random.random())
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        return True
    return False


def step(channel: Any, books: Books) -> bool:
    """Put or take; True if it was interrupted."""
    names, got, back = books.names("m"), list[str](), random.random() < 0.3
    if random.random() < 0.5:
        try:
            if was_interrupted(lambda: put(channel, names)):
                books.unsure.update(names)
                return True
            books.put.update(names)
        except ChannelFullError:
            pass
        return False
    if was_interrupted(lambda: take(channel, got, back=back)):
        books.unsure.update(got)
        return True
    books.seen.update([] if back else got)
    return False


def drain(channel: Any, books: Books) -> None:
    got: list[str] = []
    while not got or got[-1]:
        got.append("")
        take(channel, got, back=False)
    books.seen.update(name for name in got if name)


def main(kind: str, directory: str) -> None:
    signal.signal(signal.SIGALRM, ring)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # the main thread alone gets it, at once
    channel, mine, other, stop = open_channel(kind, directory), Books(), Books(), threading.Event()
    thread = ThreadPoolExecutor(1)
    ended = thread.submit(beside, channel, other, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    left = INTERRUPTS
    while left:
        left -= step(channel, mine)
    stop.set()
    ended.result(20)
    drain(channel, mine)
    stats = channel.stats()
    while was_interrupted(channel.close):
        pass
    channel.close()
    if kind == "file":
        with open_channel(kind, directory) as again:
            drain(again, mine)
    put_, seen = mine.put + other.put, mine.seen + other.seen
    certain = put_.keys() - mine.unsure
    wrong = {name: seen[name] for name in certain if seen[name] != 1}
    assert not wrong, f"lost, or twice: {wrong}"
    assert not [name for name in mine.unsure if seen[name] > 1], "twice, of an interrupted call"
    assert seen.keys() <= put_.keys() | mine.unsure, "of a call that failed"
    assert len(certain) > 20, len(certain)
    print(len(certain), len(mine.unsure), stats.size, stats.taken, stats.bytes, file=sys.stderr)


main(*sys.argv[1:])
