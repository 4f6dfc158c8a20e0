r"""The lines of a block of bytes become records, one field each; the rules, and the twin that shows them.

* A line ends at ``\n`` or ``\r\n``; neither is part of it. A lone ``\r`` is an ordinary byte.
* A last line without an end is a line if the block is ``final``; else it is left for the next block. The empty rest
  behind a final ``\n`` is no line.
* An empty line is a line.
* What is not UTF-8 appears as ``\xNN``, a byte at a time, as in the JSON of a structure: LogHub's fields are text.

Example: the block ``a\r\n\xff`` with the field ``k`` at second 1 is two records, of the texts ``a`` and ``\xff``::

    0A 0A  08 01  12 06  0A 01 6B  12 01 61
    0A 0D  08 01  12 09  0A 01 6B  12 04 5C 78 66 66

``_lines.pyx`` is the compiled twin, which runs without the interpreter lock; :mod:`.speed` picks one of them.
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

    :ivar records: one behind the other.
    :ivar lines: how many they are.
    :ivar end: where in the block the next line begins.
    """

    records: Record
    lines: int
    end: int


def encode_lines(  # noqa: PLR0917  # as the compiled twin, which is called by position
    block: bytes | bytearray | memoryview,
    start: int,
    key: bytes,
    seconds: int,
    nanos: int,
    most_bytes: int,
    most_lines: int,
    final: bool,
) -> EncodedLines:
    """The records of the lines from ``start`` on, until they are a piece; of a line that is larger, that one.

    :param block: of contiguous bytes, which nobody may change meanwhile.
    :param start: where a line begins.
    :param key: the name of the field, UTF-8.
    :param seconds: the logs' time since the epoch.
    :param nanos: the part of a second below it.
    :param most_bytes: of a piece.
    :param most_lines: of a piece.
    :param final: whether the rest behind the last line end is a line.
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
    """What precedes a text in a record, by the text's length.

    :param time: the Time field.
    :param name: the name, and the tag of the value.
    :param end_size: of what follows the text.
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
    """The texts of the lines, and where each one's successor begins."""
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
