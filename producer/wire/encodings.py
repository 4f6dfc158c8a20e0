r"""Detects the encoding of a file by its first bytes, and holes of NULs.

A **mark** (byte order mark) at the beginning of a file is not part of its first line. A **hole** is a run of four NULs
or more at the beginning of a line. It results when a program does not append: after its file was truncated
(``copytruncate``), it continues to write at its old offset.

Example: a file that begins with ``b"\xff\xfea\0"`` looks like ``utf-16``.
"""

from __future__ import annotations

import codecs
import functools
import os
from typing import NamedTuple

MARK = codecs.BOM_UTF8
#: Fewer NULs may be a character of UTF-32.
HOLE = b"\0" * 4

# The mark of UTF-32 is first, as it begins with that of UTF-16.
_MARKS = (
    *((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")),
    *((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")),
)
#: Maximum and minimum bytes to examine.
SEEN_BYTES, _LEAST = 1024, 8
_PIECE_BYTES = 1 << 20
#: The error handler of codecs for lines that become UTF-8. It keeps bytes that are invalid in an encoding, so that the
#: line is not UTF-8; those below 0x80 would look like text, and become ``\\xNN``.
KEEP_BYTES = "producer.keep-bytes"
_ESCAPED, _LEAST_BYTE = 0xDC00, 0x80  # The code points of ``surrogateescape``.
_ORDERED = {"utf-16": codecs.BOM_UTF16_BE, "utf-32": codecs.BOM_UTF32_BE}


def looks_like(head: bytes) -> str | None:
    """Return the encoding of a file with these first bytes; None for UTF-8, or if it is uncertain."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    seen = head[: min(len(head), SEEN_BYTES) // 2 * 2]
    first, second = seen[::2].count(0), seen[1::2].count(0)
    if len(seen) < _LEAST or HOLE in seen or max(first, second) < len(seen) // 4:
        return None
    return ("utf-16-le" if second else "utf-16-be") if min(first, second) == 0 else None


def _keep_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    """Decode each invalid byte to a surrogate, and encode each surrogate to its byte."""
    if isinstance(error, UnicodeDecodeError):
        bad = error.object[error.start : error.end]
        return "".join(chr(_ESCAPED + byte) if byte >= _LEAST_BYTE else f"\\x{byte:02x}" for byte in bad), error.end
    if isinstance(error, UnicodeEncodeError):
        return b"".join(map(_kept, error.object[error.start : error.end])), error.end
    raise error


def _kept(character: str) -> bytes:
    code = ord(character) - _ESCAPED
    return bytes([code]) if _LEAST_BYTE <= code <= 0xFF else character.encode(errors="backslashreplace")


codecs.register_error(KEEP_BYTES, _keep_bytes)


def is_valid_utf8(data: bytes) -> bool:
    """Return True if the bytes are UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@functools.cache
def is_utf8(encoding: str) -> bool:
    """Return True if the bytes of lines can stay unchanged.

    :raises LookupError: there is no such text encoding, or it encodes names and supports no error handler (``idna``).
    """
    try:
        "".encode(encoding)
        codecs.getincrementaldecoder(encoding)(errors=KEEP_BYTES).decode(b"a")
    except UnicodeError as error:
        raise LookupError(f"{encoding} decodes no lines: {error}") from error
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")


def in_order(encoding: str, head: bytes) -> str:
    """Return the encoding with its byte order, from the mark at the beginning of the file if it has one."""
    name = codecs.lookup(encoding).name.removesuffix("-sig")  # which would put a mark before each line end
    if name not in _ORDERED:
        return name
    return f"{name}-{'be' if head.startswith(_ORDERED[name]) else 'le'}"


def line_end_of(encoding: str) -> bytes:
    """Return the bytes of a line end, in an encoding with its byte order."""
    return "\n".encode(encoding)


class Converted(NamedTuple):
    """Lines in UTF-8.

    :ivar replaced: characters U+FFFD in them, if some bytes were invalid.
    """

    data: bytes
    replaced: int


def to_utf8(data: bytes, encoding: str, *, first: bool) -> Converted:
    """Convert whole lines to UTF-8; invalid bytes become U+FFFD.

    :param first: True if the data begins the file, and may have a mark.
    """
    try:
        text = data.decode(encoding)
        encoded, replaced = (text.removeprefix("\ufeff") if first else text).encode(), 0
    except UnicodeError:
        text = "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in data.decode(encoding, "replace"))
        encoded, replaced = (text.removeprefix("\ufeff") if first else text).encode(), text.count("\ufffd")
    return Converted(encoded, replaced)


def whole_characters(data: bytes, start: int, encoding: str) -> int:
    """Return the end of the last complete character in a part of a line; ``start`` if none is complete.

    :param start: the offset of the first character.
    :param encoding: the encoding with its byte order.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    decoder.decode(data[start:])
    return len(data) - len(decoder.getstate()[0])


def last_line_end(data: bytes, start: int, line_end: bytes) -> int:
    """Return the offset after the last line end; 0 if there is none.

    :param start: the offset of the first character in the data.
    """
    at = data.rfind(line_end, start)
    while at >= 0 and (at - start) % len(line_end):
        at = data.rfind(line_end, start, at + len(line_end) - 1)
    return at + len(line_end) if at >= 0 else 0


def hole_end(descriptor: int, start: int) -> int | None:
    """Return the offset after a hole of a file; None if nothing is written after it yet.

    :raises OSError: the file cannot be read.
    """
    while True:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError:
            return None  # There is no data up to the end of the file.
        data = os.pread(descriptor, _PIECE_BYTES, start)
        if not data:
            return None
        rest = data.lstrip(b"\0")
        start += len(data) - len(rest)
        if rest:
            return start
