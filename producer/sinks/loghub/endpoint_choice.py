"""EndpointChoice: which of a project's endpoints the next attempt uses.

The endpoints are in order of preference. An endpoint in an outage is left, probed, and returned to::

    in use ──outage──► left ──a good probe──► trusted less ──good probes in a row──► in use again
                        ▲                          │
                        └────────bad probe─────────┘

An outage is a failure of the connection or of the server (see :func:`is_outage`). A refusal is an answer. An endpoint
is left after three such failures one after another, or when they have lasted for ``patience``, without an answer in
between. Attempts that were in flight together count as one.

One probe is in flight at a time. The pause before a probe doubles with each bad one, and is drawn from its upper half,
so that the probes of many producers spread. To return takes several good probes in a row, and twice as many after each
relapse, so an endpoint that fails now and then is not used in turns with another.

If every endpoint was left, attempts stay at the last one, and the first endpoint with a good probe is used at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from ...model.errors import AttemptError, NetworkError, ServerError
from ...model.interfaces import EndpointStats
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...text.printable import one_line
from .classify import BAD_RESPONSE

_log = get_logger("loghub.endpoints")

#: Failures one after another after which an endpoint is left.
MOST_FAILURES = 3
#: The first and the longest pause before a probe, seconds.
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 60.0
#: Good probes in a row before the return to an endpoint: at first, and at most after relapses.
GOOD_PROBES, MOST_PROBES = 3, 96
#: An endpoint that is left within this time of its return has relapsed, seconds.
_RELAPSE = 600.0
_SHOWN = 200  # the maximum number of characters of a reason


def is_outage(error: AttemptError | None) -> bool:
    """Return True if another endpoint may work: no connection, no answer, or a failing server or gateway."""
    if isinstance(error, ServerError):
        return error.code == BAD_RESPONSE or (error.http_status or 0) >= 500
    return isinstance(error, NetworkError)


@dataclass(slots=True)
class _Endpoint:
    """One endpoint; guarded by the choice's lock.

    :ivar failures: its failures one after another since its last answer.
    :ivar failing_since: when the first of them began, monotonic seconds; infinite for none.
    :ivar failed_at: when the last of them ended, monotonic seconds.
    :ivar reason: why it was left; empty while it is trusted.
    :ivar good: good probes in a row.
    :ivar needed: good probes in a row before the return.
    :ivar pause: the pause before the next probe, seconds.
    :ivar probe_at: when the next probe is due, monotonic seconds; infinite for never.
    :ivar returned_at: when it was last returned to, monotonic seconds.
    """

    url: str
    failures: int = 0
    failing_since: float = math.inf
    failed_at: float = -math.inf
    reason: str = ""
    good: int = 0
    needed: int = GOOD_PROBES
    pause: float = FIRST_PAUSE
    probe_at: float = math.inf
    returned_at: float = -math.inf


#: Writes a log line after the lock is released; None for no line.
_Line = Callable[[], None] | None


class EndpointChoice:
    """The choice of one project. It has no clock: methods get ``now`` in monotonic seconds. Thread-safe.

    :param project: the project, for log lines.
    :param urls: its endpoints, the preferred first.
    :param patience: how long an endpoint may fail or be silent before it is left, seconds.
    :param others: those of them that lead to another project.
    :param uniform: draws a number between two others.
    :ivar current: the index of the endpoint in use.
    """

    def __init__(
        self,
        project: str,
        urls: Sequence[str],
        patience: float,
        uniform: Callable[[float, float], float] = random.uniform,
        others: Collection[str] = (),
    ) -> None:
        self._project, self._patience, self._uniform, self._others = project, patience, uniform, others
        self._lock = Lock()  # guards everything below
        self._endpoints = [_Endpoint(url) for url in urls]
        self._probing = False
        self._changes = 0
        self.current = 0

    @property
    def limit(self) -> float:
        """The longest silence of an attempt, seconds; infinite if no other endpoint is trusted."""
        others = (each for index, each in enumerate(self._endpoints) if index != self.current)
        return self._patience if any(not each.reason for each in others) else math.inf

    @property
    def header(self) -> str:
        """The endpoint in use and the reason, for a header; empty for the first endpoint."""
        stats = self.stats()
        text = one_line(f"{stats.endpoint}; {stats.reason}") if stats.reason else ""
        return text.encode("ascii", "replace").decode()

    def answered(self, index: int) -> None:
        """Note an answer to an attempt."""
        endpoint = self._endpoints[index]
        if not endpoint.failures:
            return
        with self._lock:
            endpoint.failures, endpoint.failing_since = 0, math.inf
            is_back = index == self.current and bool(endpoint.reason)
            if is_back:
                self._trust(endpoint)
        if is_back:
            _log.info("%s: %s answers again", self._project, endpoint.url)

    def failed(self, index: int, error: AttemptError, began: float, now: float) -> bool:
        """Note an attempt that failed by an outage.

        :param began: when the attempt began, monotonic seconds.
        :returns: True if the next attempt uses another endpoint.
        """
        endpoint, line = self._endpoints[index], None
        with self._lock:
            if began >= endpoint.failed_at:
                endpoint.failures, endpoint.failed_at = endpoint.failures + 1, now
            endpoint.failing_since = min(endpoint.failing_since, began)
            # A timeout may fire slightly early.
            is_over = now - endpoint.failing_since >= 0.9 * self._patience
            if not endpoint.reason and (is_over or endpoint.failures >= MOST_FAILURES):
                line = self._leave(endpoint, error, now)
            has_changed = index != self.current
        if line is not None:
            line()
        return has_changed

    def _leave(self, endpoint: _Endpoint, error: AttemptError, now: float) -> _Line:
        has_relapsed = now - endpoint.returned_at < _RELAPSE
        endpoint.needed = min(2 * endpoint.needed, MOST_PROBES) if has_relapsed else GOOD_PROBES
        endpoint.reason, endpoint.good, endpoint.pause = str(error)[:_SHOWN], 0, FIRST_PAUSE
        self._plan_probe(endpoint, now)
        if endpoint is not self._endpoints[self.current]:
            return None
        trusted = [index for index, each in enumerate(self._endpoints) if not each.reason]
        if trusted:
            self._use(trusted[0])
            words = "%s: left %s (%s); using %s"
            if self._url in self._others:
                words += ", another project: a batch may be stored in both"
            return partial(_log.warning, words, self._project, endpoint.url, error, self._url)
        words = "%s: no endpoint answers; staying at %s (%s)"
        return partial(_log.warning, words, self._project, endpoint.url, error)

    @property
    def _url(self) -> str:
        return self._endpoints[self.current].url

    def _use(self, index: int) -> None:
        self.current = index
        self._changes += 1

    @staticmethod
    def _trust(endpoint: _Endpoint) -> None:
        endpoint.reason, endpoint.failures, endpoint.failing_since, endpoint.probe_at = "", 0, math.inf, math.inf

    def _plan_probe(self, endpoint: _Endpoint, now: float) -> None:
        endpoint.probe_at = now + self._uniform(endpoint.pause / 2, endpoint.pause)

    def take_probe(self, now: float) -> int | None:
        """Return the index of an endpoint to probe; None if no probe is due or one is in flight.

        :meth:`probed` must follow. The endpoint in use needs no probe.
        """
        if all(each.probe_at > now for each in self._endpoints):
            return None
        with self._lock:
            due = None if self._probing else self._first_due(now)
            self._probing = self._probing or due is not None
            return due

    def _first_due(self, now: float) -> int | None:
        due = [index for index, each in enumerate(self._endpoints) if each.probe_at <= now and index != self.current]
        return min(due, key=lambda index: self._endpoints[index].probe_at, default=None)

    def probed(self, index: int, error: AttemptError | None, now: float) -> None:
        """Note the outcome of a probe.

        :param error: the error of the probe; None for an answer.
        """
        with self._lock:
            self._probing = False
            line = self._note_probe(index, error, now)
        if line is not None:
            line()

    def _note_probe(self, index: int, error: AttemptError | None, now: float) -> _Line:
        endpoint = self._endpoints[index]
        if is_outage(error):
            endpoint.good, endpoint.reason = 0, str(error)[:_SHOWN]
            endpoint.pause = min(2 * endpoint.pause, LONGEST_PAUSE)
            self._plan_probe(endpoint, now)
            return None
        endpoint.good += 1
        is_needed = bool(self._endpoints[self.current].reason)
        if endpoint.good >= endpoint.needed or is_needed:
            return self._return_to(index, now, is_needed=is_needed)
        self._plan_probe(endpoint, now)
        return None

    def _return_to(self, index: int, now: float, *, is_needed: bool) -> _Line:
        endpoint = self._endpoints[index]
        self._trust(endpoint)
        endpoint.returned_at = now
        if index >= self.current and not is_needed:
            return None
        left = self._url
        self._use(index)
        words = "%s: %s answers probes again (%d in a row); using it instead of %s"
        return partial(_log.info, words, self._project, endpoint.url, endpoint.good, left)

    def stats(self) -> EndpointStats:
        """Return the endpoint in use, and why."""
        with self._lock:
            return self._stats()

    def _stats(self) -> EndpointStats:
        left = [each for each in self._endpoints[: self.current + 1] if each.reason]
        return EndpointStats(
            project=self._project,
            endpoint=self._url,
            reason="; ".join(f"left {each.url} ({each.reason})" for each in left),
            endpoints=tuple(each.url for each in self._endpoints),
            left=tuple(each.url for each in self._endpoints if each.reason),
            changes=self._changes,
        )
