"""Write each event to this process's log, at INFO: its headers, and the first bytes of its body.

Modelled on Flume's ``LoggerSink``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...model.options import option
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch
from ..events.interfaces import Context

_log = get_logger("loghub.agent.sink.logger")


class LoggerSink:
    """Sink that logs the headers and first bytes of each event. Modelled on Flume's ``LoggerSink``."""

    most_events, most_bytes = 1000, 1 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``logger``."""

        max_bytes_to_log: int = option(256, least=1, unit="bytes", doc="maximum bytes of a body to log")

    def __init__(self, options: Options, context: Context) -> None:
        self._most, self._name = options.max_bytes_to_log, context.name

    def write(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            for headers, body in batch.events():
                text = body[: self._most].decode(errors="backslashreplace")
                more = "" if len(body) <= self._most else f" … ({len(body)} bytes)"
                _log.info("%s: %s %r%s", self._name, headers, text, more)

    def close(self) -> None:
        """Do nothing."""
