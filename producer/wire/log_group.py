"""The LogGroup message, encoded by hand.

A LogGroup is a sequence of protobuf fields, and fields concatenate: a batch's body is the join of its records, each
the bytes of one ``Logs`` field, and a tail with topic, source and tags. A record is therefore encoded once, when it
is sent, and its size is then exact::

    LogGroup   0A <len> <Log>            Logs = 1, repeated        ┐ a record
    Log        08 <varint>               Time = 1, seconds         │
               12 <len> <Content>        Contents = 2, repeated    │
               25 <4 bytes, little>      Time_ns = 4, if not 0     ┘
    Content    0A <len> <key>  12 <len> <value>
    LogGroup   1A <len> <topic>          Topic = 3                 ┐
               22 <len> <source>         Source = 4                │ the tail
               32 <len> <LogTag>         LogTags = 6, repeated     ┘
    LogTag     0A <len> <key>  12 <len> <value>

Example: the log ``{"k": "v"}`` at second 1 is ``0A 0A  08 01  12 06  0A 01 6B  12 01 76``.

:class:`LogEncoder` is fast for what applications send over and over: dictionaries with the same field names and ASCII
text in them (see :mod:`.shape`). Everything else takes the general way.

Source: LogHub protocol, Protobuf; held to vectors made by the official SDK.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import InvalidArgumentError
from ..records import LogItem
from .protobuf import delimited, read_varint, varint
from .shape import MAX_NAME, Heads, Room, Shape, data_of
from .text import time_of

# How often a shape is seen before a function is generated for it, and how many are kept: names made up for each log
# must cost neither compilation nor memory. Once there is no room, another one has to be worth its compilation, and
# takes the place of those that are not used any more.
_SEEN_BEFORE_GENERATED = 8
_SEEN_BEFORE_REPLACING = 256
_MAX_SHAPES = 256
_MAX_SHAPES_COUNTED = 4096
_MAX_KEYS_KEPT = 4096


def encode_tail(topic: str, source: str, tags: Iterable[tuple[str, str]]) -> bytes:
    """The end of a LogGroup: topic and source (present even if empty, as the official SDK writes them) and tags."""
    parts = [delimited(0x1A, topic.encode()), delimited(0x22, source.encode())]
    parts += [delimited(0x32, _pair(name.encode(), value.encode())) for name, value in tags]
    return b"".join(parts)


def split_records(body: bytes) -> Iterator[bytes]:
    """The records of a joined body, one ``Logs`` field each, in order; the inverse of joining them."""
    position, end = 0, len(body)
    while position < end and body[position] == 0x0A:
        length, start = read_varint(body, position + 1)
        yield body[position : start + length]
        position = start + length


def _pair(key: bytes, value: bytes) -> bytes:
    return delimited(0x0A, key) + delimited(0x12, value)


class LogEncoder:
    """Turns logs into records; one a producer, used by any number of threads.

    Its caches are dictionaries that only grow to a bound, that of the shapes in bytes. Two threads that fill the same
    entry fill in the same value.
    """

    def __init__(self) -> None:
        #: What is known of logs with these names; of those that were sent often.
        self.shapes: dict[tuple[str, ...], Shape] = {}
        self._lock = threading.Lock()  # guards changes of shapes
        self._seen: dict[int, int] = {}  # by the hash of the names, which would occupy far more themselves
        self._keys: dict[str, bytes] = {}
        self._room = Room()
        self._heads = Heads(0)

    def encode(self, log: Mapping[str, Any] | LogItem, now: int) -> bytes:
        """The record of one log.

        :param log: a mapping of names to values (see :func:`~producer.records.text_of`), or a
            :class:`~producer.records.LogItem`.
        :param now: seconds since the epoch, for a log without a time of its own.
        :raises InvalidArgumentError: not a log, a name that is not text, a value that cannot become text.
        """
        return self.encode_latin(log, now).encode("latin-1")

    def encode_latin(self, log: Mapping[str, Any] | LogItem, now: int) -> str:
        """As :meth:`encode`, as a latin-1 string: many of them join and become bytes at once."""
        if type(log) is dict:
            log = log.copy()  # at once, whatever other threads do with it: names and values of one moment
            names = tuple(log)
            shape = self.shapes.get(names)
            if shape is None:
                self._count_shape(names)
            else:
                shape.used = True
                fields = shape.fields_of(log.values()) or shape.fields_of_any(log)
                return f"{self.heads(now)[len(fields)]}{fields}"
        return self._encode_general(log, now).decode("latin-1")

    def _encode_general(self, log: Mapping[str, Any] | LogItem, now: int) -> bytes:
        if isinstance(log, LogItem):
            return self._encode_item(log, now)
        if isinstance(log, Mapping):
            return self._encode_pairs(log.items(), self.heads(now).time, b"")
        raise InvalidArgumentError(f"a log must be a mapping or a LogItem, got {type(log).__qualname__}")

    def _encode_item(self, item: LogItem, now: int) -> bytes:
        seconds, nanos = time_of(item, now)
        end = b"\x25" + nanos.to_bytes(4, "little") if nanos else b""
        contents = item.contents
        try:
            pairs = contents.items() if isinstance(contents, Mapping) else [(name, value) for name, value in contents]
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"contents must be a mapping or a sequence of (name, value) pairs: {error}"
            ) from error
        return self._encode_pairs(pairs, b"\x08" + varint(seconds), end)

    def _encode_pairs(self, pairs: Iterable[tuple[str, Any]], start: bytes, end: bytes) -> bytes:
        parts = [start]
        keys = self._keys
        for name, value in pairs:
            if value is None:
                continue
            key = (keys.get(name) if type(name) is str else None) or self._key(name)
            data = data_of(value, name)
            inner = key + b"\x12" + varint(len(data))
            parts += (b"\x12", varint(len(inner) + len(data)), inner, data)
        parts.append(end)
        body = b"".join(parts)
        return b"\x0a" + varint(len(body)) + body

    def _key(self, name: object) -> bytes:
        key = delimited(0x0A, _encode_key(name))
        if len(self._keys) < _MAX_KEYS_KEPT and type(name) is str and len(name) <= MAX_NAME:
            self._keys[name] = key
        return key

    def heads(self, now: int) -> Heads:
        """What precedes the fields of logs of a second; kept until the second changes."""
        heads = self._heads
        if heads.now != now:
            self._heads = heads = Heads(now)
            if self._room.short:
                self._make_room(0)
        return heads

    def _count_shape(self, names: tuple[Any, ...]) -> None:
        if not Shape.makes_sense(names):
            return
        key = hash(names)
        count = self._seen.get(key, 0) + 1
        if count < _SEEN_BEFORE_GENERATED or (count < _SEEN_BEFORE_REPLACING and not self._has_room(names)):
            if len(self._seen) >= _MAX_SHAPES_COUNTED:
                self._seen.clear()
            self._seen[key] = count
            return
        self._seen.pop(key, None)
        self._make_room(Shape.size_of(names))
        with self._lock:
            if names not in self.shapes:
                self.shapes[names] = Shape(names, self._room)

    def _has_room(self, names: tuple[str, ...]) -> bool:
        return len(self.shapes) < _MAX_SHAPES and self._room.left >= Shape.size_of(names)

    def _make_room(self, size: int) -> None:
        """Give up shapes until there is room for ``size`` bytes and one more of them, the longest unused first; where
        something was not kept for want of room, all that were not used since the last time.
        """
        with self._lock:
            short, self._room.short = self._room.short, False
            used = [names for names, shape in self.shapes.items() if shape.used]
            for names in used:  # they go to the end
                shape = self.shapes.pop(names)
                shape.used = False
                self.shapes[names] = shape
            idle = len(self.shapes) - len(used) if short else 0
            for position, names in enumerate(list(self.shapes)):
                enough = len(self.shapes) < _MAX_SHAPES and self._room.left >= size
                if enough and position >= idle:
                    return
                self.shapes.pop(names).give_up()


def _encode_key(name: object) -> bytes:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a field's name must be text, got {name!r} of type {type(name).__qualname__}")
    try:
        return str.encode(name)  # the true characters of subclasses
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"field name {name!r} is not valid Unicode: {error}") from error
