"""OutageLog: logs failed attempts that are retried: at once, then ever more rarely, and when they succeed again.

A batch may be retried for minutes before it fails, and with a durable channel forever, so an operator needs a line at
once. A line is about a place (a destination, or one of its logstores), regardless of the number of batches that wait
for it::

    quiet ──failure──► WARNING ──failures──► WARNING after 5, 10, 20, 40, 60, 60 … seconds
      ▲                   │
      └─── acceptance: INFO, how long it took

A place that alternates between failing and working is rate-limited in the same way. Only after a failure as long as the
current interval, or after it worked for a minute, is the next failure logged at once.
"""

from __future__ import annotations

from collections import OrderedDict

from ...model.errors import AttemptError
from ...runtime.clock import Clock
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...text.plural import counted

_log = get_logger("loghub.send_task")

#: The interval between the first two lines about a place, and the longest interval, seconds.
FIRST_INTERVAL, LONGEST_INTERVAL = 5.0, 60.0
_MOST_PLACES = 1000


class _Trouble:
    """The failures of one place; guarded by the log's lock.

    :ivar since: when it began to fail, monotonic seconds; None if it works again.
    :ivar ended: when it last worked again, monotonic seconds.
    :ivar due: when the next line may be written, monotonic seconds.
    :ivar failures: the number of failures since it began to fail.
    :ivar silent: the number of failures since the last line, also of a line about an earlier outage.
    """

    __slots__ = ("due", "ended", "failures", "interval", "silent", "since")

    def __init__(self, now: float) -> None:
        self.since: float | None = None
        self.ended = self.due = now
        self.interval = FIRST_INTERVAL
        self.failures = self.silent = 0


class OutageLog:
    """The log of failing places. All methods are thread-safe.

    :ivar any: False if no place fails. It is read at each acceptance, which then costs nothing more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()  # guards _places and its contents
        self._places: OrderedDict[str, _Trouble] = OrderedDict()
        self.any = False

    def failed(self, place: str, error: AttemptError, *, attempt: int, delay: float) -> None:
        """Log, if a line is due, that an attempt failed and will be repeated.

        :param place: the name of the place.
        :param attempt: the number of the attempt for its batch.
        :param delay: seconds until the next attempt.
        """
        now = self._clock.monotonic()
        with self._lock:
            silent = self._note(self._trouble(place, now), now)
        if silent is None:
            return
        _log.warning(
            "%s: attempt %d failed: %s%s; next attempt in %.3g s%s",
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
        """Count a failure; if a line is due, return how many were not logged before it, else None."""
        if trouble.since is None:
            if now - trouble.ended >= LONGEST_INTERVAL:
                trouble.due, trouble.interval = now, FIRST_INTERVAL
            trouble.since, trouble.failures = now, 0
        trouble.failures += 1
        if now < trouble.due:
            trouble.silent += 1
            return None
        silent, trouble.silent = trouble.silent, 0
        trouble.due = now + trouble.interval
        trouble.interval = min(trouble.interval * 2, LONGEST_INTERVAL)
        return silent

    def accepted(self, place: str) -> None:
        """Log that a place works again, if its failure was logged."""
        now = self._clock.monotonic()
        with self._lock:
            trouble = self._places.get(place)
            if trouble is None or trouble.since is None:
                return
            seconds, failures = now - trouble.since, trouble.failures
            logged = failures > trouble.silent  # a line was written since it began to fail
            trouble.since, trouble.ended = None, now
            if seconds >= trouble.interval:
                trouble.due, trouble.interval = now, FIRST_INTERVAL
        if logged:
            attempts = counted(failures, "failed attempt")
            _log.info("%s: works again, after %.1f s and %s", place, seconds, attempts)
