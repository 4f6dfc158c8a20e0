"""DeadLetters: the channel for what cannot be delivered, with the reason in the headers.

To the headers that name the stream these are added: ``error_code``, ``error_message``, ``request_id``, ``attempts``
(how many were made) and ``failed_at`` (ISO 8601, UTC). The body stays as it was, so that a producer on the dead letter
channel delivers them, once the reason is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from ..clock import Clock
from ..errors import TransactionFullError
from ..interfaces import Channel, Event
from ..results import Result
from .thinned_log import ThinnedLog

_log = logging.getLogger("producer.dead_letters")

#: Events of one transaction, at most; fewer if the channel's transactions hold no more.
_EVENTS = 256


class DeadLetters:
    """See the module. Used by one thread.

    :ivar channel: where they go.
    :ivar stored: how many went there.
    """

    def __init__(self, channel: Channel, clock: Clock, name: str) -> None:
        self.channel = channel
        self.stored = 0
        self._clock = clock
        self._name = name
        self._refusals = ThinnedLog(clock)

    def reason(self, code: str, message: str, result: Result | None = None) -> dict[str, str]:
        """The headers that say why."""
        return {
            "error_code": code,
            "error_message": message,
            "request_id": result.request_id if result is not None else "",
            "attempts": str(result.attempt_count if result is not None else 0),
            "failed_at": datetime.fromtimestamp(self._clock.time(), UTC).isoformat(timespec="milliseconds"),
        }

    def store(self, events: Sequence[Event]) -> int:
        """Put and commit ``events``, in order; how many of them, from the first on, are stored."""
        done, step = 0, _EVENTS
        while done < len(events):
            part = events[done : done + step]
            try:
                with self.channel.transaction() as transaction:
                    transaction.put_many(part)
            except TransactionFullError as error:
                if len(part) > 1:
                    step = max(1, min(error.capacity, len(part) // 2))
                    continue
                self._refused(error, len(events) - done)
                break
            except Exception as error:  # noqa: BLE001  # a channel is somebody else's class: what it raises is a refusal
                self._refused(error, len(events) - done)
                break
            done += len(part)
        self.stored += done
        return done

    def _refused(self, error: Exception, events: int) -> None:
        silent = self._refusals.due(type(error).__name__, events)
        if silent is not None:
            _log.error(
                "%s: the dead letter channel refused %d events, which stay in the channel and are tried again by the "
                "next producer on it: %s: %s%s",
                self._name,
                events,
                type(error).__name__,
                error,
                f"; {silent} more likewise since the last such line" if silent else "",
            )
