r"""Format of a batch as one event of a channel.

The batch's shared headers are the event's. Headers of the format begin with ``~``, and a user's header that begins so
gets another ``~`` in front:

* ``~count``: the number of events in the batch;
* ``~position``: the read offset of its source, if it has a :class:`~.batch.Position`: the end, a space, the name;
* ``~from``: the end of the previous batch: a number, a space, and the path, if it is a file;
* ``~form``: ``lines`` if the body is the unchanged block, or ``ends`` if the body is::

      4 bytes   the number of columns, little-endian, as all numbers
      count * 8 the end of each body in the block
      columns   of each: 4 bytes, the size of its name; the name; 4 bytes, the size of all its values together;
                count * 4, the size of each (0xFFFFFFFF for none); and the values
      the rest  the block

  Lines with columns are written as ends.

An event without ``~count`` was not written by an agent. It is read as a batch of one event.

*Example.* Two events, ``a`` with the header ``n`` = ``1`` and ``bc`` without it; ``~form`` is ``ends``, ``~count`` 2::

    01 00 00 00  01 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00
    01 00 00 00 6e  01 00 00 00  01 00 00 00 ff ff ff ff  31  61 62 63
"""

from __future__ import annotations

import sys
from array import array
from itertools import accumulate

from ...model.errors import InvalidArgumentError
from ...model.interfaces import Event
from ...wire.text_column import ABSENT, TextColumn
from .batch import Column, EventBatch, Position

_COUNT, _FORM, _POSITION, _FROM = "~count", "~form", "~position", "~from"
_LINES, _ENDS = "lines", "ends"
_DIGITS = 20
#: Characters of a header name that always fits, and the maximum bytes of a name: a file channel stores its size in 16
#: bits.
_SHORT, _MOST_NAME = 16_000, 65_000


class UnreadableBatchError(ValueError):
    """Raised when an event's body does not match its headers."""


def write_batch(batch: EventBatch) -> Event:
    """Encode a batch as an event.

    :raises InvalidArgumentError: if a header's name is too long.
    """
    for name in (*batch.shared, *batch.columns):
        if len(name) > _SHORT and (size := len(name.encode(errors="surrogatepass"))) > _MOST_NAME:
            raise InvalidArgumentError(f"the name of a header has {size} bytes; at most {_MOST_NAME} fit")
    headers: dict[str, str | None] = {_escaped(name): value for name, value in batch.shared.items()}
    headers[_COUNT] = str(batch.count)
    if batch.position is not None:
        headers[_POSITION] = f"{batch.position.end} {batch.position.name}"
        headers[_FROM] = f"{batch.position.start} {batch.position.place}"
    if batch.ends is None and not batch.columns:
        headers[_FORM] = _LINES
        return Event(headers, batch.block)
    headers[_FORM] = _ENDS
    return Event(headers, _packed(batch))


def read_batch(event: Event) -> EventBatch:
    """Decode the batch of an event.

    :raises UnreadableBatchError: if the event holds no batch.
    """
    headers = event.headers
    if _COUNT not in headers:
        shared = {name: value for name, value in headers.items() if value is not None}
        return EventBatch(event.body, array("Q", [len(event.body)]), 1, shared, sequence=event.sequence)
    shared = {_plain(name): value for name, value in headers.items() if _is_users(name) and value is not None}
    position = position_of(event)
    try:
        count = int(headers[_COUNT] or "")
        if headers.get(_FORM) == _LINES:
            return EventBatch(event.body, None, count, shared, position=position, sequence=event.sequence)
        columns, ends, block = _unpacked(event.body, count)
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise UnreadableBatchError(f"not a batch of {headers[_COUNT]} events: {error}") from error
    return EventBatch(block, ends, count, shared, columns, position, event.sequence)


def position_of(event: Event) -> Position | None:
    """Return the read offset of an event's source; None if it has none, or an invalid one."""
    end, _, name = (event.headers.get(_POSITION) or "").partition(" ")
    start, _, place = (event.headers.get(_FROM) or "").partition(" ")
    if not _is_number(end):
        return None
    return Position(name, int(end), place, int(start) if _is_number(start) else 0)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < _DIGITS


def size_of_columns(event: Event) -> int:
    """Return the bytes of an event that hold the ends of bodies and the columns.

    :raises UnreadableBatchError: if the event holds no batch.
    """
    count = event.headers.get(_COUNT)
    if count is None or event.headers.get(_FORM) == _LINES:
        return 0
    try:
        return _start_of_block(event.body, int(count))
    except ValueError as error:
        raise UnreadableBatchError(f"not a batch of {count} events: {error}") from error


def is_batch(event: Event) -> bool:
    """Return True if the event is marked as a batch."""
    return _COUNT in event.headers


def count_of(event: Event) -> int:
    """Return the number of events in an event's batch; 1 if it is not a batch."""
    text = event.headers.get(_COUNT) or "1"
    return int(text) if _is_number(text) else 1


def _packed(batch: EventBatch) -> bytes:
    if batch.ends is None:
        bodies = batch.bodies()
        ends, block = array("Q", accumulate(map(len, bodies))), b"".join(bodies)
    else:
        ends, block = batch.ends, batch.block
    parts = [len(batch.columns).to_bytes(4, "little"), _little(ends)]
    for name, column in batch.columns.items():
        parts += (*_text(name), *_values(column))
    return b"".join([*parts, block])


def _unpacked(body: bytes, count: int) -> tuple[dict[str, Column], array[int], bytes]:
    begin = 4 + 8 * count
    ends = _numbers("Q", body[4:begin], count)
    block = _start_of_block(body, count)
    given, start = body[begin:block], 0
    columns: dict[str, Column] = {}
    for _ in range(int.from_bytes(body[:4], "little")):
        name, start = _read_text(given, start)
        columns[name], start = _read_values(given, start, count)
    if start != len(given):
        raise ValueError(f"its columns have {start} bytes, not {len(given)}")
    return columns, ends, body[block:]


def _start_of_block(body: bytes, count: int) -> int:
    """Return the offset in a body where the columns end and the block begins.

    :raises ValueError: if the block is larger than the body.
    """
    begin = 4 + 8 * count
    block = len(body) - (int.from_bytes(body[begin - 8 : begin], "little") if count else 0)
    if not 4 <= begin <= block:
        raise ValueError(f"its bodies have more than its {len(body)} bytes")
    return block


def _numbers(kind: str, raw: bytes, count: int) -> array[int]:
    numbers = array(kind)
    if len(raw) != count * numbers.itemsize:
        raise ValueError(f"{count} numbers are {count * numbers.itemsize} bytes, not {len(raw)}")
    numbers.frombytes(raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _text(text: str) -> tuple[bytes, bytes]:
    raw = text.encode(errors="surrogatepass")
    return len(raw).to_bytes(4, "little"), raw


def _read_text(body: bytes, start: int) -> tuple[str, int]:
    size = int.from_bytes(body[start : start + 4], "little")
    start += 4
    if start + size > len(body):
        raise ValueError(f"a text of {size} bytes ends behind the body's {len(body)}")
    return body[start : start + size].decode(errors="surrogatepass"), start + size


def _values(column: Column) -> tuple[bytes, bytes, bytes]:
    """Encode a column: the size of all values, the size of each, and the values."""
    packed = TextColumn.of(column)
    sizes = packed.sizes if sys.byteorder == "little" else _little(array("I", packed.sizes))
    return len(packed.data).to_bytes(4, "little"), sizes, packed.data


def _read_values(body: bytes, start: int, count: int) -> tuple[TextColumn, int]:
    total, start = int.from_bytes(body[start : start + 4], "little"), start + 4
    sizes = _numbers("I", body[start : start + 4 * count], count)
    raw, start = body[start + 4 * count : start + 4 * count + total], start + 4 * count + total
    known = sum(sizes)
    if known != len(raw):
        known -= ABSENT * sizes.count(ABSENT)
    if known != len(raw) or len(raw) != total:
        raise ValueError(f"the values of a column have {len(raw)} bytes, not {total}")
    column = TextColumn(sizes.tobytes(), raw)
    if not raw.isascii():
        column.texts()  # raises if the values are not UTF-8
    return column, start


def _is_users(name: str) -> bool:
    return not name.startswith("~") or name.startswith("~~")


def _escaped(name: str) -> str:
    return f"~{name}" if name.startswith("~") else name


def _plain(name: str) -> str:
    return name[1:] if name.startswith("~~") else name
