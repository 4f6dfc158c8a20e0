"""Converts text of another encoding to UTF-8, from the first byte of a file or a stream."""

from __future__ import annotations

import codecs
import io

from ...wire.encodings import KEEP_BYTES, in_order

#: Bytes of the longest byte order mark.
_MARK_BYTES = 4


class Converter:
    """Converts bytes to UTF-8 incrementally; ``KEEP_BYTES`` handles bytes that are invalid in the encoding.

    :param encoding: the encoding of the bytes.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding, self._head = encoding, b""
        self._decoder: codecs.IncrementalDecoder | None = None

    def add(self, data: bytes, *, final: bool) -> bytes:
        """Return the converted text of all complete characters, which may be empty.

        :param final: True if no bytes follow.
        """
        if self._decoder is None:  # The first bytes determine the byte order.
            data = self._head = self._head + data
            if len(data) < _MARK_BYTES and not final:
                return b""
            self._decoder = codecs.getincrementaldecoder(in_order(self._encoding, data))(errors=KEEP_BYTES)
        return self._decoder.decode(data, final=final).encode(errors=KEEP_BYTES)


class Decoded(io.BufferedIOBase):
    """A reader of the text of a file in UTF-8, converted by :class:`Converter`.

    :param file: the file, at its first byte.
    :param encoding: the encoding of the file.
    :param size: number of bytes of the file to read; None for all.
    """

    def __init__(self, file: io.BufferedIOBase, encoding: str, size: int | None) -> None:
        self._file, self._left, self._converter = file, size, Converter(encoding)
        self._rest = b""
        self._ended = False

    def read1(self, size: int = io.DEFAULT_BUFFER_SIZE, /) -> bytes:
        """Return the next bytes, at least one; nothing at the end."""
        while not self._rest and not self._ended:
            data = self._read(size)
            self._ended = not data
            self._rest = self._converter.add(data, final=self._ended)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _read(self, size: int) -> bytes:
        wanted = size if self._left is None else min(size, self._left)
        data = self._file.read1(wanted) if wanted else b""
        if self._left is not None:
            self._left -= len(data)
        return data
