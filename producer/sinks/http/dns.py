"""Names of hosts, resolved within a limit.

``getaddrinfo`` knows none: a resolver that does not answer holds whoever asks for half a minute, and a directory
service before it for ever, beyond the reach of the watchdog, which can only shut down a socket. So a thread of its own
asks. All who want the same name wait for the same one: of a resolver that hangs there is one thread a name.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from time import monotonic

from urllib3.util.connection import allowed_gai_family

from ...runtime.forks import Stage, call_in_child

#: Who waits looks so often whether his time is over, for it may be cut short, seconds.
_LOOK_AGAIN = 0.1
#: How long addresses are kept that came when nobody waited for them any more, seconds: else a resolver that is slower
#: than a connection may be would be asked in vain again and again.
_KEPT = 60.0

_Place = tuple[str, int]


class _Question:
    """One that is asked of the resolver; its numbers are guarded by the lock.

    :ivar answered: set when it is.
    :ivar waiting: how many wait for that.
    :ivar good_until: how long the answer may be used by who comes later, monotonic seconds.
    """

    def __init__(self, place: _Place) -> None:
        self._place = place
        self.answered = threading.Event()
        self.waiting, self.good_until = 1, 0.0
        self._addresses: tuple[str, ...] = ()
        self._error: Exception | None = None

    def start(self) -> None:
        """Ask on a thread; on this one where none can be started, as at the interpreter's exit."""
        try:
            threading.Thread(target=self._ask, name="producer-resolver", daemon=True).start()
        except RuntimeError:
            self._ask()

    def _ask(self) -> None:
        try:
            found = socket.getaddrinfo(*self._place, allowed_gai_family(), socket.SOCK_STREAM)
            self._addresses = tuple(dict.fromkeys(str(place[0]) for *_, place in found))
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            self._error = error.with_traceback(None)
        with _lock:
            if self.waiting or not self._addresses:
                _asked.pop(self._place, None)
            else:
                self.good_until = monotonic() + _KEPT
        self.answered.set()

    def outcome(self) -> list[str]:
        """The addresses.

        :raises Exception: whatever there is instead, made anew: each of those who wait adds a trace of his own.
        """
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        return list(self._addresses)


_lock = threading.Lock()  # guards the next
_asked: dict[_Place, _Question] = {}


def addresses_of(host: str, port: int, left: Callable[[], float]) -> list[str]:
    """Those of a host, as they are to be tried.

    :param left: for how long anybody still waits, seconds.
    :raises TimeoutError: there was no answer in time.
    :raises OSError: there are none.
    :raises UnicodeError: no host can have this name.
    """
    question, is_new = _question((host, port))
    try:
        if is_new:
            question.start()
        while not question.answered.wait(min(_LOOK_AGAIN, max(0.0, left()))):
            if left() <= 0:
                raise TimeoutError(f"the resolver has not answered for {host!r}")
    finally:
        with _lock:
            question.waiting -= 1
    return question.outcome()


def _forget_old() -> None:
    for known, old in list(_asked.items()):
        if 0 < old.good_until < monotonic():
            del _asked[known]


def _question(place: _Place) -> tuple[_Question, bool]:
    """The question to wait for, and whether it has to be asked yet."""
    with _lock:
        _forget_old()
        question = _asked.get(place)
        if question is None:
            question = _asked[place] = _Question(place)
            return question, True
        if question.good_until:  # it is used once: addresses change
            del _asked[place]
        question.waiting += 1
        return question, False


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603  # a fork is process-wide
    _lock = threading.Lock()
    _asked.clear()


call_in_child(_after_fork_in_child, Stage.LOCKS)
