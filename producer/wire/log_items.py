"""Decodes records back to logs that can be sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..model.records import LogItem
from .read_log_group import fields_of


def log_items(records: Iterable[bytes | bytearray | memoryview]) -> Iterator[LogItem]:
    """Yield the logs of records, each with its time; a value that is not UTF-8 stays bytes.

    :param records: results of :func:`~producer.wire.log_group.encode_log`; each may hold several logs.
    """
    for joined in records:
        for _, log in fields_of(bytes(joined)):
            if isinstance(log, bytes):
                yield _item(log)


def _item(log: bytes) -> LogItem:
    time, nanos, contents = 0, 0, []
    for number, value in fields_of(log):
        if isinstance(value, bytes):
            name, text = (part for _, part in fields_of(value) if isinstance(part, bytes))
            contents.append((name.decode(), _text(text)))
        elif number == 1:
            time = value
        else:
            nanos = value
    return LogItem(contents, time, nanos)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
