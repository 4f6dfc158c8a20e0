"""Settings of librdkafka, checked before anything starts, and clients renewed when TLS files change."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...model.errors import ConfigError
from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..config.options import missing_file
from ..events.interfaces import Context
from .tls_files import WatchedFiles, report_expiry

_log = get_logger("loghub.agent.kafka")

#: Suffixes of settings that name a file. They are not checked: a missing file may be created later.
_FILES = (".location", ".path")
#: The value in an error, removed from messages since it may be a misplaced secret.
_VALUE = re.compile(r'(?<=Invalid value )".*" (?=for)', re.DOTALL)


def check_settings(client: str, settings: Mapping[str, Any]) -> None:
    """Check settings with the client's class, if the package is installed.

    :param client: the class, ``Consumer`` or ``Producer``.
    :raises ConfigError: the client refuses them.
    """
    try:
        import confluent_kafka
    except ImportError:
        return
    checked = {name: value for name, value in settings.items() if not name.endswith(_FILES) or "truststore" in name}
    checked.pop("bootstrap.servers", None)  # do not connect
    try:
        made = getattr(confluent_kafka, client)(checked, logger=_Silent())
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        raise ConfigError("config", f"is refused by librdkafka: {_words_of(error)}", None) from error
    if client == "Consumer":
        made.close()


class ClientLog:
    """Logger for the client, which repeats lines many times a second while brokers are unreachable.

    :param clock: the clock for the limit.
    """

    def __init__(self, clock: Clock) -> None:
        self._repeated = RateLimitedLog(clock)

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line; repeated warnings at most once in ten seconds."""
        text = message % arguments if arguments else message
        if level < logging.WARNING:
            _log.log(level, "%s", text)
        elif (more := self._repeated.due_error(_RepeatedLineError(text))) is not None:
            _log.log(level, "%s%s", text, more)


class _RepeatedLineError(Exception):
    """A line of the client's log."""


class _Silent:
    """Logger that drops all lines, since the client's error repeats them."""

    def log(self, *_: object) -> None:
        """Drop a line."""


def missing_files(settings: Mapping[str, str]) -> Iterator[ConfigError]:
    """Yield an error for each file named by settings that cannot be read."""
    for name, value in _files_of(settings).items():
        yield from missing_file(f"config.{name}", value)


class RenewedClient:
    """Maker of a component's client, and of a new client when the TLS files change: a client reads them only at its
    start.

    :param make: makes a client; raises librdkafka's errors.
    :param settings: the settings that name the files.
    :param component: the component's name, for messages.
    """

    def __init__(self, make: Callable[[], Any], settings: Mapping[str, str], component: str, context: Context) -> None:
        self._make, self._component, self._context = make, component, context
        files = {name: Path(path) for name, path in _files_of(settings).items()}
        self._own = files.get("ssl.certificate.location"), files.get("ssl.key.location")
        self._files = WatchedFiles(files.values(), context.clock)

    def first(self) -> Any:
        """Return the first client."""
        client = self._make()
        report_expiry(self._context, self._component, *self._own)
        return client

    def renewed(self) -> Any | None:
        """Return a client with new files; None if they are the same, or cannot be used yet."""
        if not self._files.changed():
            return None
        from confluent_kafka import KafkaException

        try:
            client = self._make()
        except KafkaException as error:
            if self._files.has_changed_again:
                _log.error("%s keeps its current certificate: %s", self._component, _words_of(error))
            return None
        self._files.mark_used(self._component)
        report_expiry(self._context, self._component, *self._own)
        return client


def _files_of(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name.startswith("ssl.") and name.endswith(_FILES)}


def _words_of(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return _VALUE.sub("", text)
