"""Unpacks what senders have packed, a piece at a time, in time that grows as the packed bytes do.

gzip and zstd may have any number of members behind each other, as Fluentd sends them. Each unpacker is fed few bytes at
a time: zlib copies what stands behind a member, and a member may have 20 bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

import zstandard

#: By the names of HTTP and of Fluentd.
PACKINGS = ("gzip", "x-gzip", "deflate", "zstd")
_FED, _FED_OF_ZSTD, _PIECE = 1 << 11, 1 << 7, 1 << 16
#: Bytes of a window that zstd may look back; the largest of its levels that are not "ultra".
_MOST_WINDOW = 1 << 23


class UnpackingError(ValueError):
    """It is not packed in that way, or not whole."""


def unpacked(kind: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack some bytes, at most 64 KiB at a time; of zstd 4 MiB.

    :param kind: one of :data:`PACKINGS`.
    :raises UnpackingError: it cannot be done.
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
                data = unpacker.unconsumed_tail or unpacker.unused_data  # noqa: PLW2901  # what is left of it
        while unpacker is not None and not unpacker.eof:
            piece = unpacker.decompress(b"", _PIECE)
            if not piece:
                raise UnpackingError("it is not whole")
            yield piece
    except zlib.error as error:
        raise UnpackingError(f"it is no {kind}: {error}") from error
    if unpacker is None:
        raise UnpackingError("it is empty")


def _gzip(_data: bytes) -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _deflate(data: bytes) -> zlib._Decompress:
    """With zlib's head, as HTTP means it, or without, as some send it."""
    return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)


def _zstd(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Of few bytes more than of the others: a block of 4 may become 128 KiB, and all that is made comes at once."""
    packed = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    unpacker = None
    try:
        for data in _fed(pieces, _FED_OF_ZSTD):
            while data:
                if unpacker is None or unpacker.eof:
                    unpacker = packed.decompressobj()
                yield unpacker.decompress(data)
                data = unpacker.unused_data  # noqa: PLW2901  # what is left of it
    except zstandard.ZstdError as error:
        raise UnpackingError(f"it is no zstd: {error}") from error
    if unpacker is None or not unpacker.eof:
        raise UnpackingError("it is not whole")


def _fed(pieces: Iterable[bytes], size: int = _FED) -> Iterator[bytes]:
    for piece in pieces:
        with memoryview(piece) as view:
            for start in range(0, len(piece), size):
                yield bytes(view[start : start + size])
