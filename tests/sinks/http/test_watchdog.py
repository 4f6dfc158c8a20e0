"""The watchdog by itself: a pair of sockets, and a clock that moves when told to."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from producer.runtime.internal_threads import is_at_work
from producer.sinks.http.slow_connect_warning import Silence
from producer.sinks.http.watchdog import Watchdog, guard, lend, take_back
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE, eventually

NAME = "test-watchdog"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watchdog(clock: ManualClock) -> Iterator[Watchdog]:
    """A watchdog with a limit of ten seconds; its thread has ended after the test."""
    watchdog = Watchdog(10.0, clock, NAME)
    yield watchdog
    watchdog.close()
    eventually(lambda: not threads(), "the end of the thread")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection: our end, and the other one, which waits for a while."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    theirs.settimeout(PATIENCE)
    with ours, theirs:
        yield ours, theirs


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def advance(clock: ManualClock, seconds: float) -> None:
    """Move the clock once the watchdog sleeps, and let it look at the time."""
    eventually(lambda: clock.waiting == 1, "the watchdog's sleep")
    clock.advance(seconds)


def is_open(theirs: socket.socket) -> bool:
    """Whether the other end still has a peer."""
    theirs.setblocking(False)
    try:
        return theirs.recv(1) != b""
    except BlockingIOError:
        return True
    finally:
        theirs.settimeout(PATIENCE)


def test_a_connection_is_shut_down_at_the_limit_and_not_before(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Whoever reads from it, or writes to it, hears at that moment that it is over; 9.9 seconds change nothing."""
    ours, theirs = pair
    with watchdog.watch() as watch:
        guard(ours.fileno())
        advance(clock, 9.9)
        eventually(lambda: clock.waiting == 1)
        assert is_open(theirs)
        assert not watch.cut
        clock.advance(0.2)
        assert ours.recv(1) == b""
        assert theirs.recv(1) == b""
        assert watch.cut
        with pytest.raises(BrokenPipeError):
            ours.send(b"x")


def test_an_attempt_that_ended_keeps_its_connection(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """The connection is the next attempt's, whose time begins anew."""
    ours, theirs = pair
    with watchdog.watch() as first:
        guard(ours.fileno())
        advance(clock, 9)
    with watchdog.watch() as second:
        guard(ours.fileno())
        advance(clock, 9)
        eventually(lambda: clock.waiting == 1)
    advance(clock, 100)
    assert is_open(theirs)
    assert not first.cut
    assert not second.cut


def test_a_connection_that_comes_too_late_is_shut_down_at_once(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """An attempt whose time was spent on the way to a connection does not begin to use it."""
    ours, theirs = pair
    with watchdog.watch() as watch:
        advance(clock, 11)
        eventually(lambda: watch.over)
        assert not watch.cut
        guard(ours.fileno())
        assert watch.cut
        assert theirs.recv(1) == b""


def test_each_of_many_attempts_has_its_own_limit(watchdog: Watchdog, clock: ManualClock) -> None:
    """Of five attempts, begun a second apart, each is cut when its own time is over."""
    with ExitStack() as stack:
        pairs, watches = [socket.socketpair() for _ in range(5)], []
        for ours, theirs in pairs:
            stack.enter_context(ours)
            stack.enter_context(theirs)
        for ours, _ in pairs:
            watches.append(stack.enter_context(watchdog.watch()))
            guard(ours.fileno())
            advance(clock, 1)
        advance(clock, 5.5)
        for cut in range(1, 6):
            eventually(lambda cut=cut: [watch.cut for watch in watches] == [n < cut for n in range(5)])
            advance(clock, 1)


def test_the_thread_starts_with_the_first_attempt_sleeps_and_ends_with_the_last_after_close(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Nothing runs before there is something to watch; close leaves a running attempt under watch."""
    ours, theirs = pair
    assert threads() == []
    with watchdog.watch():
        (thread,) = threads()
        assert thread.daemon
    advance(clock, 11)
    eventually(lambda: clock.waiting == 1)
    with watchdog.watch() as watch:
        guard(ours.fileno())
        watchdog.close()
        advance(clock, 11)
        assert theirs.recv(1) == b""
        assert watch.cut
    eventually(lambda: not threads(), "the end of the thread")
    with watchdog.watch():
        assert len(threads()) == 1  # an attempt after close is watched too


def test_a_thread_that_sleeps_without_an_end_wakes_for_the_next_attempt(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Once the time of all attempts is over it sleeps for ever; the first attempt after that has its limit too."""
    ours, theirs = pair
    with watchdog.watch():
        advance(clock, 11)
    eventually(lambda: watchdog._asleep)
    with watchdog.watch() as watch:
        guard(ours.fileno())
        eventually(lambda: not watchdog._asleep)
        advance(clock, 11)
        assert theirs.recv(1) == b""
        assert watch.cut


def _inode(descriptor: str) -> int | None:
    try:
        return os.fstat(int(descriptor)).st_ino
    except OSError:  # that of the folder itself
        return None


def test_nothing_is_left_open(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Whether it was cut, ended, or had no connection, an attempt leaves no descriptor behind."""
    ours, _ = pair
    this = os.fstat(ours.fileno()).st_ino

    def descriptors() -> int:
        """Of this socket: others come and go with what earlier tests left to the garbage collector."""
        return sum(_inode(entry.name) == this for entry in Path("/dev/fd").iterdir())

    before = descriptors()
    for _ in range(3):
        with watchdog.watch():
            guard(ours.fileno())
            guard(ours.fileno())  # told twice: of a new connection, and of the request on it
            assert descriptors() == before + 1
        with watchdog.watch():
            pass
    with watchdog.watch() as watch:
        guard(ours.fileno())
        advance(clock, 11)
        eventually(lambda: watch.cut)
        guard(os.dup(ours.fileno()))
    eventually(lambda: descriptors() == before + 1)  # the duplicate that this test made


def test_a_connection_that_is_lent_is_watched_without_a_duplicate_and_stays_its_owners(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """It is shut down at the limit, or when it comes too late, and never closed."""
    ours, theirs = pair
    this = os.fstat(ours.fileno()).st_ino
    with watchdog.watch():
        lend(ours.fileno())
        assert sum(_inode(entry.name) == this for entry in Path("/dev/fd").iterdir()) == 1
    with watchdog.watch() as watch:
        lend(ours.fileno())
        guard(ours.fileno())  # it is known by now
        assert sum(_inode(entry.name) == this for entry in Path("/dev/fd").iterdir()) == 1
        assert is_open(theirs)
        advance(clock, 11)
        assert theirs.recv(1) == b""
        assert watch.cut
    assert ours.recv(1) == b""
    here, there = socket.socketpair()
    with here, there, watchdog.watch() as watch:
        advance(clock, 11)
        eventually(lambda: watch.over)
        lend(here.fileno())
        assert watch.cut
        assert there.recv(1) == b""
        assert here.recv(1) == b""


def test_a_connection_that_was_taken_back_is_no_longer_watched(
    watchdog: Watchdog, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Its number may be another one's once it is closed; the attempt's next connection is watched again."""
    ours, theirs = pair
    take_back()  # outside of an attempt it changes nothing
    with watchdog.watch() as watch:
        lend(ours.fileno())
        take_back()
        take_back()
        advance(clock, 11)
        eventually(lambda: watch.over)
        assert not watch.cut
        assert is_open(theirs)
    with watchdog.watch() as watch:
        lend(ours.fileno())
        take_back()
        lend(ours.fileno())
        advance(clock, 11)
        assert theirs.recv(1) == b""
        assert watch.cut


def test_an_attempt_is_made_also_where_no_thread_can_start(
    watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A machine without threads to spare costs the limit, not the record; the next attempt is watched if it can be."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with watchdog.watch() as watch:
            guard(pair[0].fileno())
    assert not watch.cut
    with watchdog.watch():
        assert len(threads()) == 1


def test_a_connection_of_no_attempt_is_nobodys(pair: tuple[socket.socket, socket.socket]) -> None:
    """Outside of an attempt there is nothing to watch."""
    guard(pair[0].fileno())
    assert is_open(pair[1])


@pytest.mark.parametrize("connected", [False, True])
def test_silence_of_a_destination_that_never_answered_is_told_once_before_the_attempt_ends(
    clock: ManualClock,
    watchdog: Watchdog,
    pair: tuple[socket.socket, socket.socket],
    caplog: pytest.LogCaptureFixture,
    *,
    connected: bool,
) -> None:
    """After two seconds, with how far it came and how long it will wait; of several attempts one line, and one when it
    answers.
    """
    caplog.set_level("INFO", "producer")
    silence = Silence("http://p.x", 70)
    found = "connected, but no answer" if connected else "no connection"
    told = [f"http://p.x: {found} for 2 s; the attempt may take 70 s (http.attempt_timeout_ms)"]
    with watchdog.watch() as first, watchdog.watch() as second:
        if connected:
            for watch in (first, second):
                watchdog.guard(watch, pair[0].fileno(), lent=True)
        watchdog.listen(first, silence)
        watchdog.listen(second, silence)
        advance(clock, 1.9)
        assert not caplog.messages
        advance(clock, 0.2)
        eventually(lambda: caplog.messages == told)
        advance(clock, 2.1)
        eventually(lambda: clock.waiting == 1)
        assert caplog.messages == told
        for watch in (first, second):
            watchdog.release(watch)
    silence.end()
    assert caplog.messages == [*told, "http://p.x: answers now"]


def test_a_new_destination_is_listened_to_also_while_the_watchdog_sleeps_for_an_older_one(
    clock: ManualClock, watchdog: Watchdog, caplog: pytest.LogCaptureFixture
) -> None:
    """It sleeps until the end of the older attempt: the younger one's silence comes before."""
    with watchdog.watch():
        advance(clock, 1)
        eventually(lambda: clock.waiting == 1)
        with watchdog.watch() as watch:
            watchdog.listen(watch, Silence("http://p.x", 70))
            advance(clock, 2.1)
            eventually(lambda: len(caplog.messages) == 1)


def test_an_attempt_that_ended_in_time_is_told_of_by_nobody(
    clock: ManualClock, watchdog: Watchdog, caplog: pytest.LogCaptureFixture
) -> None:
    """What was quick to fail, or to answer, is no silence; nor is it another attempt's."""
    with watchdog.watch():
        with watchdog.watch() as watch:
            watchdog.listen(watch, Silence("http://p.x", 70))
        advance(clock, 2.1)
        eventually(lambda: clock.waiting == 1)
        assert not caplog.messages


def test_a_handler_that_takes_its_time_keeps_no_attempt_from_its_end(
    clock: ManualClock, watchdog: Watchdog, pair: tuple[socket.socket, socket.socket]
) -> None:
    """What tells of a silence has a thread of its own, which works for a producer: that record feeds nobody's sink."""
    called, goes_on = threading.Event(), threading.Event()
    at_work: list[bool] = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            at_work.append(is_at_work(record.thread))
            called.set()
            goes_on.wait(PATIENCE)

    logger, slow = logging.getLogger("producer.http"), Slow()
    logger.addHandler(slow)
    try:
        with watchdog.watch() as watch:
            lend(pair[0].fileno())
            watchdog.listen(watch, Silence("http://p.x", 70))
            advance(clock, 2.1)
            assert called.wait(PATIENCE)
            advance(clock, 8)
            assert pair[1].recv(1) == b""
            assert watch.cut
    finally:
        goes_on.set()
        logger.removeHandler(slow)
    assert at_work == [True]
