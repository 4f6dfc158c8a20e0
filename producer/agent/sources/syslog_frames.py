r"""Where one message of syslog ends and the next begins in a TCP connection (RFC 6587).

Messages end with ``\n`` or NUL, or each has its size before it (``12 <13>abcdefgh``): the first byte of a connection
tells, since a message begins with ``<``. Line ends and NULs behind a message that its size does not count are skipped.
Of a message that is longer than allowed the first bytes are kept.

Example: ``<13>a\n<13>b\0`` and ``5 <13>a\n5 <13>b`` are both ``<13>a`` and ``<13>b``.
"""

from __future__ import annotations

import re

_ENDS = b"\r\n\0"
_SIZE = re.compile(rb"[\r\n\0]*+([1-9]\d{0,8}) ")
#: How a stream of zlib begins, which rsyslog sends if told to.
_PACKED = re.compile(rb"x[\x01\x9c\xda]")
#: Digits of a size, and its space.
_LONGEST_SIZE = 10


class FramingError(ValueError):
    """What came is no size where one must stand, or is compressed."""


class Frames:
    """Cuts the bytes of one connection.

    :param most: bytes of a message.
    :ivar cut: the numbers of the messages, of the last ones returned, that are not whole.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        #: Bytes to pass over, of a message whose first ones are gone already; -1 for all up to a line's end.
        self._skip = 0
        #: Bytes without which there is nothing to look for.
        self._needed = 0
        self._counted: bool | None = None
        self.cut: list[int] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that have ended.

        :raises FramingError: see there; what came before has been returned.
        """
        self.cut = []
        if self._counted is None:
            if _PACKED.match(data):
                raise FramingError("it compresses its stream: in rsyslog leave out compression.mode")
            self._counted = b"1" <= data[:1] <= b"9"
        return self._by_size(data) if self._counted else self._by_line(data)

    def end(self) -> list[bytes]:
        """What was left behind when the connection ended."""
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
        """Of a line that has no end yet and is too long already, its beginning."""
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
                raise FramingError(f"no size before a message: {rest[:_LONGEST_SIZE]!r}")
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
