"""Decompresses streams in bounded memory; the first bytes, not a name, decide the format (:mod:`.compressed_heads`)."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol, cast

import lz4.frame

from ..text.extras import missing
from .zstd import zstd

try:  # isal takes a third of zlib's time, but is not available on every platform.
    from isal import igzip_lib, isal_zlib
except ImportError:
    _decompressobj: Callable[[int], Any] = zlib.decompressobj
    _GZIP_DAMAGE: tuple[type[Exception], ...] = (zlib.error,)
else:
    _decompressobj = isal_zlib.decompressobj
    _GZIP_DAMAGE = (zlib.error, cast("type[Exception]", igzip_lib.IsalError))

# Compressed bytes read at a time; the decompressor returns only as many plain bytes as requested.
_READ_BYTES = 1 << 17
# The ``wbits`` of ``zlib.decompressobj`` for data with gzip's header and checksum.
_GZIP_WINDOW = 31
_SNAPPY_HEAD = b"\xff\x06\0\0sNaPpY"
_HEADER_BYTES = 4
#: Maximum bytes of the window of xz, as zstd's own limit; the highest level of xz takes 65 MiB.
WINDOW_BYTES = 128 << 20
# Types of snappy's chunks: data, and those that a reader must not skip.
_SNAPPY_DATA = (0x00, 0x01)
_SNAPPY_UNKNOWN = range(0x02, 0x80)


class DamagedError(ValueError):
    """Raised when compressed data is damaged."""


#: Raised by reading a damaged or truncated compressed file.
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, OSError, ValueError)


def decompressing(file: io.BufferedIOBase, compression: str) -> io.BufferedIOBase:
    """Return a reader of the plain bytes of ``file``, which needs only ``read1``; several members are read as one.

    Its ``read1`` returns as many bytes as requested, unless the data ends or is damaged. Damage is raised by the next
    call.

    :raises ImportError: a package is missing.
    """
    return _Whole(_READERS[compression](file))


class _Reads(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class _Whole(io.BufferedIOBase):
    """A reader that fills each request from the small parts of a decompressor."""

    def __init__(self, plain: _Reads) -> None:
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


class _Pieces:
    """A file for the libraries' readers, of which only ``read1`` is needed."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        return self._file.read1(size)


class _Members:
    """The members of a gzip file, or the streams of an xz file, without the zeros that may pad them.

    It replaces the libraries' readers: that of gzip discards the bytes already read of a truncated file, that of xz
    takes a window of any size.

    :param start: makes the decompressor of a member.
    """

    def __init__(self, file: io.BufferedIOBase, start: Callable[[], Any]) -> None:
        self._file, self._start = file, start
        self._member: Any = None  # None before the first member and between two.
        self._rest = b""  # Bytes after the end of a member.

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; nothing at the end."""
        while True:
            data, has_ended = b"", False
            if self._member is None or self._member.needs_input:
                data, self._rest = self._rest or self._file.read1(_READ_BYTES), b""
                has_ended = not data
            if plain := self._decompress(data, size):
                return plain
            if has_ended:
                if self._member is not None:
                    raise EOFError("ends within a member")
                return b""

    def _decompress(self, data: bytes, size: int) -> bytes:
        if self._member is None:
            data = data.lstrip(b"\0")
            if not data:
                return b""
            self._member = self._start()
        plain: bytes = self._member.decompress(data, size)
        if self._member.eof:
            self._rest, self._member = self._member.unused_data, None
        return plain


class _GzipMember:
    """A decompressor of one member of a gzip file, with the interface of the other decompressors."""

    def __init__(self) -> None:
        self._member: Any = _decompressobj(_GZIP_WINDOW)

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    @property
    def eof(self) -> bool:
        return bool(self._member.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._member.unused_data)

    def decompress(self, data: bytes, size: int) -> bytes:
        try:
            return bytes(self._member.decompress(self._member.unconsumed_tail or data, size))
        except _GZIP_DAMAGE as error:
            raise DamagedError(str(error)) from error


def _xz_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=WINDOW_BYTES)


class _Lz4(lz4.frame.LZ4FrameFile):
    """The frames of an lz4 file; damage is raised as :class:`DamagedError`."""

    def read1(self, size: int = -1, /) -> bytes:
        try:
            return bytes(super().read1(size))
        except RuntimeError as error:
            raise DamagedError(str(error)) from error


class _Snappy:
    """The chunks of a file in snappy's framing format: type, size in three bytes, data of 64 KiB at most."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        try:
            from cramjam import DecompressionError, snappy
        except ModuleNotFoundError as error:
            raise missing(error, "snappy") from error
        self._file = file
        self._decompress, self._invalid = snappy.decompress, DecompressionError
        self._rest = b""

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; nothing at the end."""
        while not self._rest and (part := self._part()) is not None:
            self._rest = part
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _part(self) -> bytes | None:
        """Return the bytes of the next chunk; None at the end."""
        header = self._exactly(_HEADER_BYTES, start=True)
        if not header:
            return None
        chunk = header + self._exactly(int.from_bytes(header[1:], "little"))
        if header[0] in _SNAPPY_UNKNOWN:
            raise DamagedError(f"a chunk of the unknown type {header[0]:#x}")
        if header[0] not in _SNAPPY_DATA:
            return b""
        try:
            return bytes(self._decompress(_SNAPPY_HEAD + chunk))
        except self._invalid as error:
            raise DamagedError(str(error)) from error

    def _exactly(self, size: int, *, start: bool = False) -> bytes:
        data = b""
        while len(data) < size and (more := self._file.read1(size - len(data))):
            data += more
        if len(data) < size and (data or not start):
            raise EOFError("ends within a chunk")
        return data


_READERS: dict[str, Callable[[io.BufferedIOBase], _Reads]] = {
    "gzip": lambda file: _Members(file, _GzipMember),
    "bz2": lambda file: bz2.BZ2File(cast("Any", _Pieces(file))),
    "xz": lambda file: _Members(file, _xz_stream),
    "zstd": lambda file: zstd.ZstdFile(cast("Any", _Pieces(file))),
    "lz4": lambda file: _Lz4(_Pieces(file)),
    "snappy": _Snappy,
}
