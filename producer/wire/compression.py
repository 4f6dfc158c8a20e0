"""Compression of request and response bodies, by its name in ``x-log-compresstype``.

``lz4`` is one raw block (without a frame or a size), ``zstd`` a normal frame, ``deflate`` the zlib format of RFC 1950,
``none`` the plain bytes. ``x-log-bodyrawsize`` has the raw size of each compressed body. It limits decompression, so a
larger body is rejected before memory is used.

Source: LogHub protocol, PutLogs.
"""

from __future__ import annotations

import io
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import lz4.block

from ..model.errors import CompressionError
from ..text.plural import counted
from .zstd import zstd

T = TypeVar("T")

#: The names in ``x-log-compresstype`` and ``ProducerConfig.compression``.
COMPRESSIONS = ("lz4", "zstd", "deflate", "none")

# zstd contexts are not thread-safe, and take longer to make than to use, so each thread has one.
_local = threading.local()
# Sizes of the buffer of a thread, bytes. For smaller bodies, and for many parts, a plain join is faster.
_LEAST_KEPT, _MAX_KEPT = 16 * 1024, 4 * 1024 * 1024
_MAX_PARTS = 256


def compress(data: bytes | memoryview, compression: str) -> bytes:
    """Compress ``data``.

    :param data: the raw body, bytes.
    :param compression: one of :data:`COMPRESSIONS`.
    :raises CompressionError: the name is unknown.
    """
    return _method(_COMPRESSORS, compression)(data)


def compress_joined(parts: Sequence[bytes | memoryview], compression: str) -> bytes:
    """Compress concatenated parts.

    They are joined in a buffer of the thread: memory for each body would come from the system, and the first access to
    its pages takes longer than the copying.
    """
    return on_joined(parts, _method(_COMPRESSORS, compression))


def on_joined(parts: Sequence[bytes | memoryview], work: Callable[[bytes | memoryview], T]) -> T:
    """Call ``work`` with the concatenated parts, and return its result; ``work`` must not keep them."""
    joined = _joined_in_place(parts)
    if joined is not None:
        return work(joined)
    size = sum(map(len, parts))
    if len(parts) > _MAX_PARTS or not _LEAST_KEPT <= size <= _MAX_KEPT:
        return work(b"".join(parts))
    with memoryview(_kept(size)) as whole:
        end = 0
        for part in parts:
            start, end = end, end + len(part)
            whole[start:end] = part
        return work(whole[:size])


def _joined_in_place(parts: Sequence[bytes | memoryview]) -> memoryview | None:
    """Return the parts as one without a copy, if they are a whole native batch and a tail that fits into its memory."""
    if len(parts) != 2 or not isinstance(parts[0], memoryview) or not isinstance(parts[1], bytes):
        return None
    memory: Any = parts[0].obj
    with_tail: Callable[[bytes], memoryview | None] | None = getattr(memory, "with_tail", None)
    if with_tail is None or len(parts[0]) != len(memory):
        return None
    return with_tail(parts[1])


def _kept(size: int) -> bytearray:
    """Return the buffer of this thread, of at least ``size`` bytes."""
    kept: bytearray = getattr(_local, "kept", bytearray())
    if len(kept) < size:
        kept = _local.kept = bytearray(size + size // 4)
    return kept


def decompress(data: bytes, compression: str, raw_size: int) -> bytes:
    """Decompress ``data`` to exactly ``raw_size`` bytes.

    :param data: the compressed body, bytes.
    :param compression: one of :data:`COMPRESSIONS`.
    :param raw_size: the size that the sender declared, bytes; the result never takes more memory.
    :raises CompressionError: the name is unknown, the bytes are damaged, or the size differs from the declared one.
    """
    method = _method(_DECOMPRESSORS, compression)
    try:
        raw = method(data, raw_size)
    except (
        lz4.block.LZ4BlockError,
        zstd.ZstdError,
        zlib.error,
        EOFError,
        ValueError,
        MemoryError,
        OverflowError,
    ) as error:
        raise CompressionError(
            f"a {compression} body of {counted(len(data), 'byte')} does not decompress to {counted(raw_size, 'byte')}: "
            f"{error}"
        ) from error
    if len(raw) != raw_size:
        raise CompressionError(
            f"a {compression} body decompressed to {counted(len(raw), 'byte')}, but its header declared {raw_size}"
        )
    return raw


def _lz4_compress(data: bytes | memoryview) -> bytes:
    return cast("bytes", lz4.block.compress(data, store_size=False))


def _lz4_decompress(data: bytes, raw_size: int) -> bytes:
    if raw_size == 0:  # The library cannot distinguish an empty block from a damaged one.
        if data not in {b"", b"\0"}:
            raise ValueError("an empty block is one zero byte")
        return b""
    return cast("bytes", lz4.block.decompress(data, uncompressed_size=raw_size))


def _zstd_compress(data: bytes | memoryview) -> bytes:
    if not hasattr(_local, "zstd"):
        _local.zstd = zstd.ZstdCompressor(level=1)
    compressor: zstd.ZstdCompressor = _local.zstd
    return compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def _zstd_decompress(data: bytes, raw_size: int) -> bytes:
    # zstd.decompress() has no limit; a body may consist of several frames.
    with zstd.ZstdFile(io.BytesIO(data)) as file:
        return file.read(raw_size + 1)


def _deflate_decompress(data: bytes, raw_size: int) -> bytes:
    inflater = zlib.decompressobj()
    raw = inflater.decompress(data, raw_size + 1)
    if not inflater.eof and len(raw) <= raw_size:
        raise zlib.error("the stream ends too early")
    return raw


def _identity(data: bytes | memoryview, _raw_size: int = 0) -> bytes:
    return bytes(data)


_COMPRESSORS: dict[str, Callable[[bytes | memoryview], bytes]] = {
    "lz4": _lz4_compress,
    "zstd": _zstd_compress,
    "deflate": zlib.compress,
    "none": _identity,
}
_DECOMPRESSORS: dict[str, Callable[[bytes, int], bytes]] = {
    "lz4": _lz4_decompress,
    "zstd": _zstd_decompress,
    "deflate": _deflate_decompress,
    "none": _identity,
}


def _method(table: dict[str, Callable[..., bytes]], compression: str) -> Callable[..., bytes]:
    try:
        return table[compression]
    except KeyError:
        raise CompressionError(f"unknown compression {compression!r}: use one of {', '.join(COMPRESSIONS)}") from None
