"""Reads a range of a remote file, and says if it is no longer the file that was seen."""

from __future__ import annotations

import io

from ....text.plural import counted
from ...errors import FileChangedError
from .address import shown
from .choose import files_of
from .seen import NotThereError, Seen, is_same


class RemoteFile(io.BufferedIOBase):
    """A remote file as bytes; closed when it is left.

    :param seen: as it was when the job was planned.
    :param start: the first byte that is read.
    :param end: up to which byte most likely all is read.
    :raises FileChangedError: it is no longer that file.
    :raises RemoteError: it cannot be read.
    """

    def __init__(self, seen: Seen, start: int, end: int) -> None:
        self._seen = seen
        self._files = files_of(seen.address)
        self.check_unchanged()
        self._source = self._files.open(seen, start, end)
        self._position = start
        self._waiting = b""  # was read, and not handed out

    def check_unchanged(self) -> None:
        """Look whether it is still what was seen.

        :raises FileChangedError: it is not.
        """
        name = shown(self._seen.address)
        try:
            now = self._files.look(self._seen.address, 0)
        except NotThereError as error:
            raise FileChangedError(f"{name}: was deleted since the job was planned") from error
        if now.size == self._seen.size and is_same(self._seen.version, now.version):
            return
        raise FileChangedError(
            f"{name}: was changed since the job was planned (then {_told(self._seen)}; now {_told(now)}): what was "
            "sent of it may be of either. Ship only files that are complete"
        )

    def seekable(self) -> bool:
        """Yes; where a server sends files only from their beginning, what comes before is skipped."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        """Go on from another byte.

        :param whence: only the beginning.
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
        """The next bytes, some at least; none at the end."""
        if not self._waiting:
            self._waiting = self._source.read(size if size > 0 else io.DEFAULT_BUFFER_SIZE)
        data, self._waiting = (self._waiting, b"") if size < 0 else (self._waiting[:size], self._waiting[size:])
        self._position += len(data)
        return data

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, all of them unless it ends."""
        parts: list[bytes] = []
        left = -1 if size is None else size
        while left and (part := self.read1(left)):
            parts.append(part)
            left = max(left - len(part), 0) if left > 0 else left
        return b"".join(parts)

    def close(self) -> None:
        """Give back what it holds."""
        if not self.closed:
            self._source.close()
        super().close()


def _told(seen: Seen) -> str:
    return ", ".join([counted(seen.size, "byte"), *seen.version.splitlines()])
