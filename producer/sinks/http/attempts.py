"""Attempts: the time limit of a request, and how much of the request was sent.

Each call of a socket may wait for the rest of its attempt's time and no longer. So a server that drips its response,
repeats ``100 Continue`` or takes the body a byte at a time is cut off by the call in which the time runs out. No thread
watches. Only when the end is moved nearer while calls are waiting, as by ``close``, a thread shuts their sockets down
at that moment. The calls then end with an error, below TLS and behind any proxy.
"""

from __future__ import annotations

import _socket
import enum
import math
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ...runtime.clock import Clock, Deadline, WaitingRoom
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger

_log = get_logger("loghub.http")

#: The longest timeout that every kernel accepts, seconds.
_LONGEST_WAIT = 1e6


class Sent(enum.Enum):
    """How much of a request was passed to the socket."""

    #: No byte; the bytes that open the way through a proxy do not count.
    NOTHING = "nothing"
    #: A part: the server cannot act on it, since a request announces its length.
    PART = "part"
    #: All of it: without a response, the server may have carried it out.
    WHOLE = "whole"


class Attempt:
    """One request in flight, within a ``with`` block.

    :ivar sent: how much of the request was sent.
    :ivar cut: True if another thread has shut its socket down.
    """

    __slots__ = ("_attempts", "_sock", "cut", "end", "sent")

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._sock: Any = None
        self.end = math.inf
        self.cut = False
        self.sent = Sent.NOTHING

    def __enter__(self) -> Self:
        self._attempts.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attempts.end(self)

    @property
    def is_over(self) -> bool:
        """True if its time is over."""
        return self.cut or self._attempts.now() >= self.end

    @property
    def has_connection(self) -> bool:
        """True if it has a socket."""
        return self._sock is not None

    def now(self) -> float:
        """Return the time, monotonic seconds."""
        return self._attempts.now()

    def left(self) -> float:
        """Return the remaining time of the attempt, seconds.

        :raises TimeoutError: no time remains.
        """
        left = self.end - self._attempts.now()
        if left <= 0:
            raise TimeoutError("timed out")
        return min(left, _LONGEST_WAIT)

    def hold(self, sock: Any) -> None:
        """Register the socket that the attempt waits on.

        :raises TimeoutError: the attempt was cut.
        """
        with self._attempts.lock:
            self._sock = sock
        if self.cut:
            raise TimeoutError("timed out")

    def close(self) -> None:
        """Close the socket. No other thread can reach it by then: the descriptor may soon belong to another socket."""
        with self._attempts.lock:
            sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def guard(self) -> None:
        """Have a thread shut the socket down at the end of the attempt. For code whose calls wait several times, each
        time for up to the whole timeout.
        """
        attempts = self._attempts
        attempts.at(Deadline(self.end), lambda: not attempts.is_running(self), attempts.cut_overdue)

    def cut_off(self) -> None:
        """Shut the socket down; the caller holds the lock."""
        self.cut = True
        if self._sock is None or (descriptor := self._sock.fileno()) < 0:
            return
        # The interpreter's class is used: the sockets of gevent and eventlet register the descriptor with their loop.
        # The family is irrelevant to a shutdown, which never waits, and fails if the peer is gone.
        below = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, descriptor)
        with suppress(OSError):
            below.shutdown(_socket.SHUT_RDWR)
        below.detach()


class Attempts:
    """The attempts of a transport.

    :param limit: the longest time of an attempt, seconds.
    :param thread_name: the name of the threads that act at a deadline.
    """

    def __init__(self, limit: float, clock: Clock, thread_name: str) -> None:
        self._limit, self._clock, self._thread_name = limit, clock, thread_name
        self.now = clock.monotonic
        self._room = WaitingRoom(clock)
        self.lock = Lock()  # guards everything below, and the sockets of the attempts
        self._running: set[Attempt] = set()
        self._end = math.inf  # the end of all attempts, monotonic seconds

    def begin(self, attempt: Attempt) -> None:
        """Add an attempt, whose time begins now."""
        with self.lock:
            attempt.end = min(self.now() + self._limit, self._end)
            self._running.add(attempt)

    def end(self, attempt: Attempt) -> None:
        """Remove an attempt; its socket can no longer be shut down."""
        with self.lock:
            self._running.discard(attempt)
        if self._room:
            self._room.wake_all()

    def hurry(self, end: Deadline) -> None:
        """End all attempts by the deadline, current and later ones."""
        with self.lock:
            self._end = math.inf if end.at is None else end.at
            for attempt in self._running:
                attempt.end = min(attempt.end, self._end)
            is_busy = bool(self._running)
        if is_busy and end.at is not None:
            self.at(end, lambda: not self._running, self.cut_overdue)

    def cut_overdue(self) -> None:
        """Shut down the sockets of the attempts whose time is over."""
        with self.lock:
            for attempt in filter(self._is_overdue, self._running):
                attempt.cut_off()

    def _is_overdue(self, attempt: Attempt) -> bool:
        return attempt.end <= self.now()

    def at(self, deadline: Deadline, is_needless: Callable[[], bool], act: Callable[[], None]) -> None:
        """Call ``act`` on a thread at the deadline, unless the end of an attempt has made it unnecessary."""

        def wait() -> None:
            if not self._room.wait_until(is_needless, deadline):
                act()

        try:
            threading.Thread(target=wait, name=self._thread_name, daemon=True).start()
        except RuntimeError as error:  # the interpreter is exiting, or there are too many threads
            _log.debug("%s: cannot start (%s): attempts end by their own limits", self._thread_name, error)

    def is_running(self, attempt: Attempt) -> bool:
        """Return True if an attempt has not ended."""
        return attempt in self._running


def is_monkey_patched() -> bool:
    """Return True if gevent or eventlet has replaced sockets; each wait of their TLS has the whole timeout."""
    return socket.socket.__module__ != "socket"
