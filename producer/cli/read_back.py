"""Logs as the commands print them in JSON, to be sent again: time, topic, source and tags are beside the fields.

Example::

    {"__time__": "1700000000", "__time_ns_part__": "5", "__topic__": "web", "__source__": "10.0.0.1",
     "__tag__:pod": "a", "level": "INFO"}

is the log ``{"level": "INFO"}`` of that moment, for the stream with that topic and source and the tag ``pod``. A tag
that the producer or LogHub gives each LogGroup anew is left out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from ..client.producer import Producer
from ..client.stream import Stream
from ..model.records import LogItem
from ..wire.reserved import RESERVED_NAMES, TAG_PREFIX

#: Tags of one LogGroup, such as of its place among those of a producer.
_OF_THE_GROUP = frozenset({"__pack_id__", "__receive_time__", "__client_ip__"})
#: Streams that are kept; another one of the same topic, source and tags costs little.
_MOST_STREAMS = 1000
#: The characters of a number of seconds or nanoseconds.
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class ReadBack:
    """One log and the stream it is for.

    :ivar item: the log.
    :ivar topic: the stream's topic; None if the log has none.
    :ivar source: likewise.
    :ivar tags: the tags of the stream.
    """

    item: LogItem
    topic: str | None
    source: str | None
    tags: tuple[tuple[str, str], ...]


def read_back(row: Mapping[str, object]) -> ReadBack | dict[str, object]:
    """Take time, topic, source and tags out of a row; a row without any of them is a log as it is.

    :raises ValueError: one of them cannot be that.
    """
    if not any(map(_is_reserved, row)):
        return dict(row)
    fields = {name: value for name, value in row.items() if not _is_reserved(name)}
    tags = {name.removeprefix(TAG_PREFIX): _text(row, name) for name in row if name.startswith(TAG_PREFIX)}
    kept = tuple((name, text) for name, text in tags.items() if name not in _OF_THE_GROUP)
    time, nanos = _number(row, "__time__"), _number(row, "__time_ns_part__")
    item = LogItem(fields, time=time, time_ns=nanos if time is not None else None)
    topic, source = (_text(row, name) if name in row else None for name in ("__topic__", "__source__"))
    return ReadBack(item, topic, source, kept)


def _is_reserved(name: str) -> bool:
    return name in RESERVED_NAMES or name.startswith(TAG_PREFIX)


def _text(row: Mapping[str, object], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text")  # of the text
    return value


def _number(row: Mapping[str, object], name: str) -> int | None:
    if name not in row:
        return None
    text = str(row[name])
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ValueError(f"{name} is {text[:64]!r}: it must be a whole number, as the commands print it")
    return int(text)


class Streams:
    """The streams of logs that were read back; those used last are kept.

    :param topic: of all logs, in place of their own; empty for their own.
    :param source: likewise; None for their own.
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
