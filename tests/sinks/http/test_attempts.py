"""Attempts alone, with a pair of sockets and a manual clock."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.runtime.clock import Deadline
from producer.runtime.internal_threads import is_at_work
from producer.sinks.http.attempts import Attempt, Attempts
from producer.sinks.http.slow_connect_warning import Silence
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE, eventually

NAME = "test-deadline"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def attempts(clock: ManualClock) -> Iterator[Attempts]:
    """Return attempts with a limit of ten seconds; check that none of their threads is left."""
    yield Attempts(10.0, clock, NAME)
    eventually(lambda: not threads(), "the end of the threads")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return a connection: our side, and the other side, which waits."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    theirs.settimeout(PATIENCE)
    with ours, theirs:
        yield ours, theirs


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def advance(clock: ManualClock, seconds: float) -> None:
    """Move the clock once a thread waits for it."""
    eventually(lambda: clock.waiting == 1, "the thread that waits")
    clock.advance(seconds)


def is_open(theirs: socket.socket) -> bool:
    """Return True if the other side still has a peer."""
    theirs.setblocking(False)
    try:
        return theirs.recv(1) != b""
    except BlockingIOError:
        return True
    finally:
        theirs.settimeout(PATIENCE)


def test_the_time_of_an_attempt_runs_from_its_begin_a_later_call_raises(attempts: Attempts, clock: ManualClock) -> None:
    """The time of an attempt runs from its begin; a later call raises."""
    with Attempt(attempts) as first:
        clock.advance(4)
        with Attempt(attempts) as second:
            assert (first.left(), second.left()) == (6, 10)
            clock.advance(6)
            assert (first.is_over, second.is_over) == (True, False)
            with pytest.raises(TimeoutError):
                first.left()
        assert not threads()


def test_a_thread_that_reads_or_writes_is_interrupted_at_the_nearer_end_and_so_is_a_later_attempt(
    attempts: Attempts, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A thread that reads or writes is interrupted at the nearer end, and so is a later attempt."""
    ours, theirs = pair
    with Attempt(attempts) as attempt:
        attempt.hold(ours)
        attempts.hurry(Deadline.after(clock, 3))
        advance(clock, 2.9)
        eventually(lambda: clock.waiting == 1)
        assert is_open(theirs)
        advance(clock, 0.2)
        assert ours.recv(1) == b""
        assert theirs.recv(1) == b""
        assert attempt.cut
    with Attempt(attempts) as late, pytest.raises(TimeoutError):
        late.left()


def test_an_end_further_away_than_the_limit_changes_nothing(attempts: Attempts, clock: ManualClock) -> None:
    """An end further away than the limit changes nothing."""
    with Attempt(attempts) as attempt:
        attempts.hurry(Deadline.after(clock, 100))
        assert attempt.left() == 10
    attempts.hurry(Deadline(None))
    with Attempt(attempts) as attempt:
        assert attempt.left() == 10


def test_an_attempt_that_ended_keeps_its_connection_and_the_thread_ends(
    attempts: Attempts, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """The connection of an ended attempt may serve another one."""
    with Attempt(attempts) as attempt:
        attempt.hold(pair[0])
        attempts.hurry(Deadline.after(clock, 3))
        eventually(lambda: clock.waiting == 1)
    eventually(lambda: not threads())
    clock.advance(5)
    assert is_open(pair[1])


def test_an_attempt_that_was_cut_while_it_connected_closes_its_connection(
    attempts: Attempts, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """An attempt that was cut while it connected closes its connection."""
    with Attempt(attempts) as attempt:
        attempts.hurry(Deadline.after(clock, 3))
        advance(clock, 4)
        eventually(lambda: attempt.cut)
        with pytest.raises(TimeoutError):
            attempt.hold(pair[0])
        attempt.close()
        assert pair[1].recv(1) == b""


def test_a_closed_descriptor_may_belong_to_another_socket_the_attempts_next_connection_is_shut_down(
    attempts: Attempts, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A closed descriptor may belong to another socket; the attempt's next connection is shut down."""
    ours, theirs = pair
    closed, _other = socket.socketpair()
    with _other, Attempt(attempts) as attempt:
        number = closed.fileno()
        attempt.hold(closed)
        attempt.close()
        os.dup2(ours.fileno(), number)
        attempts.hurry(Deadline.after(clock, 3))
        advance(clock, 4)
        eventually(lambda: attempt.cut)
        assert is_open(theirs)
        os.close(number)


def test_a_guarded_attempt_is_cut_at_its_limit(
    attempts: Attempts, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A guarded attempt is cut for code that gives each of its calls the whole timeout."""
    with Attempt(attempts) as attempt:
        attempt.hold(pair[0])
        attempt.guard()
        advance(clock, 10.1)
        assert pair[1].recv(1) == b""


def test_a_cut_opens_and_closes_no_descriptor(
    attempts: Attempts, clock: ManualClock, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A cut opens and closes no descriptor."""

    def inode(descriptor: str) -> int | None:
        try:
            return os.fstat(int(descriptor)).st_ino
        except OSError:  # the descriptor of the folder itself
            return None

    this = os.fstat(pair[0].fileno()).st_ino
    with Attempt(attempts) as attempt:
        attempt.hold(pair[0])
        attempts.hurry(Deadline.after(clock, 3))
        advance(clock, 4)
        eventually(lambda: attempt.cut)
    assert [inode(entry.name) for entry in Path("/dev/fd").iterdir()].count(this) == 1


def test_where_no_thread_can_start_an_attempt_ends_by_its_limit(
    attempts: Attempts, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free thread the cut is omitted; the record is not lost."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Attempt(attempts) as attempt:
        attempts.hurry(Deadline.after(clock, 3))
        assert attempt.left() == 3


@pytest.mark.parametrize("connected", [False, True])
def test_after_two_seconds_one_line_has_the_state_and_the_limit_however_many_attempts_wait(
    clock: ManualClock,
    attempts: Attempts,
    pair: tuple[socket.socket, socket.socket],
    caplog: pytest.LogCaptureFixture,
    *,
    connected: bool,
) -> None:
    """After two seconds one line has the state and the limit, however many attempts wait; another one follows the first
    response.
    """
    caplog.set_level("INFO", "loghub")
    silence = Silence("http://p.x", 70)
    found = "connected, but no answer" if connected else "no connection"
    told = [f"http://p.x: {found} for 2 s; the attempt may take 70 s (http.attempt_timeout_ms)"]
    with Attempt(attempts) as first, Attempt(attempts) as second:
        for attempt in (first, second):
            if connected:
                attempt.hold(pair[0])
            silence.listen(attempts, attempt, clock)
        advance(clock, 1.9)
        assert not caplog.messages
        advance(clock, 0.2)
        eventually(lambda: caplog.messages == told)
        silence.listen(attempts, second, clock)
        assert not threads() or eventually(lambda: not threads()) is None
    silence.end()
    assert caplog.messages == [*told, "http://p.x: answers now"]


def test_a_quick_failure_or_response_logs_no_warning_of_silence_and_the_next_attempt_is_watched_again(
    clock: ManualClock, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """A quick failure or response logs no warning of silence, and the next attempt is watched again."""
    silence = Silence("http://p.x", 70)
    with Attempt(attempts) as attempt:
        silence.listen(attempts, attempt, clock)
        eventually(lambda: clock.waiting == 1)
    eventually(lambda: not threads())
    clock.advance(2.1)
    assert not caplog.messages
    with Attempt(attempts) as attempt:
        silence.listen(attempts, attempt, clock)
        advance(clock, 2.1)
        eventually(lambda: len(caplog.messages) == 1)


def test_a_slow_log_handler_does_not_delay_the_end_of_an_attempt(
    clock: ManualClock, attempts: Attempts, pair: tuple[socket.socket, socket.socket]
) -> None:
    """The warning's thread works for a producer, so its log record is not sent by a sink."""
    called, goes_on = threading.Event(), threading.Event()
    at_work: list[bool] = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            at_work.append(is_at_work(record.thread))
            called.set()
            goes_on.wait(PATIENCE)

    logger, slow = logging.getLogger("loghub.http"), Slow()
    logger.addHandler(slow)
    try:
        with Attempt(attempts) as attempt:
            attempt.hold(pair[0])
            Silence("http://p.x", 70).listen(attempts, attempt, clock)
            advance(clock, 2.1)
            assert called.wait(PATIENCE)
            attempts.hurry(Deadline.after(clock, 1))
            advance(clock, 2)
            assert pair[1].recv(1) == b""
    finally:
        goes_on.set()
        logger.removeHandler(slow)
    assert at_work == [True]
