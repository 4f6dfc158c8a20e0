"""A handler of the standard library's ``logging`` that sends records to LogHub.

::

    logging.getLogger().addHandler(LogHubHandler(producer, "my-project", "app-log", topic="web"))

or in ``logging.config.dictConfig``, where the handler makes and closes a producer of its own::

    "handlers": {"loghub": {
        "class": "producer.integrations.logging.LogHubHandler",
        "endpoint": "https://cn-hangzhou.log.aliyuncs.com", "project": "my-project", "logstore": "app-log",
    }}

A record becomes a log with its own time in nanoseconds and the fields of :class:`LogHubHandler`. Records of a producer
and of its threads are not sent, because each would cause the next one. They are left to other handlers. If there are
none, the handler of last resort gets the producer's warnings.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, Unpack, get_args

from ..client.producer import Producer
from ..model.errors import ConfigError, ProducerError
from ..model.records import LogItem
from ..model.results import Result
from ..runtime.loggers import get_logger
from .exceptions import exception_fields
from .feedback import OWN, feeds_back
from .outlet import HasOutlet, OnFull, OutletOptions
from .severity import severity_number, severity_text
from .values import repr_of, text_or_repr

__all__ = ["LogHubHandler"]

_log = get_logger("loghub.integrations")

#: The attributes of every record; others come from ``extra`` or a filter.
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_USUAL_COUNT = len(logging.makeLogRecord({}).__dict__)
_NUMBERS = {level: severity_number(level) for level in range(0, 60, 10)}
_TRACES = logging.Formatter()

#: Fields of every log: a function that returns them, or a function or ``ContextVar`` for each name. Unset ones are left
#: out.
FieldNames = Literal["otel", "aliyun-log"]
# Source: DEFAULT_RECORD_LOG_FIELDS of aliyun-log-python-sdk.
_OFFICIAL_NAMES = (
    *("name", "levelname", "funcName", "module", "pathname"),
    *("lineno", "process", "processName", "thread", "threadName"),
)
Context = Mapping[str, ContextVar[Any] | Callable[[], Any]] | Callable[[], Mapping[str, Any]]


class LogHubHandler(HasOutlet, logging.Handler):
    """A handler that sends records. It has no thread and no queue, because a producer's ``send`` does not block.

    ==========================  ==============================================================
    ``message``                 the message, or the formatter's result if one is set
    ``severity_text``           the level's name, in upper case
    ``severity_number``         OpenTelemetry's number: :mod:`producer.integrations.severity`
    ``logger``                  the logger's name
    ``code.file.path``          the place in the code, with ``code.function.name`` and ``code.line.number``
    ``process.pid``             the process, with ``thread.name``
    ``exception.type``          from ``exc_info``: with ``exception.message`` and ``exception.stacktrace``
    ``code.stacktrace``         from ``stack_info``
    each name in ``extra``      its value; as ``extra.NAME`` if a field above has the name
    each name of ``context``    its current value; as ``extra.NAME`` if a field above has the name
    ==========================  ==============================================================

    A message that is a ``dict``, logged without arguments and formatter, becomes fields. A value that cannot be sent is
    sent as its ``repr``.

    A closed handler with a producer of its own opens again at the next record, like ``FileHandler``:
    ``logging.config.dictConfig`` closes all handlers, and some stay attached.

    :param producer: the producer to send with; its owner closes it. None to make one from ``endpoint`` and a key, which
        the handler closes.
    :param project: the project to send to.
    :param logstore: the logstore to send to.
    :param level: the lowest level to send, a number or a name.
    :param on_full: ``drop`` drops a record at once when the buffer is full, and counts it; ``wait`` first waits up to
        the producer's ``max_block_ms``.
    :param fallback: a handler, or its name, that gets dropped records; None for none.
    :param fallback_on: ``drop``, or ``failure`` so that the fallback also gets accepted records that failed, on a
        thread of the producer.
    :param context: the fields of every log, read when the log is made; None for none.
    :param field_names: ``otel`` names the fields of a record as OpenTelemetry does (``severity_text``);
        ``aliyun-log`` as ``QueuedLogHandler`` of aliyun-log-python-sdk does (``levelname``), for searches and alerts
        that exist.
    :param options: ``topic``, ``source``, ``tags``, ``endpoint``, ``access_key_id``, ``access_key_secret``,
        ``security_token``, ``credentials``, ``config``, ``flush_timeout`` and ``drain_on_sigterm``, as in
        :class:`~producer.integrations.outlet.Outlet`.
    :raises ConfigError: an option is invalid, or both a producer and the options to make one are given.
    """

    def __init__(
        self,
        producer: Producer | None = None,
        project: str | None = None,
        logstore: str | None = None,
        *,
        level: int | str = logging.NOTSET,
        on_full: OnFull = "drop",
        fallback: logging.Handler | str | None = None,
        fallback_on: Literal["drop", "failure"] = "drop",
        context: Context | None = None,
        field_names: FieldNames = "otel",
        **options: Unpack[OutletOptions],
    ) -> None:
        configuring = _is_configuring()
        try:
            _check_options(fallback, fallback_on, context)
            if field_names not in get_args(FieldNames):
                raise ConfigError("field_names", "must be otel or aliyun-log", field_names)
            self._outlet = self._open_outlet(producer, project, logstore, on_full=on_full, **options)
        except ProducerError as error:
            if configuring and sys.stderr:  # dictConfig reports no reason, gunicorn not even the error
                sys.stderr.write(f"{type(self).__qualname__}: {error}\n")
            raise
        self._fallback, self._context, self._field_names = fallback, context, field_names
        self._falls_back_on_failure = fallback is not None and fallback_on == "failure"
        # A fallback given by name may be made after this handler. And dictConfig disables existing loggers after it has
        # made the handlers, including the producer's, which report failed deliveries.
        self._silent = _silent() if configuring else None
        self._begun = not configuring and not isinstance(fallback, str)
        super().__init__(level)

    def createLock(self) -> None:
        """Use no lock: many threads may send, and one that waits for memory must not block the others."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """Send the record if it passes the filters."""
        passed: Any = self.filter(record) if self.filters else True  # Python 3.12 may return another record
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record; never raises."""
        try:
            if feeds_back(record.name, record.thread):
                self._report(record)
            else:
                self._send(record)
        except Exception:  # noqa: BLE001  # as in every handler of logging
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report the error as ``logging`` does, but ignore arguments that are nested too deeply to be printed."""
        with suppress(RecursionError):
            super().handleError(record)

    def _send(self, record: logging.LogRecord) -> None:
        fallback = None if self._fallback is None else partial(self._fall_back, record)
        callback = partial(self._fall_back_if_failed, record) if self._falls_back_on_failure else None
        if not self._begun:
            self._begin()
        try:
            log = self._log_of(record)
        except Exception as error:
            self._outlet.drop(error, fallback)
            raise
        self._outlet.send(log, fallback, callback)

    def _log_of(self, record: logging.LogRecord) -> LogItem:
        fields = self._message(record)
        level = record.levelno
        if self._field_names == "aliyun-log":
            fields |= {name: getattr(record, name) for name in _OFFICIAL_NAMES}
        else:
            fields["severity_text"] = severity_text(record.levelname)
            fields["severity_number"] = _NUMBERS.get(level) or severity_number(level)
            fields["logger"] = record.name
            fields["code.file.path"] = record.pathname
            fields["code.function.name"] = record.funcName
            fields["code.line.number"] = record.lineno
            fields["thread.name"] = record.threadName
            fields["process.pid"] = record.process
        if record.exc_info or record.exc_text:
            fields |= _exception_of(record)
        if record.stack_info:
            fields["code.stacktrace"] = record.stack_info
        if len(record.__dict__) != _USUAL_COUNT:
            _add(fields, {name: value for name, value in record.__dict__.items() if name not in _USUAL})
        if self._context is not None:
            _add(fields, self._values_of(record, self._context))
        second = int(record.created)
        return LogItem(fields, second, int((record.created - second) * 1e9))

    def _message(self, record: logging.LogRecord) -> dict[str, Any]:
        if type(record.msg) is dict and not record.args and self.formatter is None:
            return dict(record.msg)
        try:
            return {"message": record.getMessage() if self.formatter is None else self.format(record)}
        except Exception:  # noqa: BLE001  # the record is still sent
            self.handleError(record)
            return {"message": _raw_message(record)}

    def _values_of(self, record: logging.LogRecord, context: Context) -> dict[str, Any]:
        """Return the current values of the context; an error is reported, and its value left out."""
        # One by one: the mapping from logging.config converts a value when it is read.
        sources = [context] if callable(context) else [partial(_value_of, name, context) for name in context]
        values: dict[str, Any] = {}
        for source in sources:
            try:
                values |= source()
            except Exception:  # noqa: BLE001  # a user's code
                self.handleError(record)
        return values

    def _begin(self) -> None:
        """Enable the producer's loggers again at the first record, and check the fallback's name."""
        self._begun = True
        if self._silent is not None:
            for logger in _silent() - self._silent:
                logger.disabled = False
        if isinstance(self._fallback, str) and self._fallback not in logging._handlers:  # type: ignore[attr-defined]  # see _fall_back
            _log.warning("fallback: there is no handler named %r: dropped records are lost", self._fallback)

    def _report(self, record: logging.LogRecord) -> None:
        """Pass a producer's record to the handler of last resort, if only handlers of this class would get it."""
        last = logging.lastResort
        if last is None or record.levelno < last.level or not record.name.startswith(OWN):
            return
        takers = [each for each in _handlers_of(record.name) if not isinstance(each, logging.NullHandler)]
        if takers and takers[0] is self and all(isinstance(each, LogHubHandler) for each in takers):
            last.handle(record)

    def _fall_back(self, record: logging.LogRecord) -> None:
        handler = self._fallback
        if isinstance(handler, str):
            handler = logging._handlers.get(handler)  # type: ignore[attr-defined]  # getHandlerByName, from 3.12 on
        if handler is not None and record.levelno >= handler.level:
            handler.handle(record)

    def _fall_back_if_failed(self, record: logging.LogRecord, result: Result) -> None:
        if not result.successful:
            self._fall_back(record)

    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """Set the formatter of the message, except that of ``logging.basicConfig``, whose parts are fields already."""
        basic = fmt is not None and getattr(fmt, "_fmt", None) == logging.BASIC_FORMAT
        super().setFormatter(None if basic else fmt)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered or have failed. A timeout is logged.

        :param timeout: the limit in seconds; None for ``flush_timeout``.
        """
        self._outlet.flush(0.0 if _is_configuring() else timeout)

    def close(self) -> None:
        """Close the handler's own producer, if any. The next record opens it again. May be called repeatedly."""
        self._outlet.close(wait=not _is_configuring())
        super().close()


def _check_options(fallback: object, fallback_on: object, context: object) -> None:
    """Check the handler's own options.

    :raises ConfigError: an option is invalid.
    """
    if not (fallback is None or isinstance(fallback, logging.Handler | str)):
        raise ConfigError("fallback", "must be a handler, or the name of one", fallback)
    if fallback_on not in ("drop", "failure"):
        raise ConfigError("fallback_on", "must be drop or failure", fallback_on)
    if not (context is None or callable(context) or isinstance(context, Mapping)):
        raise ConfigError("context", "must be a mapping of names, or a function that returns one", context)


def _handlers_of(name: str) -> Iterator[logging.Handler]:
    """Yield all handlers that get a logger's records."""
    logger: logging.Logger | None = logging.getLogger(name)  # noqa: TID251  # not to log with
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _silent() -> set[logging.Logger]:
    """Return the producer's loggers that are disabled."""
    loggers = list(logging.root.manager.loggerDict.items())
    return {each for name, each in loggers if name.startswith(OWN) and getattr(each, "disabled", False)}  # type: ignore[misc]  # placeholders are not loggers


def _is_configuring() -> bool:
    """Return True if the caller holds the lock of ``logging``, as ``logging.config`` does while it closes handlers.

    Delivery threads may need the lock, so a wait for them would deadlock.
    """
    return bool(logging._lock._is_owned())  # type: ignore[attr-defined]  # as in threading.Condition


def _add(fields: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        fields[f"extra.{name}" if name in fields else name] = value


def _exception_of(record: logging.LogRecord) -> dict[str, Any]:
    if record.exc_info and not record.exc_text and record.exc_info[0] is not None:
        record.exc_text = _TRACES.formatException(record.exc_info)  # cached for other handlers
    known = exception_fields(record.exc_info, record.exc_text)
    return known or ({"exception.stacktrace": record.exc_text} if record.exc_text else {})


def _value_of(name: str, context: Mapping[str, ContextVar[Any] | Callable[[], Any]]) -> dict[str, Any]:
    one = context[name]
    return {name: one.get(None) if isinstance(one, ContextVar) else one()}


def _raw_message(record: logging.LogRecord) -> str:
    """Return the message of a record that cannot be formatted."""
    text = text_or_repr(record.msg)
    return f"{text} (invalid arguments: {repr_of(record.args)})" if record.args else text
