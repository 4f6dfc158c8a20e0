r"""Encodes events as records: the body as one field, and a field for each column with a value.

* Offsets delimit the bodies, or each is a line of the block (:mod:`.lines`). Bytes that are not UTF-8 appear as
  ``\xNN``.
* The field of the body is first, then those of the columns, in order. An absent value is no field; an empty one is.
* Records are grouped into pieces of limited size; a larger record is a piece of its own.

``_event_records.pyx`` is the native implementation, which runs without the GIL; :mod:`.speed` selects one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import Any

from .protobuf import delimited, varint
from .text_column import ABSENT, TextColumn


def encode_events(  # noqa: PLR0917  # the native implementation takes positional arguments
    block: bytes,
    ends: bytes,
    count: int,
    key: bytes,
    fields: Sequence[tuple[bytes, TextColumn]],
    seconds: bytes,
    nanos: bytes,
    most_bytes: int,
    most_logs: int,
) -> list[tuple[bytes, int]]:
    """Return pieces of concatenated records, with the number of records in each.

    :param ends: the end of each body in the block, 64-bit integers; empty for lines.
    :param count: the number of events.
    :param key: the name of the field of the bodies, UTF-8.
    :param fields: the names of further fields, UTF-8, and their values; a single value applies to all events.
    :param seconds: the times of the logs, seconds since the epoch, 64-bit integers; a single one applies to all.
    :param nanos: nanoseconds within the second, 32-bit integers; a single one applies to all.
    :param most_bytes: maximum size of a piece, bytes.
    :param most_logs: maximum number of logs in a piece.
    :raises ValueError: the arguments contradict each other.
    """
    columns = [_contents(name, column, count) for name, column in fields]
    times = zip(_each("Q", seconds, count), _each("I", nanos, count), strict=True)
    pieces: list[tuple[bytes, int]] = []
    waiting: list[bytes] = []
    size = 0
    rows = zip(_bodies(block, ends, count), times, zip(*columns, strict=True) if columns else repeat(()), strict=False)
    for body, (second, below), contents in rows:
        record = _record(second, below, [_content(key, _text(body)), *contents])
        if waiting and (size + len(record) > most_bytes or len(waiting) >= most_logs):
            pieces.append((b"".join(waiting), len(waiting)))
            waiting, size = [], 0
        waiting.append(record)
        size += len(record)
    return [*pieces, (b"".join(waiting), len(waiting))] if waiting else pieces


def _record(seconds: int, nanos: int, contents: Sequence[bytes]) -> bytes:
    end = b"\x25" + nanos.to_bytes(4, "little") if nanos else b""
    return delimited(0x0A, b"".join([b"\x08", varint(seconds), *contents, end]))


def _content(name: bytes, value: bytes) -> bytes:
    return delimited(0x12, delimited(0x0A, name) + delimited(0x12, value))


def _text(body: bytes) -> bytes:
    return body if body.isascii() else body.decode(errors="backslashreplace").encode()


def _bodies(block: bytes, ends: bytes, count: int) -> list[bytes]:
    if not ends:
        lines = block.split(b"\n")[:count]
        if len(lines) < count:
            raise ValueError(f"the block has fewer than {count} lines")
        return [line.removesuffix(b"\r") for line in lines]
    bounds = [0, *array("Q", ends)]
    if len(bounds) != count + 1 or sorted(bounds) != bounds or bounds[-1] > len(block):
        raise ValueError(f"these are no ends of {count} bodies in {len(block)} bytes")
    return [block[start:end] for start, end in pairwise(bounds)]


def _contents(name: bytes, column: TextColumn, count: int) -> list[bytes]:
    """Return the encoded field of each event; empty if its value is absent."""
    values, size = column.values(), sum(size for size in array("I", column.sizes) if size != ABSENT)
    if size != len(column.data):
        raise ValueError(f"values of {size} bytes are not {len(column.data)} bytes")
    return _all_of([b"" if value is None else _content(name, value) for value in values], count)


def _each(kind: str, numbers: bytes, count: int) -> list[int]:
    return _all_of(array(kind, numbers).tolist(), count)


def _all_of(values: list[Any], count: int) -> list[Any]:
    if len(values) not in (1, count):
        raise ValueError(f"{len(values)} values for {count} events")
    return values if len(values) == count else values * count
