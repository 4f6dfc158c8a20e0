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

Most logs have names, and values of lengths, that were sent before: what precedes a value is looked up by both.

Source: LogHub protocol, Protobuf; held to vectors made by the official SDK.
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
from .values import said

#: What is kept of names and lengths, bytes; of longer names and values nothing is.
MAX_KEPT_BYTES = 4 * 1024 * 1024
# Lengths below it take one byte.
_ONE_BYTE = 0x80
_MAX_NAME, _MAX_LENGTH = 256, 16_384
# What a name occupies, and a length of it, besides their texts. Measured on CPython 3.11.
_NAME_BYTES, _LENGTH_BYTES = 320, 160


def encode_tail(topic: str, source: str, tags: Iterable[tuple[str, str]]) -> bytes:
    """The end of a LogGroup: topic and source (present even if empty, as the official SDK writes them) and tags."""
    parts = [delimited(0x1A, topic.encode()), delimited(0x22, source.encode())]
    parts += [encode_tag(name, value) for name, value in tags]
    return b"".join(parts)


def tail_size(topic: str, source: str, tags: Iterable[tuple[str, str]]) -> int:
    """How long :func:`encode_tail` is, which need not be made for it."""
    size = delimited_size(len(topic.encode())) + delimited_size(len(source.encode()))
    for name, value in tags:
        size += delimited_size(delimited_size(len(name.encode())) + delimited_size(len(value.encode())))
    return size


def encode_tag(name: str, value: str) -> bytes:
    """One tag more, to stand behind a tail."""
    key, text = name.encode(), value.encode()
    size = len(key) + len(text) + 4
    if size < _ONE_BYTE:  # as those of pack ids, one a batch
        return b"\x32%c\x0a%c%b\x12%c%b" % (size, len(key), key, len(text), text)
    return delimited(0x32, _pair(key, text))


def split_records(body: bytes) -> Iterator[bytes]:
    """The records of a joined body, one ``Logs`` field each, in order; the inverse of joining them."""
    position, end = 0, len(body)
    while position < end and body[position] == 0x0A:
        length, start = read_varint(body, position + 1)
        yield body[position : start + length]
        position = start + length


def _pair(key: bytes, value: bytes) -> bytes:
    return delimited(0x0A, key) + delimited(0x12, value)


class _Heads:
    """What precedes the values of fields, by their names and the lengths of the values.

    Threads that fill in the same entry fill in the same bytes. Once it is full it begins anew: names that are in use
    are soon there again.

    :ivar known: the bytes, by name, then by length.
    """

    def __init__(self) -> None:
        self.known: dict[str, dict[int, bytes]] = {}
        self._kept = 0  # bytes; threads may overshoot by a few

    def of(self, name: object, length: int) -> bytes:
        """What precedes a value of ``length`` bytes.

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
    """What precedes a log, by its size."""

    def __missing__(self, size: int) -> bytes:
        head = b"\x0a" + varint(size)
        if size < _MAX_LENGTH:
            self[size] = head
        return head


class _Time:
    """The Time field of logs that get the time of their sending: the same for all of a second.

    :ivar last: a second since the epoch, and its field.
    """

    def __init__(self) -> None:
        self.last = 0, b"\x08\x00"

    def field(self, now: int) -> bytes:
        """The field for that second."""
        second, field = self.last
        if second != now:
            self.last = _, field = now, b"\x08" + varint(now)
        return field


_heads = _Heads()
_sizes = _Sizes()
_time = _Time()


def encode_log(log: Mapping[str, Any] | LogItem, now: int, nanos: int = 0, fallback: Fallback | None = None) -> bytes:
    """The record of one log. Any number of threads may call it.

    :param log: a mapping of names to values (see :func:`~producer.wire.text.text_of`; None is left out), or a
        :class:`~producer.model.records.LogItem`.
    :param now: seconds since the epoch, for a log without a time of its own.
    :param nanos: within that second; 0 for none.
    :param fallback: what is done with values that the table does not know.
    :raises InvalidArgumentError: not a log, a name that is not text, a value that cannot become text.
    """
    if type(log) is dict:
        # A copy at once, whatever other threads do with it: names and values of one moment.
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
        if type(value) is str is type(name):  # the common case, and nothing of it a function of ours
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
    """The fields of a log that is no ``dict``, what precedes them and what follows them."""
    if isinstance(log, LogItem):
        seconds, nanos = time_of(log, now, nanos)
        start, pairs = b"\x08" + varint(seconds), _pairs_of(log.contents)
    elif isinstance(log, Mapping):
        start, pairs = _time.field(now), _items_of(log)
    else:
        example = "; such as {'message': ...}" if isinstance(log, str) else ""
        raise InvalidArgumentError(f"a log must be a mapping or a LogItem, got {type(log).__qualname__}{example}")
    return pairs, start, b"\x25" + nanos.to_bytes(4, "little") if nanos else b""


def _items_of(log: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A copy at once: they are asked for twice where one of them cannot be sent."""
    try:
        return [(name, value) for name, value in log.items()]
    except Exception as error:
        raise InvalidArgumentError(
            f"a log of type {type(log).__qualname__} cannot be read: {type(error).__name__}: {said(error)}"
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
    """A field's name as it travels: one that is reserved gets another.

    :raises InvalidArgumentError: it is not text, or not valid Unicode.
    """
    if not issubclass(type(name), str):  # which asks nothing of a proxy
        raise InvalidArgumentError(
            f"a field's name must be text, got {repr_of(name)} of type {type(name).__qualname__}"
        )
    try:
        return free_key(str.encode(name))  # type: ignore[arg-type]  # the true characters of subclasses
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"field name {name!r} is not valid Unicode: {error}") from error
