"""Intake: puts what a source was sent, and says what becomes of it where that fails.

An interceptor of the user's may have a mistake in it, or ask a service that is away. That is not the peer's fault, and
nothing is dropped for it: a peer that waits for an answer is told to send again, as while a channel is full; a peer
that gets none has to wait. Of datagrams, which cannot wait, those at hand are lost, and counted. What no channel will
ever take is refused, so that the peer does not send it again.
"""

from __future__ import annotations

from ...model.errors import ChannelError
from ...runtime.clock import Stop
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..config.options import words_of
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet, UnfitError
from ..recoveries import recoveries

_log = get_logger("loghub.agent.source")

#: Seconds between two looks for memory.
_LOOK = 0.02
#: Seconds between two tries, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class NotTakenError(Exception):
    """The events were not put, and are to be sent again."""


class NeverTakenError(NotTakenError):
    """The events were not put, and are not to be sent again: no channel will ever take them."""


def short_of_memory(outlet: Outlet) -> bool:
    """Whether the process has as much memory as it may: what is refused now need not even be read."""
    return bool(getattr(outlet, "short_of_memory", False))


class Intake:
    """Puts what peers send; by several threads at once."""

    def __init__(self, context: Context) -> None:
        self._name, self._counters = context.name, context.counters
        self._repeated, self._of_unfit = RateLimitedLog(context.clock), RateLimitedLog(context.clock)

    def put(self, outlet: Outlet, batch: EventBatch, timeout: float | None, peer: str, *, refuse: bool = True) -> None:
        """Put events, once.

        :param timeout: seconds to wait for room in a channel.
        :param peer: who sent them, and is to send them again if this fails.
        :param refuse: see :meth:`~..interfaces.Outlet.put`.
        :raises NeverTakenError: they can never be put.
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
            _log.info("source %s: %s is to send %d events again: %s", self._name, peer, batch.count, error)
            raise NotTakenError("no room") from error
        except Exception as error:
            self._tell(error, f"{peer} is to send {batch.count} events again")
            raise NotTakenError("it cannot be taken now") from error
        self._tell_end()

    def wait_for_memory(self, outlet: Outlet, stop: Stop) -> bool:
        """Wait while the process has as much memory as it may: what is not read is not made into objects either, by any
        of very many connections.

        :returns: False if ``stop`` came before.
        """
        while short_of_memory(outlet):
            if stop.wait(_LOOK):
                return False
        return True

    def put_until(self, outlet: Outlet, batch: EventBatch, stop: Stop) -> bool:
        """Put events, for as long as it takes.

        :returns: False if ``stop`` came before.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                done = outlet.put_until(batch, stop)
            except Exception as error:  # noqa: BLE001  # an interceptor of anybody's
                self._tell(error, f"{batch.count} events wait, and so does who sent them")
            else:
                self._tell_end()
                return done
            if stop.wait(pause):
                return False
            pause = min(2 * pause, _LONGEST_PAUSE)

    def put_or_lose(self, outlet: Outlet, batch: EventBatch, stop: Stop) -> None:
        """Put events that nobody can send again, once; those behind them are not to wait."""
        try:
            outlet.put_until(batch, stop)
        except Exception as error:  # noqa: BLE001  # as above
            self._counters.add(EventLostCount=batch.count)
            self._tell(error, f"{batch.count} events are lost")
        else:
            self._tell_end()

    def _tell(self, error: Exception, outcome: str) -> None:
        """With its trace: it is a mistake of somebody's."""
        self._counters.add(GenericProcessingFail=1)
        self._counters.last_error = f"{type(error).__name__}: {words_of(error)}"
        more = self._repeated.due_error(error)
        if more is not None:
            _log.error("source %s: %s: %s%s", self._name, outcome, self._counters.last_error, more, exc_info=error)

    def _tell_end(self) -> None:
        if self._repeated.recovered():
            recoveries.info("source %s: events are accepted again", self._name)
