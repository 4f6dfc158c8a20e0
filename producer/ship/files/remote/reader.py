"""Reads a range of a remote file, and detects changes of the file."""

from __future__ import annotations

import io

from ....text.plural import counted
from ...errors import FileChangedError
from .address import shown
from .choose import files_of
from .seen import NotThereError, Seen, Source, is_same


class RemoteFile(io.BufferedIOBase):
    """An open remote file.

    :param seen: the metadata of the file when the job was planned.
    :param start: the first byte to read.
    :param end: the byte at which reading probably ends; the next block is fetched ahead up to it.
    :raises FileChangedError: the file has changed.
    :raises RemoteError: the file cannot be read.
    """

    def __init__(self, seen: Seen, start: int, end: int) -> None:
        self._seen = seen
        self._files = files_of(seen.address)
        self._source: Source = io.BytesIO()  # closed if the check raises
        self.check_unchanged()
        self._source = self._files.open(seen, start, end)
        self._position = start
        self._waiting = b""  # Bytes read and not yet returned.

    def check_unchanged(self) -> None:
        """Check that the file is the one that was planned.

        :raises FileChangedError: the file was changed or deleted.
        """
        name = shown(self._seen.address)
        try:
            now = self._files.look(self._seen.address, 0)
        except NotThereError as error:
            raise FileChangedError(f"{name}: was deleted since the job was planned") from error
        if now.size == self._seen.size and is_same(self._seen.version, now.version):
            return
        raise FileChangedError(
            f"{name}: was changed since the job was planned "
            f"(then {_description(self._seen)}; now {_description(now)}), so the "
            "lines already sent may be from either version. Ship only files that are complete"
        )

    def seekable(self) -> bool:
        """Return True; if a server sends files only from their beginning, the bytes before are skipped."""
        return True

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        """Continue reading at another byte.

        :param whence: must be ``io.SEEK_SET``.
        """
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only from the beginning")
        ahead = position - self._position
        self._waiting = self._waiting[ahead:] if 0 <= ahead < len(self._waiting) else b""
        if not self._waiting:
            self._source.seek(position)
        self._position = position
        return position

    def read1(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at least one; nothing at the end."""
        if not self._waiting:
            self._waiting = self._source.read(size if size > 0 else io.DEFAULT_BUFFER_SIZE)
        data, self._waiting = (self._waiting, b"") if size < 0 else (self._waiting[:size], self._waiting[size:])
        self._position += len(data)
        return data

    def close(self) -> None:
        """Close the connection or file of the server."""
        if not self.closed:
            self._source.close()
        super().close()


def _description(seen: Seen) -> str:
    return ", ".join([counted(seen.size, "byte"), *seen.version.splitlines()])
