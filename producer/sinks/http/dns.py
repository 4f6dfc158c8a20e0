"""Name resolution with a time limit.

``getaddrinfo`` has no limit: a silent resolver holds its caller for half a minute, and a directory service that is
asked first may hold it forever. So it runs on a thread of its own. All callers that need the same name wait for the
same thread: a hanging resolver holds one thread for each name.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable
from time import monotonic

from ...runtime.clock import Latch
from ...runtime.forks import Stage, call_in_child

#: How often a caller checks whether its time is over, seconds: the end may be moved nearer.
_LOOK_AGAIN = 0.1
#: Seconds for which addresses that arrived too late for their callers are used by later callers. Without this, a
#: resolver that is slower than the limit would never help.
_KEPT = 60.0

_Place = tuple[str, int]


class _Lookup:
    """One call of the resolver.

    :ivar answered: set when it has returned.
    :ivar ended: when it returned, monotonic seconds.
    """

    def __init__(self, place: _Place) -> None:
        self._place = place
        self.answered, self.ended = Latch(), math.inf
        self._addresses: list[str] = []
        self._error: Exception | None = None

    def start(self) -> None:
        """Call the resolver on a thread; on this thread if none can be started, as at the exit of the interpreter."""
        try:
            threading.Thread(target=self._ask, name="producer-resolver", daemon=True).start()
        except RuntimeError:
            self._ask()

    def _ask(self) -> None:
        try:
            found = socket.getaddrinfo(*self._place, type=socket.SOCK_STREAM)
            self._addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
            if not self._addresses:  # gevent's resolvers and others that replace Python's
                raise socket.gaierror(socket.EAI_NONAME, "it has no addresses")
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            self._error = error.with_traceback(None)
        self.ended = monotonic()
        self.answered.set()

    def outcome(self) -> list[str]:
        """Return the addresses.

        :raises Exception: the error of the lookup, as a new object: each caller adds its own traceback.
        """
        if isinstance(self._error, socket.gaierror):
            words = f"failed to resolve {self._place[0]!r}: {self._error.strerror}"
            raise socket.gaierror(self._error.errno, words)
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        return list(self._addresses)


#: Lookups in progress, or whose addresses came too late for their callers. Each step is one operation of a dictionary.
_asked: dict[_Place, _Lookup] = {}


def addresses_of(host: str, port: int, left: Callable[[], float]) -> list[str]:
    """Return the addresses of a host, in the order in which to try them.

    :param left: returns the remaining time of the caller, seconds, or raises a TimeoutError.
    :raises TimeoutError: no answer in time.
    :raises OSError: the host has no addresses.
    :raises UnicodeError: no host can have this name.
    """
    for known, old in list(_asked.items()):
        if old.ended + _KEPT < monotonic():
            _asked.pop(known, None)
    place = host, port
    mine = _Lookup(place)
    lookup = _asked.setdefault(place, mine)
    if lookup is mine:
        lookup.start()
    try:
        while not lookup.answered.wait(min(_LOOK_AGAIN, left())):
            pass
    except TimeoutError as error:
        raise TimeoutError(f"the resolver has not answered for {host!r}") from error
    if _asked.get(place) is lookup:  # used once, since addresses change
        _asked.pop(place, None)
    return lookup.outcome()


call_in_child(_asked.clear, Stage.LOCKS)
