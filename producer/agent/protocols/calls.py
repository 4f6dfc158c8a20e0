"""What the protocols of calls share: Flume's Thrift and its Avro, in which a call brings events and gets a status."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

from ...model.errors import ConfigError

_READ = 1 << 16


class BadCallError(ValueError):
    """It is none of the protocol."""


class Inflated:
    """What deflate unpacks of a stream that is flushed behind each message; never more of it than is asked for.

    :param more: gives what comes next of the packed stream, of the size at most; empty at its end.
    """

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj()
        self._ready = memoryview(b"")

    def read(self, size: int, more: Callable[[int], bytes]) -> bytes:
        """So many bytes at most; empty at the end.

        :raises BadCallError: it is no deflate.
        """
        if not self._ready:
            self._ready = memoryview(self._next(more))
        data, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return data

    def _next(self, more: Callable[[int], bytes]) -> bytes:
        try:
            data = self._unpacker.decompress(self._unpacker.unconsumed_tail, _READ)  # what is left in the unpacker, too
            while not data and not self._unpacker.eof and (packed := more(_READ)):
                data = self._unpacker.decompress(packed, _READ)
        except zlib.error as error:
            raise BadCallError("it is not packed with deflate") from error
        return data


class Deflater:
    """Packs the messages of one stream.

    :param level: of zlib.
    """

    def __init__(self, level: int = 6) -> None:
        self._packer = zlib.compressobj(level)

    def pack(self, message: bytes) -> bytes:
        """With all that is needed to unpack it."""
        return self._packer.compress(message) + self._packer.flush(zlib.Z_SYNC_FLUSH)


def check_one_layer(compression: str, *, tls: bool) -> None:
    """Over TLS nothing is packed: Flume's versions do not agree which of both is done first.

    :raises ConfigError: it would be.
    """
    if tls and compression != "none":
        rule = "goes without TLS: Flume 1.11 packs what is encrypted, where nothing is saved, and others the reverse"
        raise ConfigError("compression_type", rule, compression)


def valid_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Without what is no text: such bytes are kept in headers as they came."""
    return {valid_text(name): valid_text(value) for name, value in headers.items()}


def valid_text(text: str) -> str:
    """Likewise."""
    return text if text.isascii() else text.encode(errors="replace").decode()
