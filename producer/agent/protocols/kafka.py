"""Settings of librdkafka: whether it takes them is asked before anything starts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...clock import Clock
from ...errors import ConfigError
from ...loggers import get_logger
from ..options import missing_file
from ..repeated import RepeatedLog

_log = get_logger("producer.agent.kafka")

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
        import confluent_kafka  # noqa: PLC0415  # an extra
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
        self._repeated = RepeatedLog(clock)

    def log(self, level: int, message: str, *arguments: object) -> None:
        """As a logger's; what stands in the log already is told every ten seconds at most."""
        text = message % arguments if arguments else message
        if level < logging.WARNING:
            _log.log(level, "%s", text)
        elif (more := self._repeated.due(_ToldError(text))) is not None:
            _log.log(level, "%s%s", text, more)


class _ToldError(Exception):
    """What the client says."""


class _Silent:
    """What would be a logger: the error says it, too."""

    def log(self, *_: object) -> None:
        """Nothing."""


def missing_files(settings: Mapping[str, str]) -> Iterator[ConfigError]:
    """Files that they name, and nobody can read."""
    for name, value in settings.items():
        if name.startswith("ssl.") and name.endswith(_FILES):
            yield from missing_file(f"config.{name}", value)


def _words_of(error: Exception) -> str:
    told = error.args[0] if error.args else error
    text = told.str() if hasattr(told, "str") else str(told)
    return _VALUE.sub("", text)
