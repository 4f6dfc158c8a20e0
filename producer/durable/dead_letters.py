"""DeadLetters: the channel for what cannot be delivered, with the reason in the headers.

To the headers that name the stream these are added: ``error_code``, ``error_message``, ``request_id``, ``attempts``
(how many were made) and ``failed_at`` (ISO 8601, UTC). The body stays as it was, so that a producer on the dead letter
channel delivers them, once the reason is gone.

What the server says of the record is kept word for word. Of what it says of credentials, and of what this side says of
a connection, only the beginning is, since the rest may name a key or an endpoint, which do not go to disk; the log has
the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ..model.errors import ChannelFullError, TransactionFullError
from ..model.interfaces import Channel, Event
from ..model.results import Attempt, Result
from ..runtime.clock import Clock
from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog
from ..text.plural import counted

_log = get_logger("loghub.dead_letters")

#: Events of one transaction, at most; fewer if the channel's transactions hold no more.
_EVENTS = 256
#: Codes of answers that are about credentials, or no LogHub's answers at all.
_WITHHELD = frozenset(
    {
        "BadResponse",
        "InvalidAccessKeyId",
        "InvalidSecurityToken",
        "MissAccessKeyId",
        "ProxyAuthenticationRequired",
        "SecurityTokenExpired",
        "SignatureNotMatch",
        "Unauthorized",
    }
)
#: The code of this side whose message names nothing but the record's own project.
_OPEN = "ProjectConfigNotExist"


def _message_of(result: Result) -> str:
    last = result.attempts[-1] if result.attempts else Attempt(success=False)
    from_server = last.http_status is not None and last.error_code not in _WITHHELD
    if from_server or last.error_code == _OPEN:
        return last.error_message
    return last.error_message.partition(": ")[0] if ": " in last.error_message else "see the log"


class DeadLetters:
    """Puts what cannot be delivered into a channel of its own, with the reason. Used by one thread.

    :ivar channel: where they go.
    :ivar stored: how many went there.
    """

    def __init__(self, channel: Channel, clock: Clock, name: str) -> None:
        self.channel = channel
        self.stored = 0
        self._clock = clock
        self._name = name
        self._refusals = RateLimitedLog(clock)
        self._full = False

    def reason_of(self, result: Result) -> dict[str, str]:
        """The headers that say why a record could not be delivered."""
        return self._headers(result.error_code, _message_of(result), result.request_id, result.attempt_count)

    def reason_unreadable(self, message: str) -> dict[str, str]:
        """The headers of an event that holds no record."""
        return self._headers("UnreadableEvent", message, "", 0)

    def _headers(self, code: str, message: str, request_id: str, attempts: int) -> dict[str, str]:
        return {
            "error_code": code,
            "error_message": message,
            "request_id": request_id,
            "attempts": str(attempts),
            "failed_at": datetime.fromtimestamp(self._clock.time(), UTC).isoformat(timespec="milliseconds"),
        }

    def store(self, events: Sequence[Event]) -> int:
        """Put and commit ``events``, in order; how many of them, from the first on, are stored.

        A channel that was full is not waited for again until it takes some: whoever calls acknowledges what was
        delivered as well, and gives back the memory of what was not.
        """
        done, step = 0, _EVENTS
        while done < len(events):
            part = events[done : done + step]
            try:
                with self.channel.transaction() as transaction:
                    transaction.put_many(part)
                    if self._full:
                        transaction.commit(0)
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
            self._full = False
        self.stored += done
        return done

    def _refused(self, error: Exception, events: int) -> None:
        self._full = isinstance(error, ChannelFullError)
        silent = self._refusals.due(type(error).__name__, events)
        if silent is not None:
            _log.error(
                "%s: the dead letter channel refused %s in the channel and tried again by the next producer on it: "
                "%s: %s%s",
                self._name,
                counted(events, "event, which is kept", "events, which are kept"),
                type(error).__name__,
                error,
                f"; {silent} more likewise since the last such line" if silent else "",
            )
