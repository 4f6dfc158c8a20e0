"""The LogGroup as JSON, for ``log_format="json"`` (``logFormat=JSON`` of the Aliyun Java producer).

::

    {"__topic__": "t", "__source__": "s", "__tags__": {"k": "v"}, "__logs__": [{"__time__": 1, "field": "value"}]}

Records are always encoded as protobuf first: memory and batch sizes are counted in these bytes. A batch is converted to
JSON when it is sent. A name that a log repeats is repeated in its object. Bytes that are not UTF-8 appear with
backslashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .protobuf import delimited, read_varint, varint

_TIME, _TIME_NS = "__time__", "__time_ns_part__"


def encode_json(records: Sequence[bytes], topic: str, source: str, tags: Sequence[tuple[str, str]]) -> bytes:
    """Return the body of a batch.

    :param records: results of :func:`~producer.wire.log_group.encode_log`; each may hold several logs.
    """
    logs = ",".join(object_of(members_of(log)) for joined in records for log in frames_of(joined))
    head = {"__topic__": topic, "__source__": source, "__tags__": dict(tags)}
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "__logs__": [{logs}]}}'.encode()


def decode_json(body: bytes) -> list[bytes]:
    """Return the records of a body, one log each; the inverse of :func:`encode_json`."""
    document = dict(json.loads(body, object_pairs_hook=list))  # As pairs, because a log may repeat a name.
    return [_record(log) for log in document["__logs__"]]


def _record(log: list[tuple[str, Any]]) -> bytes:
    # The time fields are numbers; fields of the caller with the same names are text.
    (_, seconds), *fields = log
    parts = [b"\x08", varint(seconds)]
    end = b""
    for key, value in fields:
        if isinstance(value, int):
            end = b"\x25" + value.to_bytes(4, "little")
        else:
            parts.append(delimited(0x12, delimited(0x0A, key.encode()) + delimited(0x12, value.encode())))
    parts.append(end)
    return delimited(0x0A, b"".join(parts))


def members_of(log: bytes) -> list[tuple[str, str]]:
    """Return names and JSON values of one ``Log`` message, the time first."""
    members: list[tuple[str, str]] = []
    time = "0"
    position = 0
    while position < len(log):
        tag = log[position]
        if tag == 0x12:
            content, position = _payload(log, position + 1)
            key, value = (_text(part) for part in frames_of(content))
            members.append((key, json.dumps(value, ensure_ascii=False)))
        elif tag == 0x25:
            nanos = int.from_bytes(log[position + 1 : position + 5], "little")
            members.append((_TIME_NS, str(nanos)))
            position += 5
        else:
            number, position = read_varint(log, position + 1)
            time = str(number)
    members.insert(0, (_TIME, time))
    return members


def object_of(members: Iterable[tuple[str, str]]) -> str:
    """Return the JSON object of these members."""
    return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in members) + "}"


def frames_of(data: bytes) -> Iterator[bytes]:
    """Yield the payloads of consecutive length-delimited fields."""
    position = 0
    while position < len(data):
        payload, position = _payload(data, position + 1)
        yield payload


def _payload(data: bytes, position: int) -> tuple[bytes, int]:
    length, start = read_varint(data, position)
    return data[start : start + length], start + length


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
