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

:class:`LogEncoder` is fast for what applications send over and over: mappings with the same field names. For such a
shape it generates a function that looks up, by the length of each value, the bytes that precede it, and joins
everything as one latin-1 string, in which a character is a byte. That holds while all values are ASCII text; the first
other value takes the general way.

Source: LogHub protocol, Protobuf; held to vectors made by the official SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from ..errors import InvalidArgumentError
from ..records import LogItem, text_of, time_of

# How often a shape is seen before a function is generated for it, and how many are kept: names made up for each log
# must cost neither compilation nor memory.
_SEEN_BEFORE_GENERATED = 8
_MAX_SHAPES = 256
_MAX_SHAPES_COUNTED = 4096
_MAX_FIELDS_GENERATED = 256
_MAX_KEYS_KEPT = 4096
# For all fields of all shapes of one encoder together.
_MAX_LENGTHS_KEPT = 65_536
# Longer names, characters, are encoded each time: what is kept is bounded in bytes, too.
_MAX_NAME_KEPT = 256

_Generated = Callable[[Collection[Any], str], bytes | None]


def varint(number: int) -> bytes:
    """``number`` (not negative) as a protobuf varint: seven bits a byte, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The varint at ``position`` and the position behind it.

    :raises IndexError: the data ends inside it.
    """
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def delimited(tag: int, payload: bytes) -> bytes:
    """A length-delimited field: the tag byte, the length, the payload."""
    return bytes((tag,)) + varint(len(payload)) + payload


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


class _Room:
    """How many more lengths one encoder may keep. Threads may overshoot by a few."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MAX_LENGTHS_KEPT


class _Lengths(dict[int, str]):
    """For one field name: the bytes before a value, by the value's length, as a latin-1 string.

    They hold the name as well, so that a field costs one look-up. The table fills itself while there is room.
    """

    def __init__(self, name: str, room: _Room) -> None:
        super().__init__()
        self._key = delimited(0x0A, _encode_key(name))
        self._room = room

    def __missing__(self, length: int) -> str:
        inner = self._key + b"\x12" + varint(length)
        text = (b"\x12" + varint(len(inner) + length) + inner).decode("latin-1")
        if self._room.left > 0:
            self._room.left -= 1
            self[length] = text
        return text


class _Frames(dict[int, str]):
    """The bytes before a log, by its length; one table for all shapes of an encoder."""

    def __init__(self, room: _Room) -> None:
        super().__init__()
        self._room = room

    def __missing__(self, length: int) -> str:
        text = (b"\x0a" + varint(length)).decode("latin-1")
        if self._room.left > 0:
            self._room.left -= 1
            self[length] = text
        return text


class LogEncoder:
    """Turns logs into records; one a producer, used by any number of threads.

    Its caches are dictionaries that only grow to a bound. Two threads that fill the same entry fill in the same value.
    """

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], _Generated] = {}
        self._seen: dict[tuple[str, ...], int] = {}
        self._keys: dict[str, bytes] = {}
        self._room = _Room()
        self._frames = _Frames(self._room)
        self._time = (-1, "", b"")

    def encode(self, log: Mapping[str, Any] | LogItem, now: int) -> bytes:
        """The record of one log.

        :param log: a mapping of names to values (see :func:`~producer.records.text_of`), or a
            :class:`~producer.records.LogItem`.
        :param now: seconds since the epoch, for a log without a time of its own.
        :raises InvalidArgumentError: not a log, a name that is not text, a value that cannot become text.
        """
        if type(log) is dict:
            generated = self._shapes.get(tuple(log))
            if generated is None:
                self._count_shape(tuple(log))
            else:
                time = self._time_field(now)[1]
                try:
                    record = generated(log.values(), time)
                except TypeError:
                    record = _generated_of_texts(generated, log, time)
                if record is not None:
                    return record
        if isinstance(log, LogItem):
            return self._encode_item(log, now)
        if isinstance(log, Mapping):
            return self._encode_pairs(log.items(), self._time_field(now)[2], b"")
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
            data = _encode_value(value, name)
            inner = key + b"\x12" + varint(len(data))
            parts += (b"\x12", varint(len(inner) + len(data)), inner, data)
        parts.append(end)
        body = b"".join(parts)
        return b"\x0a" + varint(len(body)) + body

    def _key(self, name: object) -> bytes:
        key = delimited(0x0A, _encode_key(name))
        if len(self._keys) < _MAX_KEYS_KEPT and type(name) is str and len(name) <= _MAX_NAME_KEPT:
            self._keys[name] = key
        return key

    def _time_field(self, now: int) -> tuple[int, str, bytes]:
        """The Time field of the current second, kept until the second changes."""
        cached = self._time
        if cached[0] != now:
            data = b"\x08" + varint(now)
            self._time = cached = (now, data.decode("latin-1"), data)
        return cached

    def _count_shape(self, names: tuple[Any, ...]) -> None:
        if len(self._shapes) >= _MAX_SHAPES or not 0 < len(names) <= _MAX_FIELDS_GENERATED:
            return
        if not all(type(name) is str and len(name) <= _MAX_NAME_KEPT for name in names):
            return
        count = self._seen.get(names, 0) + 1
        if count < _SEEN_BEFORE_GENERATED:
            if len(self._seen) >= _MAX_SHAPES_COUNTED:
                self._seen.clear()
            self._seen[names] = count
        else:
            self._seen.pop(names, None)
            self._shapes[names] = _generate(names, self._frames, self._room)


def _generated_of_texts(generated: _Generated, log: Mapping[str, Any], time: str) -> bytes | None:
    """``generated`` for a log in which not all values are text: they become text first. None if one is missing or
    bytes.
    """
    texts: list[str] = []
    for name, value in log.items():
        text = value if type(value) is str else None if value is None else text_of(value, name)
        if not isinstance(text, str):
            return None
        texts.append(text)
    return generated(texts, time)


def _generate(names: tuple[str, ...], frames: _Frames, room: _Room) -> _Generated:
    """A function ``(values, time field) -> record`` for logs with exactly these names; None if a value is not ASCII.

    No text of the caller's becomes code: names stand in the look-up tables, and values are variables. Joining, other
    than formatting, takes the true characters of subclasses of ``str`` and raises TypeError for everything else.
    """
    values = [f"v{i}" for i in range(len(names))]
    pieces = ", ".join(f"n{i}[len(v{i})], v{i}" for i in range(len(names)))
    source = (
        f"def encode(values, time):\n"
        f"    {', '.join(values)}, = values\n"
        f"    if not ({' and '.join(f'type({value}) is str' for value in values)}):\n"
        f"        raise TypeError\n"
        f"    if not ''.join(({', '.join(values)},)).isascii():\n"
        f"        return None\n"
        f"    body = ''.join((time, {pieces}))\n"
        f"    return (frames[len(body)] + body).encode('latin-1')\n"
    )
    scope: dict[str, Any] = {f"n{i}": _Lengths(name, room) for i, name in enumerate(names)}
    scope["frames"] = frames
    exec(compile(source, "<generated log encoder>", "exec"), scope)  # noqa: S102  # see the docstring
    generated: _Generated = scope["encode"]
    return generated


def _encode_key(name: object) -> bytes:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a field's name must be text, got {name!r} of type {type(name).__qualname__}")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"field name {name!r} is not valid Unicode: {error}") from error


def _encode_value(value: Any, name: str) -> bytes:
    text = text_of(value, name)
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"field {name!r}: the text is not valid Unicode ({error}); send bytes, or replace the surrogates"
        ) from error
