"""loguru: a sink that sends messages to LogHub.

::

    sink = LogHubSink(producer, "my-project", "app-log")
    loguru.logger.add(sink, format="{message}")

loguru hands each message to it with its record; ``enqueue=True`` is not needed, since sending does not block. A sink
has no ``flush``, which loguru would call after each message: ``sink.producer.flush()`` waits for delivery.
"""

from __future__ import annotations

import traceback
from typing import Any

from ..client import Producer
from ..own_threads import is_at_work
from ..records import LogItem
from .outlet import HasOutlet, OnFull, Outlet
from .severity import severity_number
from .values import said

__all__ = ["LogHubSink"]

#: Where records of ``logging`` are brought to loguru, those of a producer's own threads must not come back to it.
_CALLED = ("producer", "urllib3", "requests")


class LogHubSink(HasOutlet):
    """Sends each message with the time and the fields of its record: ``message``, ``severity_text``,
    ``severity_number``, ``logger``, the place in the code, thread and process, the exception, and what ``bind``,
    ``contextualize`` and keyword arguments have added (under ``extra.NAME`` where a field has that name).

    :param producer: as of :class:`~producer.integrations.outlet.Outlet`, as are the others.
    :raises ConfigError: a wrong option.
    """

    def __init__(
        self,
        producer: Producer | None = None,
        project: str | None = None,
        logstore: str | None = None,
        *,
        on_full: OnFull = "drop",
        **options: Any,
    ) -> None:
        self._outlet = Outlet(producer, project, logstore, on_full=on_full, **options)
        self._outlet.says_aside = True

    def write(self, message: Any) -> None:
        """Send a message of loguru's, which is text with an attribute ``record``."""
        record = message.record
        package = str(record["name"]).partition(".")[0]
        if package in _CALLED and is_at_work(record["thread"].id):
            return
        fields = _fields_of(record)
        for name, value in record["extra"].items():
            fields[f"extra.{name}" if name in fields else name] = value
        moment = record["time"]
        self._outlet.send(LogItem(fields, int(moment.timestamp()), moment.microsecond * 1000))

    def stop(self) -> None:
        """Close the producer, if it was made here; loguru calls it when the sink is removed, and at the exit."""
        self._outlet.close()


def _fields_of(record: Any) -> dict[str, Any]:
    fields = {
        "message": record["message"],
        "severity_text": record["level"].name,
        "severity_number": severity_number(record["level"].no),
        "logger": record["name"],
        "code.file.path": record["file"].path,
        "code.function.name": record["function"],
        "code.line.number": record["line"],
        "thread.name": record["thread"].name,
        "process.pid": record["process"].id,
    }
    error = record["exception"]
    if error is not None and error.type is not None:
        fields["exception.type"] = f"{error.type.__module__}.{error.type.__qualname__}".removeprefix("builtins.")
        fields["exception.message"] = said(error.value)
        fields["exception.stacktrace"] = "".join(traceback.format_exception(*error))
    return fields
