"""Outlet: where the logs of an integration go: a stream, and what becomes of a log that finds no place in it.

Code that logs is not stopped for what becomes of the log. So nothing is raised here: a log that cannot be enqueued is
counted by reason, reported in sums and at the end, and given to a fallback if there is one.
"""

from __future__ import annotations

import _thread
import inspect
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypedDict

from ..client import at_exit
from ..client.producer import Producer
from ..client.stream import Stream
from ..model.config import ProducerConfig, ProjectConfig, producer_options
from ..model.credentials import EnvironmentCredentials
from ..model.errors import ConfigError, InvalidArgumentError, LogSizeTooLargeError, ProducerClosedError, ProducerError
from ..model.interfaces import CredentialsProvider
from ..model.options import unknown
from ..model.records import LogItem
from ..model.results import Callback
from ..runtime.forks import Stage, watch_fork
from ..runtime.internal_threads import at_work
from ..runtime.loggers import get_logger
from ..text.migration_hints import FOREIGN_OF_PROJECT
from ..text.plural import counted
from .figures import check_producer
from .values import message_of, sendable

_log = get_logger("loghub.integrations")

#: Between two lines about logs that were dropped, seconds.
_INTERVAL = 60.0

OnFull = Literal["drop", "wait"]
#: What takes the log that was not sent.
Fallback = Callable[[], object]

#: Every outlet of the process; see :func:`flush_all`.
_outlets: weakref.WeakSet[Outlet] = weakref.WeakSet()


class OutletOptions(TypedDict, total=False):
    """Options that every integration takes by name, as :class:`Outlet` describes them."""

    topic: str
    source: str | None
    tags: Mapping[str, str] | None
    endpoint: str | None
    access_key_id: str | None
    access_key_secret: str | None
    security_token: str | None
    credentials: CredentialsProvider | None
    config: ProducerConfig | Mapping[str, Any] | None
    flush_timeout: float | None
    drain_on_sigterm: bool


class Outlet:
    """The stream that an integration sends to, with a producer that is given or the outlet's own.

    :param producer: the producer to send with; its owner closes it. None makes one of ``endpoint`` and a key, which
        :meth:`close` closes; a log after that makes another one, unless the interpreter is exiting.
    :param project: where logs go; likewise ``logstore``, ``topic``, ``source`` and ``tags``.
    :param on_full: ``drop`` drops a log at once when memory is full; ``wait`` waits as long as the producer's
        ``max_block_ms`` says, and drops it then.
    :param endpoint: such as ``https://cn-hangzhou.log.aliyuncs.com``.
    :param access_key_id: the key; without it, and without ``credentials``, it is read from ``LOGHUB_ACCESS_KEY_ID`` and
        ``LOGHUB_ACCESS_KEY_SECRET`` in the environment.
    :param credentials: a credentials provider.
    :param config: options of the producer that is made, or a mapping of them (whose values may be text).
    :param flush_timeout: seconds that :meth:`flush`, and likewise :meth:`close`, may take; None is no limit.
    :param drain_on_sigterm: True delivers what was logged before SIGTERM ends the process, where that can be done:
        see :func:`producer.client.at_exit.drain_at_sigterm`.
    :raises ConfigError: both a producer and what one is made of; a wrong option.
    :ivar says_aside: True to log on another thread: a sink of loguru may not log while it is called.
    """

    says_aside = False

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
        credentials: CredentialsProvider | None = None,
        config: ProducerConfig | Mapping[str, Any] | None = None,
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
        self._make = None if producer is not None else _maker(project, endpoint, key, config)
        if producer is not None and (endpoint is not None or config is not None or any(key.values())):
            raise ConfigError("producer", "must be None where an endpoint, a key or a config is given", producer.name)
        self._options = {"topic": topic, "source": source, "tags": tags, "max_block_ms": _max_block[on_full]}
        self._place = str(project), str(logstore)
        self.flush_timeout = flush_timeout
        self._closed = False
        #: Logs that came when a call of the producer was interrupted to make them.
        self._deferred: deque[tuple[LogItem, Fallback | None, Callback | None]] = deque()
        self._counting = threading.RLock()  # guards the next ones; a finalizer that logs may interrupt its owner
        self._dropped = self._told = 0
        self._told_at = float("-inf")
        self._attach(self._make() if self._make is not None else producer)
        watch_fork(self, Stage.SINKS)
        _outlets.add(self)
        if drain_on_sigterm:
            at_exit.drain_at_sigterm()

    def _attach(self, producer: Any) -> None:
        self.producer: Producer = producer
        self.stream: Stream = producer.stream(*self._place, **self._options)

    @property
    def dropped(self) -> int:
        """Logs that could not be enqueued; those that a fallback took are among them."""
        return self._dropped

    def send(self, log: LogItem, fallback: Fallback | None = None, callback: Callback | None = None) -> None:
        """Send a log; never raises what the producer raises.

        :param log: its values may be anything.
        :param fallback: called if it cannot be enqueued.
        :param callback: as that of :meth:`Producer.send`.
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
        elif type(error) is ProducerError:  # on this thread a call of the producer was interrupted: not now
            self._defer(log, fallback, callback)
        else:
            self.drop(error, fallback)

    def _send_as_text(self, stream: Stream, log: LogItem, fallback: Fallback | None, callback: Callback | None) -> None:
        text = LogItem(sendable(dict(log.contents)), *_possible(log))
        try:
            stream.send(text, callback=callback)
        except InvalidArgumentError as error:
            self.drop(error, fallback)
        except ProducerError as error:
            self._refused(stream, text, error, fallback, callback)

    def _reopen(self, refusing: Stream) -> bool:
        """Replace the outlet's own producer, which was closed; return True if there is another one.

        :meth:`close` has closed it, as every ``dictConfig`` closes the handlers of the one before; or the interpreter's
        exit or a signal did, and the program logs on. A log that comes after both is dropped.
        """
        if self._make is None or (self._closed and at_exit.exited()):
            return False
        with self._counting:
            if self.stream is refusing:
                self._attach(self._make())
                self._closed = False
        return True

    def _defer(self, log: LogItem, fallback: Fallback | None, callback: Callback | None) -> None:
        """Let another thread send it. A bare one: starting a ``threading.Thread`` takes locks."""
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
        """Count a log that could not be made or enqueued, and report such logs once in :data:`_INTERVAL`.

        :param error: the reason; one that is not a producer's is a bug, of this package or of a value in the log.
        """
        if not isinstance(error, ProducerError):
            error = ProducerError(f"{type(error).__name__}: {message_of(error)}")
        self.producer._note_dropped(error.drop_reason)
        with self._counting:
            self._dropped += 1
            now = time.monotonic()
            due = now - self._told_at >= _INTERVAL
            if due:
                logs, self._told, self._told_at = self._dropped - self._told, self._dropped, now
        if due:
            self._say(f"{counted(logs, 'log')} could not be enqueued: {error}")
        if fallback is not None:
            fallback()

    def _say(self, text: str) -> None:
        if not self.says_aside:
            _log.warning("%s/%s: %s", *self._place, text)
            return
        with suppress(RuntimeError):  # the interpreter is exiting
            _thread.start_new_thread(self._say_aside, (text,))

    def _say_aside(self, text: str) -> None:
        with at_work():
            _log.warning("%s/%s: %s", *self._place, text)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything sent before is delivered or has failed; whether it was in time. If not, it is said.

        :param timeout: seconds; None is ``flush_timeout``; 0 only makes sure that all of it is on its way.
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
        """Close the outlet's own producer, and report what was dropped. May be called again.

        :param wait: True to wait until it is closed; else another thread closes it.
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
        if producer.closed or at_exit.exited():  # else its own end reports them
            producer._report_losses()

    def _renew_in_child(self) -> None:
        """A thread of the parent may hold the lock, and what it has deferred is the parent's to send."""
        self._counting = threading.RLock()
        self._deferred = deque()


def _check_options(project: object, logstore: object, on_full: object, flush_timeout: object) -> None:
    """:raises ConfigError: one of them is wrong."""
    for name, value in (("project", project), ("logstore", logstore)):
        if not isinstance(value, str) or not value:
            raise ConfigError(name, "must be text that is not empty", value)
    if on_full not in ("drop", "wait"):
        raise ConfigError("on_full", "must be drop or wait", on_full)
    if not _is_timeout(flush_timeout):
        raise ConfigError("flush_timeout", "must be None or seconds, at least 0", flush_timeout)


def flush_all(timeout: float) -> bool:
    """Flush every outlet of the process; return True if all was delivered, or has failed, in time.

    :param timeout: seconds, for all of them together.
    """
    end = time.monotonic() + timeout
    in_time = [outlet.flush(max(0.001, end - time.monotonic())) for outlet in list(_outlets)]
    return all(in_time)


_max_block: dict[OnFull, int | None] = {"drop": 0, "wait": None}


def _maker(
    project: str | None, endpoint: str | None, key: Mapping[str, Any], config: ProducerConfig | Mapping[str, Any] | None
) -> Callable[[], Producer]:
    """What makes a producer of these.

    :raises ConfigError: they make none.
    """
    if endpoint is None:
        raise ConfigError("endpoint", "must be given where no producer is", endpoint)
    given = {name: value for name, value in key.items() if value is not None}
    where = ProjectConfig(str(project), endpoint=endpoint, **(given or {"credentials": _of_the_environment()}))
    if not (config is None or isinstance(config, ProducerConfig | Mapping)):
        raise ConfigError("config", "must be a ProducerConfig, or a mapping of its options", config)
    if isinstance(config, Mapping):
        # One by one: what logging.config gives converts a value when it is asked for.
        config = ProducerConfig.from_mapping({name: config[name] for name in config})
    return lambda: Producer(where, config=config)


def _of_the_environment() -> EnvironmentCredentials:
    """What reads the key from the environment.

    :raises ConfigError: there is none: it would be missed only when the first log is to be sent.
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
    """Its time, if that can be sent."""
    second: Any = log.time
    nanos = log.time_ns
    return (second, nanos) if isinstance(second, int) and 0 <= second < 2**32 else (None, None)


class HasOutlet:
    """An integration that sends through an outlet."""

    _outlet: Outlet

    def _open_outlet(
        self, producer: Producer | None, project: str | None, logstore: str | None, **options: Any
    ) -> Outlet:
        """Make the outlet.

        :raises ConfigError: a wrong option, or an unknown one.
        """
        known = options_of(type(self))
        for name in options:
            if name not in known:
                raise _unknown_option(name, known)
        return Outlet(producer, project, logstore, **options)

    @property
    def producer(self) -> Producer:
        """The producer that sends; another one after :meth:`close`, if the integration makes its own."""
        return self._outlet.producer

    @property
    def dropped(self) -> int:
        """How many logs could not be enqueued, those that a fallback got among them."""
        return self._outlet.dropped


def options_of(integration: type) -> list[str]:
    """The names of all arguments that an integration takes."""
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
