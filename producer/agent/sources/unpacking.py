"""Decompression of data from peers, piece by piece, in time linear in the compressed bytes.

gzip and zstd data may have any number of members, as Fluentd sends them. Each unpacker is fed few bytes at a time,
since zlib copies the bytes after a member, and a member may have only 20 bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

import zstandard

#: Names used by HTTP and by Fluentd.
PACKINGS = ("gzip", "x-gzip", "deflate", "zstd")
_FED, _FED_OF_ZSTD, _PIECE = 1 << 11, 1 << 7, 1 << 16
#: Maximum bytes of a zstd window: that of the highest level that is not "ultra".
_MOST_WINDOW = 1 << 23


class UnpackingError(ValueError):
    """Raised for data that is invalid or incomplete."""


def unpacked(kind: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack data, at most 64 KiB at a time; for zstd, 4 MiB.

    :param kind: one of :data:`PACKINGS`.
    :raises UnpackingError: the data is invalid.
    """
    return _zstd(pieces) if kind == "zstd" else _zlib(kind, pieces)


def _zlib(kind: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    make: Callable[[bytes], zlib._Decompress] = _deflate if kind == "deflate" else _gzip
    unpacker = None
    try:
        for data in _fed(pieces):
            while data:
                if unpacker is None or unpacker.eof:
                    unpacker = make(data)
                yield unpacker.decompress(data, _PIECE)
                data = unpacker.unconsumed_tail or unpacker.unused_data  # noqa: PLW2901  # the rest of the piece
        while unpacker is not None and not unpacker.eof:
            piece = unpacker.decompress(b"", _PIECE)
            if not piece:
                raise UnpackingError("the data is incomplete")
            yield piece
    except zlib.error as error:
        raise UnpackingError(f"invalid {kind}: {error}") from error
    if unpacker is None:
        raise UnpackingError("the data is empty")


def _gzip(_data: bytes) -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _deflate(data: bytes) -> zlib._Decompress:
    """Return an unpacker with zlib's header, as HTTP requires, or without, as some clients send it."""
    return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)


def _zstd(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Feed fewer bytes at a time than to zlib: a block of 4 may unpack to 128 KiB, returned at once."""
    packed = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    unpacker = None
    try:
        for data in _fed(pieces, _FED_OF_ZSTD):
            while data:
                if unpacker is None or unpacker.eof:
                    unpacker = packed.decompressobj()
                yield unpacker.decompress(data)
                data = unpacker.unused_data  # noqa: PLW2901  # the rest of the piece
    except zstandard.ZstdError as error:
        raise UnpackingError(f"invalid zstd: {error}") from error
    if unpacker is None or not unpacker.eof:
        raise UnpackingError("the data is incomplete")


def _fed(pieces: Iterable[bytes], size: int = _FED) -> Iterator[bytes]:
    for piece in pieces:
        with memoryview(piece) as view:
            for start in range(0, len(piece), size):
                yield bytes(view[start : start + size])
