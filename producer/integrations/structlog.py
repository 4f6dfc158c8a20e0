"""A final processor and a logger factory for structlog, which send events to LogHub.

::

    sender = LogHubProcessor(producer, "my-project", "app-log")
    processors = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, sender]
    structlog.configure(processors=processors, logger_factory=sender.logger_factory())

An event's keys become fields, and ``event`` becomes ``message``. Levels and exceptions have the fields of all
integrations.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping
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
from .outlet import HasOutlet, OnFull, OutletOptionsWithFallback
from .severity import number_of_name, severity_text
from .values import text_or_repr

__all__ = ["LogHubProcessor"]

_TRACEBACK = "Traceback (most recent call last):"
#: The keys that structlog's formatter of ``logging`` records adds for itself.
_BOOKKEEPING = ("_record", "_from_structlog")


class LogHubProcessor(HasOutlet):
    """A processor that sends each event with the current time.

    * ``event`` becomes the field ``message``.
    * ``level``, or the name of the method, becomes ``severity_text`` in upper case and ``severity_number``.
    * ``exc_info``, or the ``exception`` of ``format_exc_info`` and ``dict_tracebacks``, becomes ``exception.type``,
      ``exception.message`` and ``exception.stacktrace``.
    * ``timestamp`` becomes the log's time if it is a number.
    * All other keys are fields. A value that cannot be sent is sent as its ``repr``.

    The other parameters are those of :class:`~producer.integrations.outlet.Outlet`.

    :param pass_on: True to pass the event to the next processor, such as a renderer for the console; False to drop it.
    :raises ConfigError: an option is invalid.
    """

    def __init__(
        self,
        producer: Producer | None = None,
        project: str | None = None,
        logstore: str | None = None,
        *,
        on_full: OnFull = "drop",
        pass_on: bool = False,
        **options: Unpack[OutletOptionsWithFallback],
    ) -> None:
        self._outlet = self._open_outlet(producer, project, logstore, on_full=on_full, **options)
        self._pass_on = pass_on

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Send the event, unless a producer's work caused it: sending it would cause the next one.

        :raises structlog.DropEvent: ``pass_on`` is False.
        """
        name, thread = _origin(logger, event)
        if not feeds_back(name, thread):
            self.send(method, event)
        if self._pass_on:
            return event
        raise structlog.DropEvent

    def send(self, method: str, event: MutableMapping[str, Any] | str) -> None:
        """Send an event of a logger's method. Never raises."""
        try:
            self._outlet.send(_log_of(method, event))
        except Exception as error:  # noqa: BLE001  # logging must not raise into the application
            self._outlet.drop(error)

    def logger_factory(self) -> Callable[..., LogHubLogger]:
        """Return a factory for ``structlog.configure(logger_factory=…)``, if the last processor renders text.

        Its loggers send the result of the last processor as ``message``. With this processor as the last one, they get
        nothing to send.
        """
        return lambda *_args: LogHubLogger(self)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent is delivered or has failed.

        :param timeout: the limit in seconds; None for ``flush_timeout``.
        """
        self._outlet.flush(timeout)

    def close(self) -> None:
        """Close the processor's own producer, if any."""
        self._outlet.close()


def _log_of(method: str, event: MutableMapping[str, Any] | str) -> LogItem:
    # After a renderer, the event is text.
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
        now = round(fields.pop("timestamp") * 1_000_000) * 1000  # a float is exact to the microsecond
    for name in known.keys() & fields.keys():
        known[f"extra.{name}"] = fields.pop(name)
    return LogItem(known | fields, now // 1_000_000_000, now % 1_000_000_000)


def _take_exception(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the exception from an event's fields, even if formatted, and return its fields."""
    made = fields.get("exception")
    if isinstance(made, str) and (_TRACEBACK in made or made.endswith(_current_exception())):  # format_exc_info
        text = fields.pop("exception")
        is_current = text.endswith(_current_exception())
        return exception_fields(True, text) if is_current else {"exception.stacktrace": text}
    if isinstance(made, list) and made and isinstance(made[0], dict) and "exc_type" in made[0]:  # dict_tracebacks
        names = {"exception.type": made[0]["exc_type"], "exception.message": made[0].get("exc_value")}
        return {**names, "exception.stacktrace": fields.pop("exception")}
    found = exception_fields(fields.get("exc_info"))
    if found or fields.get("exc_info") in (None, True, False):  # True may also mean that no exception is being handled
        fields.pop("exc_info", None)
    return found


def _current_exception() -> str:
    """Return the end of a traceback of the exception that is being handled."""
    error = sys.exc_info()[1]
    return "\n" if error is None else "".join(traceback.format_exception_only(error)).rstrip("\n")


def _is_moment(value: object) -> bool:
    """Return True for a number of seconds, as ``TimeStamper`` makes it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**32


def _origin(logger: Any, event: object) -> tuple[str, int | None]:
    """Return the name of the event's logger, empty if unknown, and its thread."""
    if not isinstance(event, Mapping):
        return "", None
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        return record.name, record.thread
    name = event.get("logger") or getattr(logger, "name", "")
    return name if isinstance(name, str) else "", threading.get_ident()


class LogHubLogger:
    """A logger after the processors, whose methods send their arguments."""

    def __init__(self, sender: LogHubProcessor) -> None:
        self._sender = sender

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def send(message: Any = None, **fields: Any) -> None:
            self._sender.send(method, {**fields} if message is None else {"event": message, **fields})

        return send
