"""Settings of Azure's client that adlfs does not expose."""

from __future__ import annotations

from typing import Any

#: Connect timeout, seconds. The client's default is 20 seconds and three retries of 15 seconds.
_CONNECT_TIMEOUT = 5
#: Wait before the first of three retries if the service is busy, seconds; later ones take longer.
_FIRST_BACKOFF = 1


def prepare(files: Any) -> None:
    """Configure adlfs to fail within seconds if the host is unreachable, and to return the stored bytes.

    Otherwise a blob with ``Content-Encoding: gzip`` is decompressed if it is read from its beginning, and cannot be
    read from any other offset. The client has no public way to either setting after it is made.
    """
    client = getattr(files, "service_client", None)
    if client is None:
        return
    client._pipeline._transport.connection_config.timeout = _CONNECT_TIMEOUT
    retries = client._config.retry_policy
    retries.connect_retries = 0
    retries.initial_backoff = retries.random_jitter_range = _FIRST_BACKOFF
    files._timeout_kwargs["decompress"] = False


class Blob:
    """An open blob. It replaces the one of adlfs, which ignores the settings of :func:`prepare`.

    :param files: the file system.
    :param path: the path of the blob.
    """

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path
        self._position = 0

    def seek(self, position: int) -> None:
        self._position = position

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes from the current position."""
        return bytes(self._files.cat_file(self._path, start=self._position, end=self._position + size))

    def close(self) -> None:
        """Do nothing: a blob holds no resources."""
