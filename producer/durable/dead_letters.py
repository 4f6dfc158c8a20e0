"""DeadLetters: the channel for undeliverable records, with the reason in the headers.

These headers are added to those that name the stream: ``error_code``, ``error_message``, ``request_id``, ``attempts``
(their number) and ``failed_at`` (ISO 8601, UTC). The body is unchanged, so a producer on the dead letter channel
delivers the records once the reason is gone.

The server's message about a record is kept word for word. Of messages about credentials, and of this side's messages
about a connection, only the beginning is kept: the rest may name a key or an endpoint, which must not go to disk. The
log has the whole message.
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

#: The maximum number of events of one transaction; fewer if the channel's transactions hold fewer.
_EVENTS = 256
#: Codes of responses that are about credentials, or are not from LogHub.
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
#: The one code of this side whose message names only the record's own project.
_OPEN = "ProjectConfigNotExist"


def _message_of(result: Result) -> str:
    last = result.attempts[-1] if result.attempts else Attempt(success=False)
    from_server = last.http_status is not None and last.error_code not in _WITHHELD
    if from_server or last.error_code == _OPEN:
        return last.error_message
    return last.error_message.partition(": ")[0] if ": " in last.error_message else "see the log"


class DeadLetters:
    """Stores undeliverable records in a channel, with the reason; used by one thread.

    :ivar channel: the dead letter channel.
    :ivar stored: the number of stored records.
    """

    def __init__(self, channel: Channel, clock: Clock, name: str) -> None:
        self.channel = channel
        self.stored = 0
        self._clock = clock
        self._name = name
        self._refusals = RateLimitedLog(clock)
        self._full = False

    def reason_of(self, result: Result) -> dict[str, str]:
        """Return the headers that say why a record could not be delivered."""
        return self._headers(result.error_code, _message_of(result), result.request_id, result.attempt_count)

    def reason_unreadable(self, message: str) -> dict[str, str]:
        """Return the headers of an event that holds no record."""
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
        """Put and commit ``events``, in order; return how many of them, from the first on, are stored.

        A channel that was full is not waited for again until it accepts events. The calling thread also acknowledges
        delivered events and returns the memory of failed ones.
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
            except Exception as error:  # noqa: BLE001  # a channel may be user code; any error is a refusal
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
                "%s: the dead letter channel refused %s in the channel for the next producer on it: %s: %s%s",
                self._name,
                counted(events, "event, which is kept", "events, which are kept"),
                type(error).__name__,
                error,
                f"; {silent} more refused since the last such line" if silent else "",
            )
