"""Reads a file of another encoding as UTF-8, from its first byte on."""

from __future__ import annotations

import codecs
import io

from ...wire.encodings import KEEP_BYTES, in_order

#: Bytes of the longest mark of a byte order.
_MARK_BYTES = 4


class Decoded(io.BufferedIOBase):
    """The text of a file in UTF-8; what is not text in its encoding stays, as ``KEEP_BYTES`` says.

    :param file: the file, at its first byte.
    :param encoding: of the file.
    :param size: bytes of the file that are read; None for all.
    """

    def __init__(self, file: io.BufferedIOBase, encoding: str, size: int | None) -> None:
        self._file, self._left, self._encoding = file, size, encoding
        self._decoder: codecs.IncrementalDecoder | None = None
        self._rest = b""
        self._ended = False

    def read1(self, size: int = io.DEFAULT_BUFFER_SIZE, /) -> bytes:
        """The next bytes, some at least; none at the end."""
        while not self._rest and not self._ended:
            data = self._read(size)
            self._ended = not data
            if self._decoder is None:  # its first bytes tell the order of those that follow
                while len(data) < _MARK_BYTES and (more := self._read(_MARK_BYTES)):
                    data += more
                self._decoder = codecs.getincrementaldecoder(in_order(self._encoding, data))(errors=KEEP_BYTES)
            self._rest = self._decoder.decode(data, final=self._ended).encode(errors=KEEP_BYTES)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _read(self, size: int) -> bytes:
        wanted = size if self._left is None else min(size, self._left)
        data = self._file.read1(wanted) if wanted else b""
        if self._left is not None:
            self._left -= len(data)
        return data
