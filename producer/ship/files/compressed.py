"""Compressed log files: told by their first bytes, not by their name, and read as a stream."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from functools import partial
from typing import IO, cast

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}

# The caller closes what it gets.
_READERS: dict[str, Callable[[io.BufferedIOBase], io.BufferedIOBase]] = {
    "gzip": partial(gzip.GzipFile, None, "rb", 9),
    "bz2": bz2.BZ2File,
    "xz": lambda file: lzma.LZMAFile(cast("IO[bytes]", file)),  # noqa: SIM115  (the caller closes it)
}

#: What reading a damaged or cut-off compressed file raises.
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)


def compression_of(head: bytes) -> str | None:
    """The compression that ``head``, a file's first bytes, announces; None for plain bytes."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def decompressing(file: io.BufferedIOBase, compression: str) -> io.BufferedIOBase:
    """A reader of the plain bytes of ``file``; several members one after the other are read as one.

    Its ``read1`` gives as much as was asked for, unless the data ends, or is damaged: that is raised by the next call.
    """
    return _Whole(_READERS[compression](file))


class _Whole(io.BufferedIOBase):
    """Puts together what a decompressor gives in small parts."""

    def __init__(self, plain: io.BufferedIOBase) -> None:
        self._plain = plain
        self._damage: Exception | None = None

    def read1(self, size: int = -1, /) -> bytes:
        parts: list[bytes] = []
        while size > 0 and self._damage is None:
            try:
                part = self._plain.read1(size)
            except DAMAGE as error:
                self._damage = error
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        if self._damage is not None and not parts:
            raise self._damage
        return b"".join(parts)
