"""The outlet of an integration: its stream, and the handling of logs that cannot be enqueued.

Logging must not raise into the application. So a log that cannot be enqueued is counted by reason, reported in totals
and at the end, and passed to a fallback if there is one.

The file is long because it makes, shares, closes and reopens the producer of every integration.
"""

from __future__ import annotations

import _thread
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypedDict

from ..client import at_exit
from ..client.fallback import FallbackOption
from ..client.producer import Producer
from ..client.stream import Stream
from ..model.config import ProducerConfig, ProjectConfig, producer_options
from ..model.credentials import EnvironmentCredentials
from ..model.errors import ConfigError, InvalidArgumentError, LogSizeTooLargeError, ProducerClosedError, ProducerError
from ..model.interfaces import CredentialsProvider
from ..model.options import unknown
from ..model.records import LogItem, StreamKey
from ..model.results import Attempt, Callback, Result
from ..runtime.forks import Stage, watch_fork
from ..runtime.internal_threads import at_work
from ..runtime.locks import RLock
from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog
from ..text.migration_hints import FOREIGN_OF_PROJECT
from ..text.plural import counted
from ..wire.log_group import encode_log
from .figures import check_producer
from .values import message_of, sendable

_log = get_logger("loghub.integrations")

#: The shortest time between two log lines about dropped logs, seconds.
_REPORT_SECONDS = 60.0

OnFull = Literal["drop", "wait"]
#: The function that takes a log that was not enqueued.
Fallback = Callable[[], object]


#: True on a thread that is in a fallback.
_passing = threading.local()
_fallback_errors = RateLimitedLog()


class OutletOptions(TypedDict, total=False):
    """The options that every integration takes by name, as in :class:`Outlet`."""

    topic: str
    source: str | None
    tags: Mapping[str, str] | None
    endpoint: str | None
    access_key_id: str | None
    access_key_secret: str | None
    security_token: str | None
    credentials: CredentialsProvider | str | None
    config: ProducerConfig | Mapping[str, Any] | None
    flush_timeout: float | None
    drain_on_sigterm: bool


class OutletOptionsWithFallback(OutletOptions, total=False):
    """The same, for the integrations whose fallback is the producer's."""

    fallback: FallbackOption | None


class Outlet:
    """The stream that an integration sends to, with a given producer or the outlet's own.

    :param producer: the producer to send with; its owner closes it. None to make one from ``endpoint`` and a key, which
        :meth:`close` closes. The next log makes another one, unless the interpreter is exiting.
    :param project: the project to send to.
    :param logstore: the logstore to send to.
    :param topic: the topic of all logs.
    :param source: the source of all logs; None for the producer's.
    :param tags: the tags of all logs; None for none.
    :param on_full: ``drop`` drops a log at once when the buffer is full; ``wait`` first waits up to the producer's
        ``max_block_ms``.
    :param endpoint: such as ``https://cn-hangzhou.log.aliyuncs.com``.
    :param access_key_id: the access key id; without it and ``credentials``, ``LOGHUB_ACCESS_KEY_ID`` and
        ``LOGHUB_ACCESS_KEY_SECRET`` of the environment are used.
    :param access_key_secret: its secret.
    :param security_token: the token of temporary credentials.
    :param credentials: a credentials provider or the name of a source, in place of a key.
    :param config: the options of the own producer, or a mapping of them (whose values may be text).
    :param fallback: the ``fallback`` of the own producer, which also gets the logs that cannot be enqueued, on the
        thread that logs them.
    :param flush_timeout: the limit of :meth:`flush` and of :meth:`close`, seconds; None for no limit.
    :param drain_on_sigterm: True to deliver all logs before SIGTERM ends the process, where
        :func:`producer.client.at_exit.drain_at_sigterm` can do that.
    :raises ConfigError: an option is invalid, or both a producer and the options to make one are given.
    :ivar logs_on_thread: True to log on another thread: a sink of loguru must not log while it is called.
    """

    logs_on_thread = False

    def __init__(
        self,
        producer: Producer | None = None,
        project: str | None = None,
        logstore: str | None = None,
        *,
        topic: str = "",
        source: str | None = None,
        tags: Mapping[str, str] | None = None,
        on_full: OnFull = "drop",
        endpoint: str | None = None,
        access_key_id: str | None = None,
        access_key_secret: str | None = None,
        security_token: str | None = None,
        credentials: CredentialsProvider | str | None = None,
        config: ProducerConfig | Mapping[str, Any] | None = None,
        fallback: FallbackOption | None = None,
        flush_timeout: float | None = 10.0,
        drain_on_sigterm: bool = True,
    ) -> None:
        check_producer(producer)
        _check_options(project, logstore, on_full, flush_timeout)
        key = {
            "access_key_id": access_key_id,
            "access_key_secret": access_key_secret,
            "security_token": security_token,
            "credentials": credentials,
        }
        self._make = None if producer is not None else _maker(project, endpoint, key, config, fallback)
        if producer is not None and fallback is not None:
            rule = "must be None if a producer is given: give it to that, Producer(..., fallback=...)"
            raise ConfigError("fallback", rule, fallback)
        if producer is not None and (endpoint is not None or config is not None or any(key.values())):
            raise ConfigError("producer", "must be None if an endpoint, a key or a config is given", producer.name)
        self._options = {"topic": topic, "source": source, "tags": tags, "max_block_ms": _max_block[on_full]}
        self._place = str(project), str(logstore)
        self.flush_timeout = flush_timeout
        self._closed = False
        #: Logs from a finalizer or handler that interrupted a call of the producer.
        self._deferred: deque[tuple[LogItem, Fallback | None, Callback | None]] = deque()
        self._counting = (
            RLock()
        )  # guards the next ones; reentrant, because a finalizer that logs may interrupt its owner
        self._dropped = self._reported = 0
        self._reported_at = float("-inf")
        self._attach(self._make() if self._make is not None else producer)
        watch_fork(self, Stage.SINKS)
        if drain_on_sigterm:
            at_exit.drain_at_sigterm()

    def _attach(self, producer: Any) -> None:
        self.producer: Producer = producer
        self.stream: Stream = producer.stream(*self._place, **self._options)

    @property
    def dropped(self) -> int:
        """The number of logs that could not be enqueued, including those that a fallback got."""
        return self._dropped

    def send(self, log: LogItem, fallback: Fallback | None = None, callback: Callback | None = None) -> None:
        """Send a log. Errors of the producer are not raised.

        :param log: the log, with values of any type.
        :param fallback: the function to call if the log cannot be enqueued; None for none.
        :param callback: the callback of :meth:`Producer.send`; None for none.
        """
        stream = self.stream
        try:
            stream.send(log, callback=callback)
        except ProducerError as error:
            self._refused(stream, log, error, fallback, callback)

    def _refused(
        self, stream: Stream, log: LogItem, error: ProducerError, fallback: Fallback | None, callback: Callback | None
    ) -> None:
        if isinstance(error, InvalidArgumentError) and not isinstance(error, LogSizeTooLargeError):
            self._send_as_text(stream, log, fallback, callback)
        elif isinstance(error, ProducerClosedError) and self._reopen(stream):
            self.send(log, fallback, callback)
        elif type(error) is ProducerError:  # this call interrupts another one of the producer: send later
            self._defer(log, fallback, callback)
        else:
            self._drop_log(stream, log, error, fallback)

    def _drop_log(self, stream: Stream, log: LogItem, error: ProducerError, fallback: Fallback | None) -> None:
        """Drop a log; without ``fallback``, the producer's gets it."""
        if fallback is None and self.producer._leftovers is not None:
            fallback = partial(self._pass_to_producers, stream.key, log, error)
        self.drop(error, fallback)

    def _pass_to_producers(self, key: StreamKey, log: LogItem, error: ProducerError) -> None:
        """Pass a log to the producer's fallback; an error of it is logged."""
        leftovers = self.producer._leftovers
        if leftovers is None or getattr(_passing, "on", False):  # the fallback logs to this integration
            return
        now = time.time()
        code = type(error).__name__.removesuffix("Error")
        last = Attempt(success=False, error_code=code, error_message=str(error), timestamp_ms=int(now * 1000))
        _passing.on = True
        try:
            record = encode_log(LogItem(sendable(dict(log.contents)), *_possible(log)), int(now))
            leftovers(key, (record,), Result(successful=False, attempts=(last,), attempt_count=0))
        except Exception as failure:  # noqa: BLE001  # user code
            if _fallback_errors.due_error(failure) is not None:
                self._warn(f"the fallback failed, and 1 dropped log is lost: {type(failure).__name__}: {failure}")
        finally:
            _passing.on = False

    def _send_as_text(self, stream: Stream, log: LogItem, fallback: Fallback | None, callback: Callback | None) -> None:
        text = LogItem(sendable(dict(log.contents)), *_possible(log))
        try:
            stream.send(text, callback=callback)
        except InvalidArgumentError as error:
            self._drop_log(stream, log, error, fallback)
        except ProducerError as error:
            self._refused(stream, text, error, fallback, callback)

    def _reopen(self, refusing: Stream) -> bool:
        """Replace the outlet's own producer, which was closed. Return True if there is a new one.

        Either :meth:`close` closed it, for example from ``dictConfig``, or the interpreter's exit or a signal did.
        After both, logs are dropped.
        """
        if self._make is None or (self._closed and at_exit.exited()):
            return False
        with self._counting:
            if self.stream is refusing:
                self._attach(self._make())
                self._closed = False
        return True

    def _defer(self, log: LogItem, fallback: Fallback | None, callback: Callback | None) -> None:
        """Send a log on another thread. Not a ``threading.Thread``, whose start takes locks."""
        self._deferred.append((log, fallback, callback))
        try:
            _thread.start_new_thread(self._send_deferred, ())
        except RuntimeError:  # the interpreter is exiting: the next flush sends it
            return

    def _send_deferred(self) -> None:
        while self._deferred:
            try:
                self.send(*self._deferred.popleft())
            except IndexError:
                return

    def drop(self, error: Exception, fallback: Fallback | None = None) -> None:
        """Count a log that could not be made or enqueued, and report such logs once in :data:`_REPORT_SECONDS`.

        :param error: the reason; other errors than a producer's are bugs, of this package or of a value in the log.
        :param fallback: the function to call; None for none.
        """
        if not isinstance(error, ProducerError):
            error = ProducerError(f"{type(error).__name__}: {message_of(error)}")
        self.producer._note_dropped(error.drop_reason)
        with self._counting:
            self._dropped += 1
            now = time.monotonic()
            due = now - self._reported_at >= _REPORT_SECONDS
            if due:
                logs, self._reported, self._reported_at = self._dropped - self._reported, self._dropped, now
        if due:
            self._warn(f"{counted(logs, 'log')} could not be enqueued: {error}")
        if fallback is not None:
            fallback()

    def _warn(self, text: str) -> None:
        if not self.logs_on_thread:
            _log.warning("%s/%s: %s", *self._place, text)
            return
        with suppress(RuntimeError):  # the interpreter is exiting
            _thread.start_new_thread(self._warn_on_thread, (text,))

    def _warn_on_thread(self, text: str) -> None:
        with at_work():
            _log.warning("%s/%s: %s", *self._place, text)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything sent is delivered or has failed. After a timeout, log it and return False.

        :param timeout: the limit in seconds; None for ``flush_timeout``; 0 to send open batches without waiting.
        """
        self._send_deferred()
        seconds = self.flush_timeout if timeout is None else timeout
        try:
            self.producer.flush(seconds)
        except ProducerError as error:
            if seconds:
                _log.warning("%s/%s: %s", *self._place, error)
            return False
        return True

    def close(self, *, wait: bool = True) -> None:
        """Close the outlet's own producer, and report dropped logs. May be called repeatedly.

        :param wait: True to wait until it is closed; False to close it on another thread.
        """
        self._send_deferred()
        self._closed = True
        if wait or self._make is None:
            self._close(self.producer)
        else:
            name = f"{self.producer.name}-closer"
            threading.Thread(target=self._close, args=(self.producer,), name=name, daemon=True).start()

    def _close(self, producer: Producer) -> None:
        try:
            if self._make is not None:
                producer.close(self.flush_timeout)
        except ProducerError as error:
            _log.warning("%s/%s: %s", *self._place, error)
        if producer.closed or at_exit.exited():  # otherwise its own close reports them
            producer._report_losses()

    def _renew_in_child(self) -> None:
        """Replace the lock, which a thread of the parent may hold, and leave deferred logs to the parent."""
        self._counting = RLock()
        self._deferred = deque()


def _check_options(project: object, logstore: object, on_full: object, flush_timeout: object) -> None:
    """Check the options that are not the producer's.

    :raises ConfigError: an option is invalid.
    """
    for name, value in (("project", project), ("logstore", logstore)):
        if not isinstance(value, str) or not value:
            raise ConfigError(name, "must be text that is not empty", value)
    if on_full not in ("drop", "wait"):
        raise ConfigError("on_full", "must be drop or wait", on_full)
    if not _is_timeout(flush_timeout):
        raise ConfigError("flush_timeout", "must be None or seconds, at least 0", flush_timeout)


_max_block: dict[OnFull, int | None] = {"drop": 0, "wait": None}


def _maker(
    project: str | None,
    endpoint: str | None,
    key: Mapping[str, Any],
    config: ProducerConfig | Mapping[str, Any] | None,
    fallback: FallbackOption | None,
) -> Callable[[], Producer]:
    """Return the function that makes the outlet's own producer.

    :raises ConfigError: an option is missing or invalid.
    """
    if endpoint is None:
        raise ConfigError("endpoint", "must be given if no producer is", endpoint)
    given = {name: value for name, value in key.items() if value is not None}
    where = ProjectConfig(str(project), endpoint=endpoint, **(given or {"credentials": _environment_credentials()}))
    if not (config is None or isinstance(config, ProducerConfig | Mapping)):
        raise ConfigError("config", "must be a ProducerConfig, or a mapping of its options", config)
    if isinstance(config, Mapping):
        # One by one: the mapping from logging.config converts a value when it is read.
        config = ProducerConfig.from_mapping({name: config[name] for name in config})
    return lambda: Producer(where, config=config, fallback=fallback)


def _environment_credentials() -> EnvironmentCredentials:
    """Return the credentials of the environment.

    :raises ConfigError: the environment has none; otherwise only the first request would fail.
    """
    credentials = EnvironmentCredentials()
    try:
        credentials.get_credentials()
    except ConfigError as error:
        raise ConfigError(
            "access_key_id", f"must be given, or {error.name} be set in the environment", "access_key_id"
        ) from None
    return credentials


def _is_timeout(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and value >= 0)


def _possible(log: LogItem) -> tuple[Any, Any]:
    """Return the log's time if it is valid, else (None, None)."""
    second: Any = log.time
    nanos = log.time_ns
    return (second, nanos) if isinstance(second, int) and 0 <= second < 2**32 else (None, None)


class HasOutlet:
    """Base of the integrations, which send through an outlet."""

    _outlet: Outlet

    def _open_outlet(
        self, producer: Producer | None, project: str | None, logstore: str | None, **options: Any
    ) -> Outlet:
        """Make the outlet.

        :raises ConfigError: an option is unknown or invalid.
        """
        known = options_of(type(self))
        for name in options:
            if name not in known:
                raise _unknown_option(name, known)
        return Outlet(producer, project, logstore, **options)

    @property
    def producer(self) -> Producer:
        """The producer. An integration with its own producer has another one after :meth:`close`."""
        return self._outlet.producer

    @property
    def dropped(self) -> int:
        """The number of logs that could not be enqueued, including those that a fallback got."""
        return self._outlet.dropped


def options_of(integration: type) -> list[str]:
    """Return the names of an integration's arguments."""
    makers = [vars(each)["__init__"] for each in integration.__mro__ if "__init__" in vars(each) and each is not object]
    names: dict[str, None] = {}
    for maker in (*makers, Outlet.__init__):
        parameters = list(inspect.signature(maker).parameters.values())[1:]
        names |= {each.name: None for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    return list(names)


def _unknown_option(name: str, known: list[str]) -> ConfigError:
    if name in producer_options():
        return ConfigError(name, f"is an option of the producer: config={{{name!r}: ...}}", f"{name}=")
    return unknown(name, known, FOREIGN_OF_PROJECT)
