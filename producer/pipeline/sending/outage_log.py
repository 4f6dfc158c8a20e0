"""OutageLog: what fails and is tried again, in the log: at once, then ever more rarely, and when it is over.

A batch in memory may be tried for minutes before it fails, and one behind a channel for ever; whoever operates the
program hears of it at once. A line is about a place (a destination, or one logstore of it), however many batches wait
for it::

    quiet ──failure──► WARNING ──failures──► WARNING after 5, 10, 20, 40, 60, 60 … seconds
      ▲                   │
      └─── acceptance: INFO, how long it took

A place that fails and works in turns is thinned likewise: only one that failed for as long as the lines were apart, or
worked for a minute, is said anew at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from ...model.errors import AttemptError
from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...text.plural import counted

_log = get_logger("loghub.send_task")

#: Between the first two lines about a place, and between any two at most, seconds.
FIRST_INTERVAL, LONGEST_INTERVAL = 5.0, 60.0
_MOST_PLACES = 1000


class _Trouble:
    """What is known of a place that failed; guarded by the log's lock.

    :ivar since: when it began to fail, monotonic seconds; None if it works again.
    :ivar ended: when it worked again, likewise.
    :ivar due: when the next line may be written, likewise.
    :ivar failures: since it began.
    :ivar silent: since the last line.
    :ivar said: whether a line was written since it began.
    """

    __slots__ = ("due", "ended", "failures", "interval", "said", "silent", "since")

    def __init__(self, now: float) -> None:
        self.since: float | None = None
        self.ended = self.due = now
        self.interval = FIRST_INTERVAL
        self.failures = self.silent = 0
        self.said = False


class OutageLog:
    """See the module. Its methods may be called from any thread.

    :ivar any: whether :meth:`accepted` has to be told of acceptances: looked at for each, so that a producer whose
        destinations all work pays nothing else.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards _places, and what is in it
        self._places: OrderedDict[str, _Trouble] = OrderedDict()
        self.any = False

    def failed(self, place: str, error: AttemptError, *, attempt: int, delay: float) -> None:
        """An attempt failed, and there will be another one.

        :param place: its name.
        :param attempt: its number, of its batch.
        :param delay: until the next attempt, seconds.
        """
        now = self._clock.monotonic()
        with self._lock:
            silent = self._note(self._trouble(place, now), now)
        if silent is None:
            return
        _log.warning(
            "%s: attempt %d failed: %s%s; the next one is in %.3g s%s",
            place,
            attempt,
            error,
            f" (request id {error.request_id})" if error.request_id else "",
            delay,
            f"; {silent} more failed since the last such line" if silent else "",
        )

    def _trouble(self, place: str, now: float) -> _Trouble:
        trouble = self._places.get(place)
        if trouble is None:
            trouble = self._places[place] = _Trouble(now)
            if len(self._places) > _MOST_PLACES:
                self._places.popitem(last=False)
            self.any = True
        return trouble

    @staticmethod
    def _note(trouble: _Trouble, now: float) -> int | None:
        """Count a failure; how many went by silently before, if a line is due, else None."""
        if trouble.since is None:
            if now - trouble.ended >= LONGEST_INTERVAL:
                trouble.due, trouble.interval = now, FIRST_INTERVAL
            trouble.since, trouble.failures, trouble.said = now, 0, False
        trouble.failures += 1
        if now < trouble.due:
            trouble.silent += 1
            return None
        silent, trouble.silent = trouble.silent, 0
        trouble.said, trouble.due = True, now + trouble.interval
        trouble.interval = min(trouble.interval * 2, LONGEST_INTERVAL)
        return silent

    def accepted(self, place: str) -> None:
        """A request was accepted there."""
        now = self._clock.monotonic()
        with self._lock:
            trouble = self._places.get(place)
            if trouble is None or trouble.since is None:
                return
            seconds, said, failures = now - trouble.since, trouble.said, trouble.failures
            trouble.since, trouble.ended = None, now
            if seconds >= trouble.interval:
                trouble.due, trouble.interval = now, FIRST_INTERVAL
        if said:
            attempts = counted(failures, "failed attempt")
            _log.info("%s: works again, after %.1f s and %s", place, seconds, attempts)
