"""Intake: puts the events that a source received, and handles failures of the put.

An interceptor of the user may have a bug, or a service that it calls may be down. No event is dropped for that: a peer
that expects an answer is asked to send again, as while a channel is full, and any other peer waits. Datagrams cannot
wait, so those at hand are lost and counted. Events that no channel can ever take are refused permanently.
"""

from __future__ import annotations

from ...model.errors import ChannelError
from ...runtime.backoff import Backoff
from ...runtime.clock import Stop
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..config.options import words_of
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet, UnfitError
from ..recoveries import recoveries

_log = get_logger("loghub.agent.source")

#: Seconds between two checks for memory.
_CHECK_SECONDS = 0.02
#: Seconds between two attempts, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class NotTakenError(Exception):
    """Raised when events were not put; the peer should send them again."""


class NeverTakenError(NotTakenError):
    """Raised when no channel can ever take the events; the peer should not send them again."""


def short_of_memory(outlet: Outlet) -> bool:
    """Return True if the process has reached its memory limit: requests can be refused unread."""
    return bool(getattr(outlet, "short_of_memory", False))


class Intake:
    """Puts the events of peers; may be used by several threads at once."""

    def __init__(self, context: Context) -> None:
        self._name, self._counters = context.name, context.counters
        self._repeated, self._of_unfit = RateLimitedLog(context.clock), RateLimitedLog(context.clock)

    def put(self, outlet: Outlet, batch: EventBatch, timeout: float | None, peer: str, *, refuse: bool = True) -> None:
        """Put events; make one attempt.

        :param timeout: seconds to wait for room in a channel.
        :param peer: the sender, which sends the events again if this fails.
        :param refuse: False to drop unfit events, as in :meth:`~..interfaces.Outlet.put`.
        :raises NeverTakenError: no channel can ever take them.
        :raises NotTakenError: they were not put.
        """
        try:
            outlet.put(batch, timeout, refuse=refuse)
        except UnfitError as error:
            self._counters.add(EventReadFail=batch.count)
            more = self._of_unfit.due_error(error)
            if more is not None:
                _log.warning("source %s: %d events of %s are refused: %s%s", self._name, batch.count, peer, error, more)
            raise NeverTakenError(str(error)) from error
        except ChannelError as error:
            _log.info("source %s: asked %s to send %d events again: %s", self._name, peer, batch.count, error)
            raise NotTakenError("a channel is full") from error
        except Exception as error:
            self._log_failure(error, f"asked {peer} to send {batch.count} events again")
            raise NotTakenError("the events cannot be put now") from error
        self._log_recovery()

    def wait_for_memory(self, outlet: Outlet, stop: Stop) -> bool:
        """Wait while the process is at its memory limit, before bytes are read and made into objects.

        :returns: False if ``stop`` was set before.
        """
        while short_of_memory(outlet):
            if stop.wait(_CHECK_SECONDS):
                return False
        return True

    def put_until(self, outlet: Outlet, batch: EventBatch, stop: Stop) -> bool:
        """Put events; retry until it succeeds.

        :returns: False if ``stop`` was set before.
        """
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                done = outlet.put_until(batch, stop)
            except Exception as error:  # noqa: BLE001  # an interceptor may raise anything
                self._log_failure(error, f"{batch.count} events wait, and their sender with them")
            else:
                self._log_recovery()
                return done
            if stop.wait(backoff.next_pause()):
                return False

    def put_or_lose(self, outlet: Outlet, batch: EventBatch, stop: Stop) -> None:
        """Put events that cannot be sent again; make one attempt, since later events must not wait."""
        try:
            outlet.put_until(batch, stop)
        except Exception as error:  # noqa: BLE001  # as above
            self._counters.add(EventLostCount=batch.count)
            self._log_failure(error, f"{batch.count} events are lost")
        else:
            self._log_recovery()

    def _log_failure(self, error: Exception, outcome: str) -> None:
        """Log with traceback: an interceptor or its service failed."""
        self._counters.add(GenericProcessingFail=1)
        self._counters.last_error = f"{type(error).__name__}: {words_of(error)}"
        more = self._repeated.due_error(error)
        if more is not None:
            _log.error("source %s: %s: %s%s", self._name, outcome, self._counters.last_error, more, exc_info=error)

    def _log_recovery(self) -> None:
        if self._repeated.recovered():
            recoveries.info("source %s: events are accepted again", self._name)
