r"""Framing of syslog messages in a TCP connection (RFC 6587).

Messages end with ``\n`` or NUL, or have their size before them (``12 <13>abcdefgh``). The first byte of a connection
tells which, since a message begins with ``<``. Line ends and NULs between counted messages are skipped. A message that
is too long is truncated.

Example: ``<13>a\n<13>b\0`` and ``5 <13>a\n5 <13>b`` are both ``<13>a`` and ``<13>b``.
"""

from __future__ import annotations

import re

_ENDS = b"\r\n\0"
_SIZE = re.compile(rb"[\r\n\0]*+([1-9]\d{0,8}) ")
#: First bytes of a zlib stream, which rsyslog sends with compression.
_PACKED = re.compile(rb"x[\x01\x9c\xda]")
#: Length of a size and its space.
_LONGEST_SIZE = 10


class FramingError(ValueError):
    """Raised if a size is missing, or the stream is compressed."""


class Frames:
    """Splitter of the bytes of one connection.

    :param most: maximum bytes of a message.
    :ivar cut: indexes of the truncated messages among those returned last.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        #: Bytes to skip of a truncated message; -1 for all up to the line end.
        self._skip = 0
        #: Number of bytes needed before the search for the next message.
        self._needed = 0
        self._counted: bool | None = None
        self.cut: list[int] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages completed by these bytes.

        :raises FramingError: a size is missing, or the stream is compressed; earlier calls have returned the messages
            before it.
        """
        self.cut = []
        if self._counted is None:
            if _PACKED.match(data):
                raise FramingError("it sends a compressed stream: in rsyslog, remove compression.mode")
            self._counted = b"1" <= data[:1] <= b"9"
        return self._by_size(data) if self._counted else self._by_line(data)

    def end(self) -> list[bytes]:
        """Return the incomplete last message after the end of the connection."""
        rest = bytes(self._rest)
        if self._counted:
            size = _SIZE.match(rest)
            rest = rest[size.end() :] if size else b""
        self.cut = [0]
        return [rest] if rest else []

    def _by_line(self, data: bytes) -> list[bytes]:
        data = data.replace(b"\0", b"\n")
        if b"\n" not in data:
            self._rest += data
            return self._shortened()
        whole, _, rest = (bytes(self._rest) + data).rpartition(b"\n")
        self._rest = bytearray(rest)
        lines = whole.split(b"\n")
        if self._skip:
            del lines[0]
            self._skip = 0
        if len(whole) > self._most:
            self.cut = [number for number, line in enumerate(lines) if len(line) > self._most]
            for number in self.cut:
                lines[number] = lines[number][: self._most]
        return lines + self._shortened(len(lines))

    def _shortened(self, number: int = 0) -> list[bytes]:
        """Return the first part of an unfinished line that is already too long."""
        if self._skip:
            self._rest.clear()
            return []
        if len(self._rest) <= self._most:
            return []
        line = bytes(self._rest[: self._most])
        self._rest.clear()
        self._skip = -1
        self.cut.append(number)
        return [line]

    def _by_size(self, data: bytes) -> list[bytes]:
        self._rest += data
        found: list[bytes] = []
        if len(self._rest) < self._needed:
            return found
        buffer, at, self._needed = bytes(self._rest), 0, 0
        if self._skip:
            at = min(self._skip, len(buffer))
            self._skip -= at
        while at < len(buffer):
            size = _SIZE.match(buffer, at)
            if size is None:
                rest = buffer[at:].lstrip(_ENDS)
                self._rest = bytearray(rest)
                if found or _may_be_size(rest):
                    return found
                raise FramingError(f"a message without a size before it: {rest[:_LONGEST_SIZE]!r}")
            length, begin = int(size[1]), size.end()
            kept = min(length, self._most)
            if begin + kept > len(buffer):
                self._needed = begin + kept - at
                break
            found.append(buffer[begin : begin + kept])
            if kept < length:
                self.cut.append(len(found) - 1)
            at = min(begin + length, len(buffer))
            self._skip = begin + length - at
        self._rest = bytearray(buffer[at:])
        return found


def _may_be_size(text: bytes) -> bool:
    return not text or (len(text) < _LONGEST_SIZE and text.isdigit() and text[:1] != b"0")
