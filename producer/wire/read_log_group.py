"""LogGroups read back without the protobuf library: for tools, where ease of installation matters more than speed.

Fields that this does not know are passed over, as the library does; names and values that are not UTF-8 appear with
backslashes. A field that another client has sent under a reserved name is shown under another one (:mod:`.reserved`).

Source: LogHub protocol, Protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .protobuf import read_varint
from .reserved import free_name

_LOGS, _TOPIC, _SOURCE, _TAGS = 1, 3, 4, 6
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: The fields of a log as GetLogs gives them: all text, the time among them.
Fields = dict[str, str]


def read_groups(data: bytes) -> Iterator[Iterator[Fields]]:
    """The logs of each LogGroup of a list of them.

    :raises ValueError: it is none, or cut off.
    """
    for number, group in fields_of(data):
        if number == _LOGS and isinstance(group, bytes):
            yield read_group(group)


def loggroups_of(data: bytes, most: int) -> list[bytes]:
    """The LogGroups of a list of them, not taken apart.

    :raises ValueError: it is none, or cut off, or there are more.
    """
    groups = []
    for number, group in fields_of(data):
        if number == _LOGS and isinstance(group, bytes):
            groups.append(group)
        if len(groups) > most:
            raise ValueError(f"more than {most} LogGroups, which is what was asked for")
    return groups


def read_group(data: bytes, before: Callable[[bytes, bool], object] = lambda *_: None) -> Iterator[Fields]:
    """The logs of a LogGroup, each with the group's topic, source and tags; they are made one at a time.

    :param before: is called with each tag and log, before it is made, and True for a log; what it raises ends the
        reading.
    :raises ValueError: it is none, or cut off.
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
    """Time and fields of each log of a record, which is logs as a LogGroup holds them, and nothing else of one.

    :raises ValueError: it is none, or cut off.
    """
    for number, log in fields_of(data):
        if number == _LOGS and isinstance(log, bytes):
            yield read_log(log)


def read_log(data: bytes) -> tuple[str, Fields]:
    """The time of a log, Unix seconds as text, and its fields.

    :raises ValueError: it is none, or cut off.
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
    """Number and value of each field of a message.

    :raises ValueError: it is none, or cut off.
    """
    position, size = 0, len(data)
    try:
        while position < size:
            tag, position = read_varint(data, position)
            value, position = _value(data, tag & 7, position)
            yield tag >> 3, value
    except IndexError:
        raise ValueError("a message of protobuf is cut off") from None


def _value(data: bytes, kind: int, position: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return read_varint(data, position)
    if kind == _BYTES:
        length, position = read_varint(data, position)
    elif kind in (_FIXED32, _FIXED64):
        length = 4 if kind == _FIXED32 else 8
    else:
        raise ValueError(f"a field of protobuf of the unknown kind {kind}")
    end = position + length
    if end > len(data):
        raise ValueError("a message of protobuf is cut off")
    value = data[position:end]
    return (value if kind == _BYTES else int.from_bytes(value, "little")), end


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
