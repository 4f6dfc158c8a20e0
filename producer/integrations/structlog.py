"""structlog: a final processor, and a logger factory, that send events to LogHub.

::

    sender = LogHubProcessor(producer, "my-project", "app-log")
    processors = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, sender]
    structlog.configure(processors=processors, logger_factory=sender.logger_factory())

An event's keys become fields as they are; ``event`` becomes ``message``; levels and exceptions have the fields that all
integrations give them.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any, Unpack

try:
    import structlog
except ModuleNotFoundError as error:
    from ..text.extras import missing

    raise missing(error, "structlog") from error

from ..client.producer import Producer
from ..model.records import LogItem
from .exceptions import exception_fields
from .feedback import feeds_back
from .outlet import HasOutlet, OnFull, OutletOptions
from .severity import number_of_name, severity_text
from .values import text_or_repr

__all__ = ["LogHubProcessor"]

_TRACEBACK = "Traceback (most recent call last):"
#: What structlog's formatter of records of ``logging`` adds for itself.
_BOOKKEEPING = ("_record", "_from_structlog")


class LogHubProcessor(HasOutlet):
    """Sends each event that comes to it, with the time of that moment, and drops it or hands it on.

    ``event`` becomes the field ``message``; ``level`` (or the name of the method) ``severity_text``, in upper case, and
    ``severity_number``; ``exc_info``, or the ``exception`` that ``format_exc_info`` and ``dict_tracebacks`` make of it,
    ``exception.type``, ``exception.message`` and ``exception.stacktrace``; ``timestamp`` is left out where it is a
    number, which becomes the time. All other keys are fields. What cannot be sent as it is, is sent as its ``repr``.

    :param producer: as of :class:`~producer.integrations.outlet.Outlet`, as are the others.
    :param pass_on: whether the processors after it, such as a renderer for the console, get the event; if it is the
        last one, it is dropped.
    :raises ConfigError: a wrong option.
    """

    def __init__(
        self,
        producer: Producer | None = None,
        project: str | None = None,
        logstore: str | None = None,
        *,
        on_full: OnFull = "drop",
        pass_on: bool = False,
        **options: Unpack[OutletOptions],
    ) -> None:
        self._outlet = self._open_outlet(producer, project, logstore, on_full=on_full, **options)
        self._pass_on = pass_on

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Send the event, unless a producer has caused it: a record of ``logging`` that structlog's formatter brings
        here from the producer itself, or from its HTTP library on its threads, would cause the next one.

        :raises structlog.DropEvent: it is not to go on.
        """
        name, thread = _origin(logger, event)
        if not feeds_back(name, thread):
            self.send(method, event)
        if self._pass_on:
            return event
        raise structlog.DropEvent

    def send(self, method: str, event: MutableMapping[str, Any] | str) -> None:
        """Send an event that was made by that method; never raises."""
        try:
            self._outlet.send(_log_of(method, event))
        except Exception as error:  # noqa: BLE001  # nothing is raised into the code that logs
            self._outlet.drop(error)

    def logger_factory(self) -> LogHubLoggerFactory:
        """What ``structlog.configure(logger_factory=…)`` takes, where the last processor renders text: it sends what
        the last processor returned, as ``message``; and with this processor among them, nothing.
        """
        return LogHubLoggerFactory(self)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until what was sent is delivered or has failed.

        :param timeout: seconds; None is ``flush_timeout``.
        """
        self._outlet.flush(timeout)

    def close(self) -> None:
        """Close the producer, if it was made here."""
        self._outlet.close()


def _log_of(method: str, event: MutableMapping[str, Any] | str) -> LogItem:
    # Behind a renderer it is text.
    fields: dict[str, Any] = dict(event) if isinstance(event, Mapping) else {"event": event}
    for name in _BOOKKEEPING:
        fields.pop(name, None)
    level = text_or_repr(fields.pop("level", method))
    known = {"severity_text": severity_text(level), "severity_number": number_of_name(level)}
    if "event" in fields:
        known["message"] = fields.pop("event")
    known |= _take_exception(fields)
    now = time.time_ns()
    if _is_moment(fields.get("timestamp")):
        now = round(fields.pop("timestamp") * 1_000_000) * 1000  # a float has no more
    for name in known.keys() & fields.keys():
        known[f"extra.{name}"] = fields.pop(name)
    return LogItem(known | fields, now // 1_000_000_000, now % 1_000_000_000)


def _take_exception(fields: dict[str, Any]) -> dict[str, Any]:
    """Move the exception of an event out of its fields, also if another processor has formatted it."""
    made = fields.get("exception")
    if isinstance(made, str) and (_TRACEBACK in made or made.endswith(_current_exception())):  # format_exc_info
        text = fields.pop("exception")
        is_current = text.endswith(_current_exception())
        return exception_fields(True, text) if is_current else {"exception.stacktrace": text}
    if isinstance(made, list) and made and isinstance(made[0], dict) and "exc_type" in made[0]:  # dict_tracebacks
        names = {"exception.type": made[0]["exc_type"], "exception.message": made[0].get("exc_value")}
        return {**names, "exception.stacktrace": fields.pop("exception")}
    found = exception_fields(fields.get("exc_info"))
    if found or fields.get("exc_info") in (None, True, False):  # True where no exception is being handled
        fields.pop("exc_info", None)
    return found


def _current_exception() -> str:
    """How a traceback of the exception that is being handled ends."""
    error = sys.exc_info()[1]
    return "\n" if error is None else "".join(traceback.format_exception_only(error)).rstrip("\n")


def _is_moment(value: object) -> bool:
    """Whether it is a number of seconds, as ``TimeStamper`` makes it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**32


def _origin(logger: Any, event: object) -> tuple[str, int | None]:
    """The name of the logger that an event comes from, as far as it has one, and its thread."""
    if not isinstance(event, Mapping):
        return "", None
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        return record.name, record.thread
    name = event.get("logger") or getattr(logger, "name", "")
    return name if isinstance(name, str) else "", threading.get_ident()


class LogHubLogger:
    """A logger at the end of the processors: each method sends what it is given."""

    def __init__(self, sender: LogHubProcessor) -> None:
        self._sender = sender

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def send(message: Any = None, **fields: Any) -> None:
            self._sender.send(method, {**fields} if message is None else {"event": message, **fields})

        return send


class LogHubLoggerFactory:
    """Makes loggers that send; see :meth:`LogHubProcessor.logger_factory`."""

    def __init__(self, sender: LogHubProcessor) -> None:
        self._sender = sender

    def __call__(self, *_args: Any) -> LogHubLogger:
        return LogHubLogger(self._sender)
