"""KnownStats: what a channel says of itself; a channel is somebody else's class, and may fail to say."""

from __future__ import annotations

import dataclasses

from ..model.errors import ChannelClosedError, ProducerError
from ..model.interfaces import Channel, ChannelStats
from ..runtime.clock import Clock
from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog

_log = get_logger("loghub.durable")


class KnownStats:
    """The newest statistics of a channel that anybody has: those of now, or if it cannot tell them, those of before.

    :param name: the producer's, for the log.
    :raises ChannelError: it cannot even tell them at the beginning.
    :ivar recovered: events that were in it at the beginning.
    """

    def __init__(self, channel: Channel, clock: Clock, name: str) -> None:
        self._channel, self._name = channel, name
        found = channel.stats()
        self.recovered = found.size
        # What was in the channel before the first take, and what came since, is what has been put in all.
        self._base = found.size - found.put_successes
        self._known = found
        self._last: ChannelStats | None = None
        self._errors = RateLimitedLog(clock)

    @property
    def ended(self) -> bool:
        """Whether they change no more."""
        return self._last is not None

    def end(self) -> None:
        """The channel is about to be closed: what it says now is the last."""
        if self._last is None:
            self._last = dataclasses.replace(self.now(), open=False)

    def now(self) -> ChannelStats:
        """All of them."""
        if self._last is not None:
            return self._last
        try:
            self._known = self._channel.stats()
        except ChannelClosedError:  # somebody closed it under the producer
            self._known = ChannelStats(name=self._channel.name, open=False)
        except Exception as error:  # a channel is somebody else's class; without it nothing would close
            if type(error) is ProducerError:  # this call has interrupted one of the channel
                raise
            if self._errors.due(type(error).__name__, 1) is not None:
                _log.exception("%s: channel %s does not say what it holds", self._name, self._channel.name)
        return self._known

    @property
    def put(self) -> int:
        """Events that are, or were, in the channel since this producer has it."""
        return self._base + self.now().put_successes

    @property
    def stored(self) -> int:
        """Events in the channel, taken ones included."""
        stats = self.now()
        return stats.size + stats.taken
