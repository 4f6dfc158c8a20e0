r"""Encodes the lines of a block of bytes as records with one field each.

* A line ends at ``\n`` or ``\r\n``; neither is part of it. A lone ``\r`` is an ordinary byte.
* A last line without an end is a line if the block is ``final``; else it is left for the next block. The empty rest
  after a final ``\n`` is not a line.
* An empty line is a line.
* Bytes that are not UTF-8 appear as ``\xNN``, as in the JSON of a structure, because LogHub's fields are text.

Example: the block ``a\r\n\xff`` with the field ``k`` at second 1 is two records, with the texts ``a`` and ``\xff``::

    0A 0A  08 01  12 06  0A 01 6B  12 01 61
    0A 0D  08 01  12 09  0A 01 6B  12 04 5C 78 66 66

``_lines.pyx`` is the native implementation, which runs without the GIL; :mod:`.speed` selects one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .protobuf import delimited, varint

if TYPE_CHECKING:
    from ..model.interfaces import Record


_END = re.compile(rb"\n")


class EncodedLines(NamedTuple):
    """The records of some lines.

    :ivar records: the concatenated records.
    :ivar lines: the number of lines.
    :ivar end: the offset of the next line in the block.
    """

    records: Record
    lines: int
    end: int


def encode_lines(  # noqa: PLR0917  # the native implementation takes positional arguments
    block: bytes | bytearray | memoryview,
    start: int,
    key: bytes,
    seconds: int,
    nanos: int,
    most_bytes: int,
    most_lines: int,
    final: bool,
) -> EncodedLines:
    """Encode lines from ``start`` on, up to the limits of a piece; a larger line is a piece of its own.

    :param block: contiguous bytes, which no other thread may change meanwhile.
    :param start: the offset of a line.
    :param key: the name of the field, UTF-8.
    :param seconds: the time of the logs, seconds since the epoch.
    :param nanos: nanoseconds within the second.
    :param most_bytes: maximum size of a piece, bytes.
    :param most_lines: maximum number of lines in a piece.
    :param final: True if the rest after the last line end is a line.
    """
    end = b"\x25" + nanos.to_bytes(4, "little") if nanos else b""
    heads = _Heads(b"\x08" + varint(seconds), delimited(0x0A, key) + b"\x12", len(end))
    records: list[bytes] = []
    size = 0
    for line, after in _lines(memoryview(block).cast("B"), start, final):
        record = b"".join((heads[len(line)], line, end))
        if records and size + len(record) > most_bytes:
            break
        records.append(record)
        size, start = size + len(record), after
        if len(records) >= most_lines:
            break
    return EncodedLines(b"".join(records), len(records), start)


class _Heads(dict[int, bytes]):
    """The bytes before a text in a record, by the length of the text.

    :param time: the Time field.
    :param name: the name, and the tag of the value.
    :param end_size: the size of the bytes after the text.
    """

    def __init__(self, time: bytes, name: bytes, end_size: int) -> None:
        super().__init__()
        self._time, self._name, self._end_size = time, name, end_size

    def __missing__(self, length: int) -> bytes:
        value = self._name + varint(length)
        content = b"\x12" + varint(len(value) + length) + value
        head = b"\x0a" + varint(len(self._time) + len(content) + length + self._end_size) + self._time + content
        self[length] = head
        return head


def _lines(block: memoryview, start: int, final: bool) -> Iterator[tuple[bytes, int]]:
    """Yield the text of each line, and the offset of the next one."""
    for found in _END.finditer(block, start):
        yield _text(bytes(block[start : found.start()]).removesuffix(b"\r")), found.end()
        start = found.end()
    if final and start < len(block):
        yield _text(bytes(block[start:])), len(block)


def _text(line: bytes) -> bytes:
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            return line.decode(errors="backslashreplace").encode()
    return line
