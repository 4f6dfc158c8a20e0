"""Settings of librdkafka: whether it takes them is asked before anything starts."""

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
from .tls_files import WatchedFiles, tell_own

_log = get_logger("loghub.agent.kafka")

#: How names of settings end that name a file: one that is not there may be there later.
_FILES = (".location", ".path")
#: A value may be a secret that stands in the wrong place.
_VALUE = re.compile(r'(?<=Invalid value )".*" (?=for)', re.DOTALL)


def check_settings(client: str, settings: Mapping[str, Any]) -> None:
    """Where the client is installed; who needs it, and has it not, is told elsewhere.

    :param client: the class, ``Consumer`` or ``Producer``.
    :raises ConfigError: they are not taken.
    """
    try:
        import confluent_kafka
    except ImportError:
        return
    asked = {name: value for name, value in settings.items() if not name.endswith(_FILES) or "truststore" in name}
    asked.pop("bootstrap.servers", None)  # nobody is called
    try:
        made = getattr(confluent_kafka, client)(asked, logger=_Silent())
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        raise ConfigError("config", f"is not taken by the client: {_words_of(error)}", None) from error
    if client == "Consumer":
        made.close()


class ClientLog:
    """The client's log: while brokers are away it has the same line many times a second.

    :param clock: of the pauses between two of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._repeated = RateLimitedLog(clock)

    def log(self, level: int, message: str, *arguments: object) -> None:
        """As a logger's; what stands in the log already is told every ten seconds at most."""
        text = message % arguments if arguments else message
        if level < logging.WARNING:
            _log.log(level, "%s", text)
        elif (more := self._repeated.due_error(_ToldError(text))) is not None:
            _log.log(level, "%s%s", text, more)


class _ToldError(Exception):
    """What the client says."""


class _Silent:
    """What would be a logger: the error says it, too."""

    def log(self, *_: object) -> None:
        """Nothing."""


def missing_files(settings: Mapping[str, str]) -> Iterator[ConfigError]:
    """Files that they name, and nobody can read."""
    for name, value in _files_of(settings).items():
        yield from missing_file(f"config.{name}", value)


class RenewedClient:
    """Makes a client, and another one once the files of TLS are others: librdkafka reads them when it begins.

    :param make: makes one; raises what librdkafka does.
    :param settings: that name the files.
    :param who: for messages.
    """

    def __init__(self, make: Callable[[], Any], settings: Mapping[str, str], who: str, context: Context) -> None:
        self._make, self._who, self._context = make, who, context
        files = {name: Path(path) for name, path in _files_of(settings).items()}
        self._own = files.get("ssl.certificate.location"), files.get("ssl.key.location")
        self._files = WatchedFiles(files.values(), context.clock)

    def first(self) -> Any:
        """The client to begin with."""
        client = self._make()
        tell_own(self._context, self._who, *self._own)
        return client

    def renewed(self) -> Any | None:
        """One of new files; None if they are the same, or of no use yet."""
        if not self._files.changed():
            return None
        from confluent_kafka import KafkaException

        try:
            client = self._make()
        except KafkaException as error:
            if self._files.is_news:
                _log.error("%s goes on with the certificate that it has: %s", self._who, _words_of(error))
            return None
        self._files.take_up(self._who)
        tell_own(self._context, self._who, *self._own)
        return client


def _files_of(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name.startswith("ssl.") and name.endswith(_FILES)}


def _words_of(error: Exception) -> str:
    told = error.args[0] if error.args else error
    text = told.str() if hasattr(told, "str") else str(told)
    return _VALUE.sub("", text)
