"""A sink of loguru that sends messages to LogHub.

::

    sink = LogHubSink(producer, "my-project", "app-log")
    loguru.logger.add(sink, format="{message}")

``enqueue=True`` is not needed, because sending does not block. The sink has no ``flush``, because loguru would call it
after each message; ``sink.producer.flush()`` waits for delivery.
"""

from __future__ import annotations

from typing import Any, Unpack

from ..client.producer import Producer
from ..model.records import LogItem
from .exceptions import exception_fields
from .feedback import feeds_back
from .outlet import HasOutlet, OnFull, OutletOptionsWithFallback
from .severity import severity_number, severity_text

__all__ = ["LogHubSink"]


class LogHubSink(HasOutlet):
    """A sink that sends each message with the time and the fields of its record.

    The fields are ``message``, ``severity_text``, ``severity_number``, ``logger``, the place in the code, thread and
    process, the exception, and the values from ``bind``, ``contextualize`` and keyword arguments. Such a value is
    named ``extra.NAME`` if a field has its name. The parameters are those of
    :class:`~producer.integrations.outlet.Outlet`.

    :raises ConfigError: an option is invalid.
    """

    def __init__(
        self,
        producer: Producer | None = None,
        project: str | None = None,
        logstore: str | None = None,
        *,
        on_full: OnFull = "drop",
        **options: Unpack[OutletOptionsWithFallback],
    ) -> None:
        self._outlet = self._open_outlet(producer, project, logstore, on_full=on_full, **options)
        self._outlet.logs_on_thread = True

    def write(self, message: Any) -> None:
        """Send a message of loguru: text with an attribute ``record``."""
        record = message.record
        if feeds_back(str(record["name"]), record["thread"].id):  # records of ``logging`` may be forwarded here
            return
        try:
            log = _log_of(record)
        except Exception as error:
            self._outlet.drop(error)
            raise  # loguru reports it
        self._outlet.send(log)

    def stop(self) -> None:
        """Close the sink's own producer, if any. loguru calls it when the sink is removed, and at exit.

        A sink that is added again opens again.
        """
        self._outlet.close()


def _log_of(record: Any) -> LogItem:
    fields = _fields_of(record)
    for name, value in record["extra"].items():
        fields[f"extra.{name}" if name in fields else name] = value
    moment = record["time"]
    return LogItem(fields, int(moment.timestamp()), moment.microsecond * 1000)


def _fields_of(record: Any) -> dict[str, Any]:
    fields = {
        "message": record["message"],
        "severity_text": severity_text(record["level"].name),
        "severity_number": severity_number(record["level"].no),
        "logger": record["name"],
        "code.file.path": record["file"].path,
        "code.function.name": record["function"],
        "code.line.number": record["line"],
        "thread.name": record["thread"].name,
        "process.pid": record["process"].id,
    }
    error = record["exception"]
    return fields if error is None else fields | exception_fields(tuple(error))
