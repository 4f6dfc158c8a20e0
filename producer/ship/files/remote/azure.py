"""What adlfs does not let its callers say to Azure's own client, on which it stands."""

from __future__ import annotations

from typing import Any

#: To connect; the client waits for 20, and tries again three times after 15 each, before it says that nobody is there.
_CONNECT_TIMEOUT = 5
#: Before the first of three further attempts where the service is busy; seconds. Each takes longer than the last.
_FIRST_BACKOFF = 1


def prepare(files: Any) -> None:
    """Have a file system of adlfs say within seconds that nobody is there, and hand out bytes as they are stored.

    Without this a blob with ``Content-Encoding: gzip`` comes decompressed where its beginning is asked for, and
    cannot be read elsewhere. The client has no public way to either once it is made.
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
    """An open blob. Not that of adlfs, which passes on nothing of what :func:`prepare` says.

    :param files: the file system.
    :param path: of the blob there.
    """

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path
        self._position = 0

    def seek(self, position: int) -> None:
        """Go on from another byte."""
        self._position = position

    def read(self, size: int) -> bytes:
        """The bytes from there on."""
        return bytes(self._files.cat_file(self._path, start=self._position, end=self._position + size))

    def close(self) -> None:
        """Nothing is held."""
