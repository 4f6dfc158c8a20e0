"""Outlet: where the logs of an integration go: a stream, and what becomes of a log that finds no place in it.

Whoever logs is not to be blamed, or stopped, for what becomes of the log. So nothing is raised here: what cannot be
sent is counted, said in sums, and given to a fallback if there is one.
"""

from __future__ import annotations

import _thread
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal, Never

from ..client import Producer
from ..config import ProducerConfig, ProjectConfig, option_names
from ..credentials import EnvironmentCredentials
from ..errors import (
    ConfigError,
    InvalidArgumentError,
    LogSizeTooLargeError,
    ProducerClosedError,
    ProducerError,
)
from ..forks import Stage, watch_fork
from ..interfaces import CredentialsProvider
from ..loggers import get_logger
from ..own_threads import at_work
from ..records import LogItem
from ..stream import Stream
from ..wording import counted
from .figures import check_producer
from .values import sendable

_log = get_logger("producer.integrations")

#: Between two lines about logs that were dropped, seconds.
_INTERVAL = 60.0

OnFull = Literal["drop", "wait"]
#: What takes the log that was not sent.
Fallback = Callable[[], object]


class Outlet:
    """See the module. The handlers and sinks of ``producer.integrations`` pass their options on to it.

    :param producer: what sends; whoever made it closes it. None makes one of ``endpoint`` and a key, which
        :meth:`close` closes.
    :param project: where logs go; likewise ``logstore``, ``topic``, ``source`` and ``tags``.
    :param on_full: what happens to a log when there is no memory: ``drop`` it at once; or ``wait`` as long as the
        producer's ``max_block_ms`` says, and drop it then.
    :param endpoint: such as ``https://cn-hangzhou.log.aliyuncs.com``.
    :param access_key_id: the key; without it, and without ``credentials``, it is read from ``LOGHUB_ACCESS_KEY_ID`` and
        ``LOGHUB_ACCESS_KEY_SECRET`` in the environment.
    :param credentials: a credentials provider.
    :param config: options of the producer that is made, or a mapping of them (whose values may be text).
    :param flush_timeout: seconds that :meth:`flush`, and likewise :meth:`close`, may take; None is no limit.
    :raises ConfigError: both a producer and what one is made of; a wrong option.
    :ivar says_aside: whether another thread says what became of logs: for a library that lets nobody log who is called
        to take a log.
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
        **unknown: Never,
    ) -> None:
        if unknown:
            raise _unknown_option(next(iter(unknown)))
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
        self._deferred: deque[tuple[LogItem, Fallback | None]] = deque()
        self._counting = threading.RLock()  # guards the next ones; a finalizer that logs may interrupt its owner
        self._dropped = self._told = 0
        self._told_at = float("-inf")
        self._attach(self._make() if self._make is not None else producer)
        watch_fork(self, Stage.SINKS)

    def _attach(self, producer: Any) -> None:
        self.producer: Producer = producer
        self.stream: Stream = producer.stream(*self._place, **self._options)

    @property
    def dropped(self) -> int:
        """Logs that could not be handed to the producer; those that a fallback took are among them."""
        return self._dropped

    def send(self, log: LogItem, fallback: Fallback | None = None) -> None:
        """Send a log; never raises what the producer raises.

        :param log: its values may be anything.
        :param fallback: called if it cannot be sent.
        """
        stream = self.stream
        try:
            stream.send(log)
        except ProducerError as error:
            self._refused(stream, log, error, fallback)

    def _refused(self, stream: Stream, log: LogItem, error: ProducerError, fallback: Fallback | None) -> None:
        if isinstance(error, InvalidArgumentError) and not isinstance(error, LogSizeTooLargeError):
            self._send_as_text(stream, log, fallback)
        elif isinstance(error, ProducerClosedError) and self._make is not None and not self._closed:
            self._renew(stream, self._make)
            self.send(log, fallback)
        elif type(error) is ProducerError:  # on this thread a call of the producer was interrupted: not now
            self._defer(log, fallback)
        else:
            self._drop(error, fallback)

    def _send_as_text(self, stream: Stream, log: LogItem, fallback: Fallback | None) -> None:
        text = LogItem(sendable(dict(log.contents)), *_possible(log))
        try:
            stream.send(text)
        except InvalidArgumentError as error:
            self._drop(error, fallback)
        except ProducerError as error:
            self._refused(stream, text, error, fallback)

    def _renew(self, refusing: Stream, make: Callable[[], Producer]) -> None:
        """The exit of the interpreter closed the own producer, and somebody still logs: make another one."""
        with self._counting:
            if self.stream is refusing:
                self._attach(make())

    def _defer(self, log: LogItem, fallback: Fallback | None) -> None:
        """Let another thread send it. A bare one: starting a ``threading.Thread`` takes locks."""
        self._deferred.append((log, fallback))
        try:
            _thread.start_new_thread(self._send_deferred, ())
        except RuntimeError:  # the interpreter is exiting: whoever flushes next sends it
            return

    def _send_deferred(self) -> None:
        while self._deferred:
            try:
                self.send(*self._deferred.popleft())
            except IndexError:
                return

    def _drop(self, error: ProducerError, fallback: Fallback | None) -> None:
        with self._counting:
            self._dropped += 1
            now = time.monotonic()
            due = now - self._told_at >= _INTERVAL
            if due:
                logs, self._told, self._told_at = self._dropped - self._told, self._dropped, now
        if due:
            self._say(f"{counted(logs, 'log')} could not be handed to the producer: {error}")
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
        """Send nothing more; closes the producer if it was made here. May be called again.

        :param wait: until it is closed; else another thread closes it.
        """
        self._send_deferred()
        self._closed = True
        if self._make is None:
            return
        if wait:
            self._close()
        else:
            threading.Thread(target=self._close, name=f"{self.producer.name}-closer", daemon=True).start()

    def _close(self) -> None:
        try:
            self.producer.close(self.flush_timeout)
        except ProducerError as error:
            _log.warning("%s/%s: %s", *self._place, error)

    def renew_in_child(self) -> None:
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


def _unknown_option(name: str) -> ConfigError:
    if name in option_names():
        return ConfigError(name, f"is an option of the producer: config={{{name!r}: ...}}", f"{name}=")
    known = [each for each in inspect.signature(Outlet).parameters if each != "unknown"]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(known)}"
    return ConfigError(name, f"unknown option; {hint}", name)


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
        raise ConfigError("access_key_id", f"must be given, or {error.name} be set in the environment", None) from None
    return credentials


def _is_timeout(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and value >= 0)


def _possible(log: LogItem) -> tuple[Any, Any]:
    """Its time, if that can be sent."""
    second: Any = log.time
    nanos = log.time_ns
    return (second, nanos) if isinstance(second, int) and 0 <= second < 2**32 else (None, None)


class HasOutlet:
    """What users see of the outlet that an integration has."""

    _outlet: Outlet

    @property
    def producer(self) -> Producer:
        """What sends."""
        return self._outlet.producer

    @property
    def dropped(self) -> int:
        """How many logs could not be handed to the producer, those that a fallback got among them."""
        return self._outlet.dropped
