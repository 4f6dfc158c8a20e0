"""The common part of the protocols of calls: Flume's Thrift and Avro, where a call has events and gets a status."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

from ...model.errors import ConfigError

_READ = 1 << 16


class BadCallError(ValueError):
    """Raised for a message that violates the protocol."""


class Inflated:
    """Reader of a deflate stream that is flushed after each message; it unpacks no more than is asked for.

    :param more: returns the next bytes of the stream, at most as many as asked for; empty at its end.
    """

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj()
        self._ready = memoryview(b"")

    def read(self, size: int, more: Callable[[int], bytes]) -> bytes:
        """Return unpacked bytes, at most ``size``; empty at the end.

        :raises BadCallError: the stream is not deflate.
        """
        if not self._ready:
            self._ready = memoryview(self._next(more))
        data, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return data

    def _next(self, more: Callable[[int], bytes]) -> bytes:
        try:
            data = self._unpacker.decompress(self._unpacker.unconsumed_tail, _READ)  # also bytes left in the unpacker
            while not data and not self._unpacker.eof and (packed := more(_READ)):
                data = self._unpacker.decompress(packed, _READ)
        except zlib.error as error:
            raise BadCallError("the stream is not compressed with deflate") from error
        return data


class Deflater:
    """Compressor of the messages of one stream.

    :param level: zlib's level.
    """

    def __init__(self, level: int = 6) -> None:
        self._packer = zlib.compressobj(level)

    def pack(self, message: bytes) -> bytes:
        """Compress a message so that it can be unpacked without the next one."""
        return self._packer.compress(message) + self._packer.flush(zlib.Z_SYNC_FLUSH)


def check_one_layer(compression: str, *, tls: bool) -> None:
    """Refuse compression together with TLS: Flume's versions apply them in different orders.

    :raises ConfigError: both are configured.
    """
    if tls and compression != "none":
        rule = (
            "must be none with TLS: Flume 1.11 compresses encrypted bytes, which saves nothing, and others the reverse"
        )
        raise ConfigError("compression_type", rule, compression)


def valid_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Replace invalid characters, which headers keep as they arrived."""
    return {valid_text(name): valid_text(value) for name, value in headers.items()}


def valid_text(text: str) -> str:
    """Replace invalid characters in a text."""
    return text if text.isascii() else text.encode(errors="replace").decode()
