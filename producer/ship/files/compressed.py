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
    "xz": lambda file: lzma.LZMAFile(cast("IO[bytes]", file)),  # noqa: SIM115  # noqa: SIM115  (the caller closes it)
}

#: What reading a damaged or cut-off compressed file raises.
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)


def compression_of(head: bytes) -> str | None:
    """The compression that ``head``, a file's first bytes, announces; None for plain bytes."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def decompressing(file: io.BufferedIOBase, compression: str) -> io.BufferedIOBase:
    """A reader of the plain bytes of ``file``; several members one after the other are read as one."""
    return _READERS[compression](file)
