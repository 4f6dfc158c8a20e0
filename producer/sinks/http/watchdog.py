"""Watchdog: no attempt takes longer than its limit, whatever the other side does.

The timeouts of a socket begin anew with every byte, so a server that drips its answer, repeats ``100 Continue``, or
takes the body a byte at a time could hold an IO thread for ever. When the time of an attempt is over, its connection is
shut down: whatever waits on it then ends with an error, below TLS and behind any proxy.

All attempts have the same limit, and one end if there is one, so they end in the order in which they began. The thread
sleeps until the end of the oldest one, and for ever when there is none: an attempt costs two turns of a lock, not a
wake-up. Only those for a destination that has never answered have it wake up sooner, see :mod:`.silence`.
"""

from __future__ import annotations

import _socket
import math
import os
import threading
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from ...runtime.clock import NO_DEADLINE, Clock, Deadline, WaitingRoom
from ...runtime.loggers import get_logger
from .slow_connect_warning import PATIENCE, Silence

_log = get_logger("producer.watchdog")

#: A socket's timeout of 0 would mean another thing, seconds.
_LEAST = 0.001

# The attempt that this thread makes at the moment; or this greenlet, of gevent's, also where it patched late.
_here: ContextVar[Watch | None] = ContextVar("watch", default=None)


class Watch:
    """The attempt that this thread makes within the block, in the eyes of its watchdog, whose lock guards all of it.

    :ivar end: when its time is over, monotonic seconds.
    :ivar over: whether it is.
    :ivar cut: whether its connection was shut down for that.
    :ivar descriptor: its connection's, or a duplicate of that; None before there is a connection.
    :ivar lent: whether it is no duplicate, so that it may only be used under the lock, and is not to be closed.
    """

    __slots__ = ("cut", "descriptor", "end", "lent", "over", "watchdog")

    def __init__(self, watchdog: Watchdog, end: float) -> None:
        self.watchdog = watchdog
        self.end = end
        self.over = False
        self.cut = False
        self.descriptor: int | None = None
        self.lent = False

    def __enter__(self) -> Self:
        self.watchdog.begin(self)
        _here.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _here.set(None)
        self.watchdog.end(self)


def guard(connection_descriptor: int) -> None:
    """Put a connection under the watch of the attempt that this thread makes, if it has none yet. TLS or a proxy's
    client may close it before :func:`take_back`.

    :param connection_descriptor: the descriptor of the socket; it stays the caller's.
    :raises OSError: no more descriptors.
    """
    watch = _here.get()
    if watch is not None and watch.descriptor is None:
        watch.watchdog.guard(watch, os.dup(connection_descriptor))


def lend(connection_descriptor: int) -> None:
    """As :func:`guard`, of a connection that nobody closes before :func:`take_back`: it needs no duplicate, the making
    and closing of which are steps at which other threads take the interpreter.
    """
    watch = _here.get()
    if watch is not None and watch.descriptor is None:
        watch.watchdog.guard(watch, connection_descriptor, lent=True)


def take_back() -> None:
    """End the watch of the connection of this thread's attempt, which the caller is about to close."""
    watch = _here.get()
    if watch is not None and watch.descriptor is not None:
        watch.watchdog.release(watch)


def time_left() -> float:
    """How long the attempt that this thread makes may still take, seconds; without end where it makes none."""
    watch = _here.get()
    return math.inf if watch is None else watch.watchdog.time_left(watch)


def unwatched() -> float:
    """Return how long one call of this attempt's socket may wait, seconds: without end, unless no thread watches it."""
    watch = _here.get()
    return math.inf if watch is None or watch.watchdog.watches else max(_LEAST, watch.watchdog.time_left(watch))


class Watchdog:
    """See the module. Its thread starts with the first attempt, and ends after :meth:`close` and the last one.

    :param limit: the most that an attempt may take, seconds.
    :param thread_name: name of the thread.
    """

    def __init__(self, limit: float, clock: Clock, thread_name: str) -> None:
        self._limit = limit
        self._clock = clock
        self._thread_name = thread_name
        self._room = WaitingRoom(clock)
        self._lock = threading.Lock()  # guards everything below, and the watches
        self._watches: dict[Watch, None] = {}  # the oldest first
        self._silences: dict[Watch, tuple[Deadline, Silence]] = {}  # until they are told of, likewise
        self._thread: threading.Thread | None = None
        self._asleep = False
        self._closed = False
        self._end = math.inf  # of all attempts, monotonic seconds

    def watch(self) -> Watch:
        """To watch the attempt that this thread makes within a ``with`` block."""
        end = self._clock.monotonic() + self._limit
        return Watch(self, end if end < self._end else self._end)

    @property
    def watches(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None

    def time_left(self, watch: Watch) -> float:
        """How long an attempt may still take, seconds."""
        return watch.end - self._clock.monotonic()

    def hurry(self, end: Deadline) -> None:
        """No attempt goes on beyond this, of those that are made and those that come."""
        with self._lock:
            self._end = math.inf if end.at is None else end.at
            for watch in self._watches:
                watch.end = min(watch.end, self._end)
        self._room.wake_all()

    def listen(self, watch: Watch, silence: Silence) -> None:
        """Let the attempt's silence be told of if it lasts for :data:`.silence.PATIENCE`."""
        with self._lock:
            self._silences[watch] = Deadline.after(self._clock, PATIENCE), silence
        self._room.wake_all()

    def guard(self, watch: Watch, descriptor: int, *, lent: bool = False) -> None:
        """The attempt has a connection now.

        :param descriptor: given away, so that the watchdog closes it, or ``lent`` until :meth:`release`.
        """
        with self._lock:
            watch.cut = watch.over
            if not watch.over:
                watch.descriptor, watch.lent = descriptor, lent
        if watch.cut:
            _shut_down(descriptor, close=not lent)

    def release(self, watch: Watch) -> None:
        """Forget the attempt's connection; close the duplicate of its descriptor."""
        with self._lock:
            descriptor = _taken_from(watch)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Let the thread end once the last attempt has."""
        with self._lock:
            self._closed = True
        self._room.wake_all()

    def begin(self, watch: Watch) -> None:
        """An attempt begins."""
        with self._lock:
            self._watches[watch] = None
            asleep, thread = self._asleep, None
            if self._thread is None:
                thread = self._thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
        if thread is not None:
            self._start(thread)
        elif asleep:
            self._room.wake_all()

    def _start(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError as error:
            # The interpreter is exiting, or there are too many threads: the record is worth more than a limit on what
            # drips, and the next attempt tries again. Each call of the socket ends by the limit: see `unwatched`.
            _log.debug("%s: cannot start (%s): only silence ends the attempt", self._thread_name, error)
            with self._lock:
                self._thread = None

    def end(self, watch: Watch) -> None:
        """It is over; nobody shuts its connection down any more."""
        with self._lock:
            self._watches.pop(watch, None)
            self._silences.pop(watch, None)
            descriptor, closed = _taken_from(watch), self._closed
        if closed:
            self._room.wake_all()
        if descriptor is not None:
            os.close(descriptor)

    def _run(self) -> None:
        while True:
            now = self._clock.monotonic()
            with self._lock:
                overdue, lasting = self._take_overdue(now), self._take_lasting(now)
                oldest = next(iter(self._watches), None)
                ended = self._closed and not (overdue or oldest)
                self._asleep = not (overdue or oldest)
                if ended:
                    self._thread = None
                    return
            for descriptor in overdue:
                _shut_down(descriptor, close=True)
            for silence, connected in lasting:
                silence.tell(connected=connected)
            if not overdue:
                self._wait(oldest)

    def _take_overdue(self, now: float) -> list[int]:
        """The connections of the attempts whose time is over. The caller holds the lock."""
        taken = []
        for watch in list(self._watches):
            if now < watch.end:
                break
            del self._watches[watch]
            watch.over = True
            if watch.descriptor is not None:
                watch.cut = True
                if watch.lent:  # as soon as its owner has the lock, the number may be another connection's
                    _shut_down(watch.descriptor, close=False)
                else:
                    taken.append(watch.descriptor)
                watch.descriptor, watch.lent = None, False
        return taken

    def _take_lasting(self, now: float) -> list[tuple[Silence, bool]]:
        """The silences that have lasted, and whether there is a connection. The caller holds the lock."""
        taken = []
        for watch, (due, silence) in list(self._silences.items()):
            if due.at is None or now < due.at:
                break
            del self._silences[watch]
            if not watch.over:
                taken.append((silence, watch.descriptor is not None))
        return taken

    def _next_silence(self) -> Deadline:
        with self._lock:
            return next((due for due, _ in self._silences.values()), NO_DEADLINE)

    def _wait(self, oldest: Watch | None) -> None:
        """Until the time of ``oldest`` is over, or a silence has lasted; without one until there is one, or nobody will
        come any more.
        """
        end, silence = math.inf if oldest is None else oldest.end, self._next_silence()
        deadline = NO_DEADLINE if end == math.inf else Deadline(end)

        def is_news() -> bool:
            if not self._watches:
                return self._closed
            return oldest is None or oldest.end != end or self._next_silence() is not silence

        self._room.wait_until(is_news, _sooner(deadline, silence))


def _sooner(one: Deadline, other: Deadline) -> Deadline:
    return other if one.at is None or (other.at is not None and other.at < one.at) else one


def _taken_from(watch: Watch) -> int | None:
    """Take the duplicate out of a watch; None if it has none. The caller holds the lock, and closes the duplicate: a
    number that was closed may be another connection's at once.
    """
    descriptor = None if watch.lent else watch.descriptor
    watch.descriptor, watch.lent = None, False
    return descriptor


def _shut_down(descriptor: int, *, close: bool) -> None:
    # The family plays no part here, and to ask for it fails where the peer is gone; so does the shutdown itself, which
    # never waits. The class of the interpreter: gevent's and eventlet's make the descriptor one of their loop's.
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, descriptor)
    with suppress(OSError):
        connection.shutdown(_socket.SHUT_RDWR)
    if close:
        connection.close()
    else:
        connection.detach()
