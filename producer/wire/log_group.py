"""Encodes the LogGroup message, without the protobuf library.

A LogGroup is a sequence of protobuf fields, and fields can be concatenated. So the body of a batch is the concatenation
of its records, each the bytes of one ``Logs`` field, and a tail with topic, source and tags. A record is therefore
encoded once, when it is sent, and its size is exact::

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

Most logs repeat names, and lengths of values, so the bytes before a value are cached by both.

Source: LogHub protocol, Protobuf; tested with vectors of the official SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..model.errors import InvalidArgumentError
from ..model.records import LogItem
from ..text.printable import repr_of
from .protobuf import delimited, delimited_size, read_varint, varint
from .reserved import free_key
from .text import Default, Fallback, data_of, lenient_items, time_of
from .values import message_of

#: Maximum size of the cache of names and lengths, bytes. Longer names and values are not cached.
MAX_KEPT_BYTES = 4 * 1024 * 1024
# Lengths below this value take one byte.
_ONE_BYTE = 0x80
_MAX_NAME, _MAX_LENGTH = 256, 16_384
# Memory of a name and of a length without their texts, bytes, measured on CPython 3.11.
_NAME_BYTES, _LENGTH_BYTES = 320, 160


def encode_tail(topic: str, source: str, tags: Iterable[tuple[str, str]]) -> bytes:
    """Return the tail of a LogGroup: topic and source (even if empty, as in the official SDK) and tags."""
    parts = [delimited(0x1A, topic.encode()), delimited(0x22, source.encode())]
    parts += [encode_tag(name, value) for name, value in tags]
    return b"".join(parts)


def tail_size(topic: str, source: str, tags: Iterable[tuple[str, str]]) -> int:
    """Return the size of the result of :func:`encode_tail`, without making it."""
    size = delimited_size(len(topic.encode())) + delimited_size(len(source.encode()))
    for name, value in tags:
        size += delimited_size(delimited_size(len(name.encode())) + delimited_size(len(value.encode())))
    return size


def encode_tag(name: str, value: str) -> bytes:
    """Return one more tag, to append to a tail."""
    key, text = name.encode(), value.encode()
    size = len(key) + len(text) + 4
    if size < _ONE_BYTE:  # The common case: the pack id, once per batch.
        return b"\x32%c\x0a%c%b\x12%c%b" % (size, len(key), key, len(text), text)
    return delimited(0x32, _pair(key, text))


def split_records(body: bytes) -> Iterator[bytes]:
    """Yield the records of a body, one ``Logs`` field each, in order; the inverse of joining them."""
    position, end = 0, len(body)
    while position < end and body[position] == 0x0A:
        length, start = read_varint(body, position + 1)
        yield body[position : start + length]
        position = start + length


def _pair(key: bytes, value: bytes) -> bytes:
    return delimited(0x0A, key) + delimited(0x12, value)


class _Heads:
    """The bytes before the values of fields, by field name and length of the value.

    Two threads that fill the same entry write the same bytes. A full table is cleared: names in use are soon added
    again.

    :ivar known: the bytes, by name, then by length.
    """

    def __init__(self) -> None:
        self.known: dict[str, dict[int, bytes]] = {}
        self._kept = 0  # In bytes; threads may exceed the limit slightly.

    def of(self, name: object, length: int) -> bytes:
        """Return the bytes before a value of ``length`` bytes.

        :raises InvalidArgumentError: the name is not text, or not valid Unicode.
        """
        lengths = self.known.get(name) if type(name) is str else None
        head = None if lengths is None else lengths.get(length)
        if head is not None:
            return head
        inner = delimited(0x0A, encode_key(name)) + b"\x12" + varint(length)
        head = b"\x12" + varint(len(inner) + length) + inner
        if type(name) is str and len(name) <= _MAX_NAME and length < _MAX_LENGTH:
            self._keep(name, length, head)
        return head

    def _keep(self, name: str, length: int, head: bytes) -> None:
        if self._kept > MAX_KEPT_BYTES:
            self.known.clear()
            self._kept = 0
        lengths = self.known.get(name)
        if lengths is None:
            lengths = self.known[name] = {}
            self._kept += _NAME_BYTES + len(name)
        lengths[length] = head
        self._kept += _LENGTH_BYTES + len(head)


class _Sizes(dict[int, bytes]):
    """The bytes before a log, by its size."""

    def __missing__(self, size: int) -> bytes:
        head = b"\x0a" + varint(size)
        if size < _MAX_LENGTH:
            self[size] = head
        return head


class _Time:
    """The Time field of logs without their own time, which is the same within a second.

    :ivar last: a second since the epoch, and its field.
    """

    def __init__(self) -> None:
        self.last = 0, b"\x08\x00"

    def field(self, now: int) -> bytes:
        """Return the field of a second since the epoch."""
        second, field = self.last
        if second != now:
            self.last = _, field = now, b"\x08" + varint(now)
        return field


_heads = _Heads()
_sizes = _Sizes()
_time = _Time()


def encode_log(log: Mapping[str, Any] | LogItem, now: int, nanos: int = 0, fallback: Fallback | None = None) -> bytes:
    """Encode one log as a record; thread-safe.

    :param log: a :class:`~producer.model.records.LogItem`, or a mapping of names to values. The values are converted by
        :func:`~producer.wire.text.text_of`; None is left out.
    :param now: the time of a log without its own time, seconds since the epoch.
    :param nanos: nanoseconds within that second; 0 for none.
    :param fallback: the handling of values without a rule.
    :raises InvalidArgumentError: it is not a log, a name is not text, or a value cannot become text.
    """
    if type(log) is dict:
        # Copy at once, so that names and values are consistent even if other threads change the log.
        second, start = _time.last
        if second != now:
            start = _time.field(now)
        end = b"\x25" + nanos.to_bytes(4, "little") if nanos else b""
        pairs: Iterable[tuple[Any, Any]] = log.copy().items()
    else:
        pairs, start, end = _parts_of(log, now, nanos)
    try:
        return _join(pairs, start, end, None if fallback is None else fallback.default)
    except InvalidArgumentError:
        if fallback is None or not fallback.lenient:
            raise
        return _join(lenient_items(pairs, fallback.default), start, end, None)


def _join(pairs: Iterable[tuple[Any, Any]], start: bytes, end: bytes, default: Default | None) -> bytes:
    parts, known = [start], _heads.known
    add = parts.append
    for name, value in pairs:
        if type(value) is str is type(name):  # The common case, without a call of Python code.
            try:
                data: Any = value.encode()
                add(known[name][len(data)])
            except (KeyError, UnicodeEncodeError):
                data = data_of(value, name)
                add(_heads.of(name, len(data)))
        elif value is None:
            continue
        else:
            data = data_of(value, name, default)
            if data is None:
                continue
            add(_heads.of(name, len(data)))
        add(data)
    add(end)
    body = b"".join(parts)
    return _sizes[len(body)] + body


def _parts_of(log: object, now: int, nanos: int) -> tuple[Iterable[tuple[str, Any]], bytes, bytes]:
    """Return the fields of a log that is not a ``dict``, and the bytes before and after them."""
    if isinstance(log, LogItem):
        seconds, nanos = time_of(log, now, nanos)
        start, pairs = b"\x08" + varint(seconds), _pairs_of(log.contents)
    elif isinstance(log, Mapping):
        start, pairs = _time.field(now), _items_of(log)
    else:
        example = "; use a mapping such as {'message': ...}" if isinstance(log, str) else ""
        raise InvalidArgumentError(f"a log must be a mapping or a LogItem, got {type(log).__qualname__}{example}")
    return pairs, start, b"\x25" + nanos.to_bytes(4, "little") if nanos else b""


def _items_of(log: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Copy the items at once, as they are read twice if one of them cannot be sent."""
    try:
        return [(name, value) for name, value in log.items()]
    except Exception as error:
        raise InvalidArgumentError(
            f"a log of type {type(log).__qualname__} cannot be read: {type(error).__name__}: {message_of(error)}"
        ) from error


def _pairs_of(contents: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(contents, Mapping):
        return _items_of(contents)
    try:
        return [(name, value) for name, value in contents]
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"contents must be a mapping or a sequence of (name, value) pairs: {error}"
        ) from error


def encode_key(name: object) -> bytes:
    """Encode a field name; a reserved name is changed.

    :raises InvalidArgumentError: it is not text, or not valid Unicode.
    """
    if not issubclass(type(name), str):  # runs no code of a proxy
        raise InvalidArgumentError(
            f"a field's name must be text, got {repr_of(name)} of type {type(name).__qualname__}"
        )
    try:
        return free_key(str.encode(name))  # type: ignore[arg-type]  # ignores overrides of subclasses
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"field name {name!r} is not valid Unicode: {error}") from error
