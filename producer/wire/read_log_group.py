"""Reads LogGroups without the protobuf library, for tools that should be easy to install rather than fast.

Unknown fields are skipped, as the library does. Names and values that are not UTF-8 appear with backslashes. A field
that another client has sent under a reserved name is returned under another one (:mod:`.reserved`).

Source: LogHub protocol, Protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .protobuf import read_varint
from .reserved import free_name

_LOGS, _TOPIC, _SOURCE, _TAGS = 1, 3, 4, 6
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: The fields of a log as GetLogs returns them: all as text, including the time.
Fields = dict[str, str]


def read_groups(data: bytes) -> Iterator[Iterator[Fields]]:
    """Yield the logs of each LogGroup of a list.

    :raises ValueError: the data is not a list of LogGroups, or is truncated.
    """
    for number, group in fields_of(data):
        if number == _LOGS and isinstance(group, bytes):
            yield read_group(group)


def loggroups_of(data: bytes, most: int) -> list[bytes]:
    """Return the encoded LogGroups of a list.

    :raises ValueError: the data is not a list of LogGroups, is truncated, or has more than ``most``.
    """
    groups = []
    for number, group in fields_of(data):
        if number == _LOGS and isinstance(group, bytes):
            groups.append(group)
        if len(groups) > most:
            raise ValueError(f"the response has more LogGroups than the {most} requested")
    return groups


def read_group(data: bytes, before: Callable[[bytes, bool], object] = lambda *_: None) -> Iterator[Fields]:
    """Yield the logs of a LogGroup one by one, each with the topic, source and tags of the group.

    :param before: a callback with each encoded tag and log, before it is decoded, and True for a log. An exception of
        it ends the reading.
    :raises ValueError: the data is not a LogGroup, or is truncated.
    """
    common = {"__source__": "", "__topic__": ""}
    for number, value in fields_of(data):
        if not isinstance(value, bytes):
            continue
        if number in (_TOPIC, _SOURCE):
            common["__topic__" if number == _TOPIC else "__source__"] = _text(value)
        elif number == _TAGS:
            before(value, False)
            key, text = _pair(value)
            common[f"__tag__:{key}"] = text
    for number, log in fields_of(data):
        if number == _LOGS and isinstance(log, bytes):
            before(log, True)
            time, contents = read_log(log)
            yield {"__time__": time, **common, **contents}


def read_record(data: bytes) -> Iterator[tuple[str, Fields]]:
    """Yield time and fields of each log of a record: the logs of a LogGroup without its other fields.

    :raises ValueError: the data is not a record, or is truncated.
    """
    for number, log in fields_of(data):
        if number == _LOGS and isinstance(log, bytes):
            yield read_log(log)


def read_log(data: bytes) -> tuple[str, Fields]:
    """Return the time of a log, Unix seconds as text, and its fields.

    :raises ValueError: the data is not a log, or is truncated.
    """
    time, fields = "0", Fields()
    for number, value in fields_of(data):
        if number == 1 and isinstance(value, int):
            time = str(value)
        elif number == 2 and isinstance(value, bytes):
            key, text = _pair(value)
            fields[free_name(key)] = text
        elif number == 4 and isinstance(value, int):
            fields["__time_ns_part__"] = str(value)
    return time, fields


def _pair(data: bytes) -> tuple[str, str]:
    parts = {number: value for number, value in fields_of(data) if isinstance(value, bytes)}
    return _text(parts.get(1, b"")), _text(parts.get(2, b""))


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message.

    :raises ValueError: the data is not a message, or is truncated.
    """
    position, size = 0, len(data)
    try:
        while position < size:
            tag, position = read_varint(data, position)
            value, position = _value(data, tag & 7, position)
            yield tag >> 3, value
    except IndexError:
        raise ValueError("a protobuf message is truncated") from None


def _value(data: bytes, kind: int, position: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return read_varint(data, position)
    if kind == _BYTES:
        length, position = read_varint(data, position)
    elif kind in (_FIXED32, _FIXED64):
        length = 4 if kind == _FIXED32 else 8
    else:
        raise ValueError(f"a protobuf field has the unknown type {kind}")
    end = position + length
    if end > len(data):
        raise ValueError("a protobuf message is truncated")
    value = data[position:end]
    return (value if kind == _BYTES else int.from_bytes(value, "little")), end


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
