"""Read the JSON that commands print back into logs, with time, topic, source and tags.

For example, this row::

    {"__time__": "1700000000", "__time_ns_part__": "5", "__topic__": "web", "__source__": "10.0.0.1",
     "__tag__:pod": "a", "level": "INFO"}

becomes the log ``{"level": "INFO"}`` with that time, for the stream with that topic and source and the tag ``pod``.
Tags that the producer or LogHub adds to each LogGroup are left out, and so are the values that the files of a
producer's ``FileSink`` and ``fallback`` add to each line.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from ..client.producer import Producer
from ..client.stream import Stream
from ..model.records import LogItem
from ..wire.reserved import RESERVED_NAMES, TAG_PREFIX

#: Tags that the producer or LogHub adds to each LogGroup.
_GROUP_TAGS = frozenset({"__pack_id__", "__receive_time__", "__client_ip__"})
#: Values that the lines of a producer's files have besides.
_OF_FILES = frozenset({"__project__", "__logstore__", "__error_code__", "__request_id__"})
#: The limit of cached streams. Creating one again costs little.
_MOST_STREAMS = 1000
#: The limit of digits of seconds and nanoseconds.
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class ReadBack:
    """One log, and its stream.

    :ivar item: the log.
    :ivar topic: the stream's topic; None if the log has none.
    :ivar source: the stream's source; None if the log has none.
    :ivar tags: the stream's tags.
    """

    item: LogItem
    topic: str | None
    source: str | None
    tags: tuple[tuple[str, str], ...]


def read_back(row: Mapping[str, object]) -> ReadBack | dict[str, object]:
    """Split a row into a log and its stream. A row without time, topic, source and tags is returned as the log.

    :raises ValueError: one of these values is invalid.
    """
    if not any(map(_is_reserved, row)):
        return dict(row)
    fields = {name: value for name, value in row.items() if not _is_reserved(name) and name not in _OF_FILES}
    tags = {name.removeprefix(TAG_PREFIX): _text(row, name) for name in row if name.startswith(TAG_PREFIX)}
    kept = tuple((name, text) for name, text in tags.items() if name not in _GROUP_TAGS)
    time, nanos = _number(row, "__time__"), _number(row, "__time_ns_part__")
    item = LogItem(fields, time=time, time_ns=nanos if time is not None else None)
    topic, source = (_text(row, name) if name in row else None for name in ("__topic__", "__source__"))
    return ReadBack(item, topic, source, kept)


def _is_reserved(name: str) -> bool:
    return name in RESERVED_NAMES or name.startswith(TAG_PREFIX)


def _text(row: Mapping[str, object], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text")  # its value is invalid, whatever its type
    return value


def _number(row: Mapping[str, object], name: str) -> int | None:
    if name not in row:
        return None
    text = str(row[name])
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ValueError(f"{name} is {text[:64]!r}: it must be a whole number of at most {_DIGITS} digits")
    return int(text)


class Streams:
    """A cache of the streams of logs that were read back.

    :param topic: the topic of all logs; empty to keep their own.
    :param source: the source of all logs; None to keep their own.
    """

    def __init__(self, producer: Producer, place: tuple[str, str], topic: str, source: str | None) -> None:
        self._producer, self._place, self._topic, self._source = producer, place, topic, source
        self._kept = OrderedDict[tuple[object, ...], Stream]()
        self.plain = producer.stream(*place, topic=topic, source=source)

    def of(self, log: ReadBack) -> Stream:
        """Return the stream of a log.

        :raises InvalidArgumentError: the topic, the source or a tag cannot be sent.
        """
        topic = self._topic or log.topic or ""
        source = log.source if self._source is None else self._source
        key = (topic, source, log.tags)
        stream = self._kept.get(key)
        if stream is None:
            stream = self._producer.stream(*self._place, topic=topic, source=source, tags=dict(log.tags))
            self._kept[key] = stream
            if len(self._kept) > _MOST_STREAMS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return stream
