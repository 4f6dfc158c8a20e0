"""KnownStats: the statistics of a channel, which may be user code and fail to return them."""

from __future__ import annotations

import dataclasses

from ..model.errors import ChannelClosedError, ProducerError
from ..model.interfaces import Channel, ChannelStats
from ..runtime.clock import Clock
from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog

_log = get_logger("loghub.durable")


class KnownStats:
    """The newest known statistics of a channel: the current ones, or if the channel fails, the last ones.

    :param name: the producer's name, for the log.
    :raises ChannelError: the channel fails at the beginning already.
    :ivar recovered: the number of events in the channel at the beginning.
    """

    def __init__(self, channel: Channel, clock: Clock, name: str) -> None:
        self._channel, self._name = channel, name
        found = channel.stats()
        self.recovered = found.size
        # Events put so far: those in the channel before the first take, and those that came later.
        self._base = found.size - found.put_successes
        self._known = found
        self._last: ChannelStats | None = None
        self._errors = RateLimitedLog(clock)

    @property
    def ended(self) -> bool:
        """True if the statistics are final."""
        return self._last is not None

    def end(self) -> None:
        """Read the final statistics, before the channel is closed."""
        if self._last is None:
            self._last = dataclasses.replace(self.now(), open=False)

    def now(self) -> ChannelStats:
        """Return the newest statistics."""
        if self._last is not None:
            return self._last
        try:
            self._known = self._channel.stats()
        except ChannelClosedError:  # another owner closed the channel
            self._known = ChannelStats(name=self._channel.name, open=False)
        except Exception as error:  # the channel may be user code; a failure must not keep the producer from closing
            if type(error) is ProducerError:  # this call interrupted a call of the channel
                raise
            if self._errors.due(type(error).__name__, 1) is not None:
                _log.exception(
                    "%s: channel %s failed to return its statistics; using the last known ones",
                    self._name,
                    self._channel.name,
                )
        return self._known

    @property
    def put(self) -> int:
        """The number of events that were in the channel at the beginning or put later."""
        return self._base + self.now().put_successes

    @property
    def stored(self) -> int:
        """The number of events in the channel, including taken ones."""
        stats = self.now()
        return stats.size + stats.taken
