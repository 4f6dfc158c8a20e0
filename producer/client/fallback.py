"""The ``fallback`` of a producer: a handler of ``logging``, a file, or a function that gets undelivered logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from ..model.errors import ConfigError
from ..model.interfaces import Delivery, Payload, Record
from ..model.records import StreamKey
from ..model.results import Result, Undelivered
from ..pipeline.settling.leftovers import Fallback
from ..sinks.file import FileSink
from ..wire.json_lines import json_lines
from ..wire.log_items import log_items

#: The option ``fallback``.
FallbackOption = logging.Handler | str | os.PathLike[str] | Callable[[Undelivered, Result], object]

#: The size at which a fallback's file is renamed, bytes.
FILE_BYTES = 64 * 1024 * 1024
#: The name of the records that a handler gets.
LOGGER = "loghub.undelivered"


def made_of(option: FallbackOption) -> Fallback:
    """Return the function for the pipeline.

    :raises ConfigError: the option has another type, or no file can be there.
    """
    if isinstance(option, logging.Handler):
        return _to_handler(option)
    if isinstance(option, str | os.PathLike):
        return _to_file(option)
    if not callable(option):
        raise ConfigError("fallback", "must be a handler of logging, the path of a file, or a function", option)
    return lambda key, records, result: option(Undelivered(key, tuple(log_items(records))), result)


def _lines(key: StreamKey, records: Sequence[Record], result: Result) -> bytes:
    more = {"__error_code__": result.error_code, "__request_id__": result.request_id}
    return json_lines(key, [bytes(record) for record in records], more)


def _to_file(path: str | os.PathLike[str]) -> Fallback:
    try:
        sink = FileSink(path, max_bytes=FILE_BYTES)
    except ConfigError as error:
        raise ConfigError("fallback", error.rule, error.value) from None

    def write(key: StreamKey, records: Sequence[Record], result: Result) -> None:
        body = _lines(key, records, result)
        sink.write(Delivery(key, None, Payload(body, len(body))))

    return write


def _to_handler(handler: logging.Handler) -> Fallback:
    def handle(key: StreamKey, records: Sequence[Record], result: Result) -> None:
        if handler.level > logging.ERROR:
            return
        for line in _lines(key, records, result).decode().splitlines():
            handler.handle(logging.LogRecord(LOGGER, logging.ERROR, __file__, 0, line, None, None))

    return handle
