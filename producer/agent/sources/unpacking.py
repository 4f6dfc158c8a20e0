"""Decompression of data from peers, piece by piece, in time linear in the compressed bytes.

gzip and zstd data may have any number of members, as Fluentd sends them. Each unpacker is fed few bytes at a time,
since zlib copies the bytes after a member, and a member may have only 20 bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

from ...wire.zstd import zstd

#: Names used by HTTP and by Fluentd.
PACKINGS = ("gzip", "x-gzip", "deflate", "zstd")
_FED, _PIECE = 1 << 11, 1 << 16
# It takes 16 microseconds to make a decompressor, so the number of tiny frames is limited: to this many, plus one for
# each 64 bytes.
_ZSTD_FRAMES, _ZSTD_FRAME_BYTES = 1000, 64
# The maximum window is 8 MiB, that of the highest level that is not "ultra".
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}


class UnpackingError(ValueError):
    """Raised for data that is invalid or incomplete."""


def unpacked(kind: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack data, at most 64 KiB at a time.

    :param kind: one of :data:`PACKINGS`.
    :raises UnpackingError: the data is invalid.
    """
    return _zstd(pieces) if kind == "zstd" else _zlib(kind, pieces)


def packing_of(message: bytes) -> str | None:
    """Return the packing of a message by its first bytes: gzip or deflate (zlib); None for another message."""
    return "gzip" if message.startswith(b"\x1f\x8b") else "deflate" if message.startswith(b"\x78") else None


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
    unpacker = None
    frames_left = _ZSTD_FRAMES
    try:
        for data in _fed(pieces):
            frames_left += len(data) // _ZSTD_FRAME_BYTES
            while data or not (unpacker is None or unpacker.needs_input or unpacker.eof):
                if unpacker is None or unpacker.eof:
                    frames_left -= 1
                    if frames_left < 0:
                        raise UnpackingError(f"more than {_ZSTD_FRAMES} frames, of less than {_ZSTD_FRAME_BYTES} bytes")
                    unpacker = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
                yield unpacker.decompress(data, _PIECE)
                data = unpacker.unused_data  # noqa: PLW2901  # the rest of the piece
    except zstd.ZstdError as error:
        raise UnpackingError(f"invalid zstd: {error}") from error
    if unpacker is None or not unpacker.eof:
        raise UnpackingError("the data is incomplete")


def _fed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        with memoryview(piece) as view:
            for start in range(0, len(piece), _FED):
                yield bytes(view[start : start + _FED])
