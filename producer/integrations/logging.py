"""A handler of the standard library's ``logging`` that sends records to LogHub.

::

    logging.getLogger().addHandler(LogHubHandler(producer, "my-project", "app-log", topic="web"))

or in ``logging.config.dictConfig``, where the handler makes and closes a producer of its own::

    "handlers": {"loghub": {
        "class": "producer.integrations.logging.LogHubHandler",
        "endpoint": "https://cn-hangzhou.log.aliyuncs.com", "project": "my-project", "logstore": "app-log",
    }}

A record becomes a log with its own time, in nanoseconds, and the fields of :class:`LogHubHandler`. What a producer
itself logs, and what is logged on its threads, is left to other handlers: it would feed itself. Where there are none,
the handler of last resort has its warnings.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, Unpack

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

#: What every record has; whatever else it has came with ``extra`` or a filter.
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_USUAL_COUNT = len(logging.makeLogRecord({}).__dict__)
_NUMBERS = {level: severity_number(level) for level in range(0, 60, 10)}
_TRACES = logging.Formatter()

#: Fields that every log gets, by name: a function of no arguments, or a ``ContextVar``, left out where it has no value.
Context = Mapping[str, ContextVar[Any] | Callable[[], Any]] | Callable[[], Mapping[str, Any]]


class LogHubHandler(HasOutlet, logging.Handler):
    """Sends records, without a thread or a queue of its own: a producer's ``send`` does not block.

    ==========================  ==============================================================
    ``message``                 what the record says; what the formatter makes of it, if one is set
    ``severity_text``           the level's name, in upper case
    ``severity_number``         its number as OpenTelemetry counts: see :mod:`producer.integrations.severity`
    ``logger``                  the logger's name
    ``code.file.path``          where it was logged, as are ``code.function.name`` and ``code.line.number``
    ``process.pid``             the process, as is ``thread.name``
    ``exception.type``          of ``exc_info``, as are ``exception.message`` and ``exception.stacktrace``
    ``code.stacktrace``         of ``stack_info``
    each name in ``extra``      its value; under ``extra.NAME`` where a field above has that name
    each name of ``context``    its value at this moment; likewise
    ==========================  ==============================================================

    A message that is a ``dict``, logged without arguments and formatter, becomes fields itself. What cannot be sent as
    it is, is sent as its ``repr``.

    Closed, a handler with a producer of its own opens again at the next record, as ``FileHandler`` does: every
    ``logging.config.dictConfig`` closes all handlers, and some stay attached.

    :param producer: the producer to send with; its owner closes it. None makes one of ``endpoint`` and a key, which is
        closed with the handler.
    :param project: where logs go; likewise ``logstore``, ``topic``, ``source`` and ``tags``.
    :param level: of records that are sent, a number or a name.
    :param on_full: ``drop`` drops a record at once when memory is full, and counts it; ``wait`` waits as long as the
        producer's ``max_block_ms`` says, and drops it then.
    :param fallback: a handler, or the name of one, that gets what is dropped.
    :param fallback_on: ``drop``; or ``failure``, and it also gets what was accepted and then could not be delivered, on
        a thread of the producer.
    :param context: fields of every log, asked when it is made.
    :param options: ``endpoint``, ``access_key_id``, ``access_key_secret``, ``security_token``, ``credentials``,
        ``config``, ``flush_timeout`` and ``drain_on_sigterm``: see :class:`~producer.integrations.outlet.Outlet`.
    :raises ConfigError: both a producer and what one is made of; a wrong option.
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
        **options: Unpack[OutletOptions],
    ) -> None:
        configuring = _is_configuring()
        try:
            _check_options(fallback, fallback_on, context)
            self._outlet = self._open_outlet(producer, project, logstore, on_full=on_full, **options)
        except ProducerError as error:
            if configuring and sys.stderr:  # it says that a handler could not be made, and gunicorn not even why
                sys.stderr.write(f"{type(self).__qualname__}: {error}\n")
            raise
        self._fallback, self._context = fallback, context
        self._falls_back_on_failure = fallback is not None and fallback_on == "failure"
        # By its name the fallback may be made after this one; and what configures `logging` silences, after it has made
        # its handlers, the loggers that were there: by default also those that say why nothing arrives.
        self._silent = _silent() if configuring else None
        self._begun = not configuring and not isinstance(fallback, str)
        super().__init__(level)

    def createLock(self) -> None:
        """None: any number of threads may send, and who waits for memory holds up nobody."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """Send the record, if the filters let it."""
        passed: Any = self.filter(record) if self.filters else True  # since 3.12 perhaps another record
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
        except Exception:  # noqa: BLE001  # as every handler of logging
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report it as ``logging`` does, which raises where the arguments are nested too deeply to be printed."""
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
        except Exception:  # noqa: BLE001  # the record is sent all the same
            self.handleError(record)
            return {"message": _unfit(record)}

    def _values_of(self, record: logging.LogRecord, context: Context) -> dict[str, Any]:
        """What the context has at this moment, without what raises: that is said, and the record is sent."""
        # One by one: what logging.config gives converts a value when it is asked for.
        sources = [context] if callable(context) else [partial(_value_of, name, context) for name in context]
        values: dict[str, Any] = {}
        for source in sources:
            try:
                values |= source()
            except Exception:  # noqa: BLE001  # whatever a user's code raises
                self.handleError(record)
        return values

    def _begin(self) -> None:
        """At the first record: give the producer its voice back, and look for the fallback."""
        self._begun = True
        if self._silent is not None:
            for logger in _silent() - self._silent:
                logger.disabled = False
        if isinstance(self._fallback, str) and self._fallback not in logging._handlers:  # type: ignore[attr-defined]  # see _fall_back
            _log.warning("fallback: there is no handler with the name %r: what is dropped is lost", self._fallback)

    def _report(self, record: logging.LogRecord) -> None:
        """Let the handler of last resort have what a producer reports, where nobody but handlers of this class does."""
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
        """Let it make the message. The one that ``logging.basicConfig`` gives to who has none makes none: what it would
        add has fields of its own.
        """
        basic = fmt is not None and getattr(fmt, "_fmt", None) == logging.BASIC_FORMAT
        super().setFormatter(None if basic else fmt)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until what was logged is delivered or has failed, at most ``flush_timeout``; more than that is logged.

        :param timeout: seconds, in place of ``flush_timeout``.
        """
        self._outlet.flush(0.0 if _is_configuring() else timeout)

    def close(self) -> None:
        """Close the producer, if it is the handler's own. May be called again; the next record opens it again."""
        self._outlet.close(wait=not _is_configuring())
        super().close()


def _check_options(fallback: object, fallback_on: object, context: object) -> None:
    """:raises ConfigError: one of them is wrong."""
    if not (fallback is None or isinstance(fallback, logging.Handler | str)):
        raise ConfigError("fallback", "must be a handler, or the name of one", fallback)
    if fallback_on not in ("drop", "failure"):
        raise ConfigError("fallback_on", "must be drop or failure", fallback_on)
    if not (context is None or callable(context) or isinstance(context, Mapping)):
        raise ConfigError("context", "must be a mapping of names, or a function that returns one", context)


def _handlers_of(name: str) -> Iterator[logging.Handler]:
    """All handlers that a record of that logger comes to."""
    logger: logging.Logger | None = logging.getLogger(name)  # noqa: TID251  # another one's
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _silent() -> set[logging.Logger]:
    """The producers' loggers that are disabled."""
    loggers = list(logging.root.manager.loggerDict.items())
    return {each for name, each in loggers if name.startswith(OWN) and getattr(each, "disabled", False)}  # type: ignore[misc]  # placeholders are no loggers


def _is_configuring() -> bool:
    """Whether the caller holds the lock of ``logging``, as ``logging.config`` does when it ends the handlers of before:
    the threads that deliver may need it, too, and whoever waited for them would wait for himself.
    """
    return bool(logging._lock._is_owned())  # type: ignore[attr-defined]  # as threading.Condition asks


def _add(fields: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        fields[f"extra.{name}" if name in fields else name] = value


def _exception_of(record: logging.LogRecord) -> dict[str, Any]:
    if record.exc_info and not record.exc_text and record.exc_info[0] is not None:
        record.exc_text = _TRACES.formatException(record.exc_info)  # other handlers need it, too
    known = exception_fields(record.exc_info, record.exc_text)
    return known or ({"exception.stacktrace": record.exc_text} if record.exc_text else {})


def _value_of(name: str, context: Mapping[str, ContextVar[Any] | Callable[[], Any]]) -> dict[str, Any]:
    one = context[name]
    return {name: one.get(None) if isinstance(one, ContextVar) else one()}


def _unfit(record: logging.LogRecord) -> str:
    """The message of a record of which none can be made."""
    text = text_or_repr(record.msg)
    return f"{text} (arguments that do not fit: {repr_of(record.args)})" if record.args else text
