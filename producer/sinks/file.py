"""FileSink: appends batches to a file as lines of JSON (see :mod:`producer.wire.json_lines`).

A batch is in the file whole or not at all. A part that a full disk let through is cut off again, under a file lock that
all writers of this class take, also in other processes. The file is opened for each batch: it may be renamed at any
time, and a fork or a pickle takes along no open file.
"""

from __future__ import annotations

import fcntl
import io
import os
from collections.abc import Hashable, Sequence
from pathlib import Path

from ..model.errors import ConfigError, NetworkError, UnreachableError
from ..model.interfaces import Delivery, Payload, Receipt, Record, Sink
from ..model.records import StreamKey
from ..wire.json_lines import json_lines


class FileSink(Sink):
    """Appends batches to a file as lines of JSON; creates the file if it is missing.

    Example:

        >>> import tempfile
        >>> from pathlib import Path
        >>> from loghub import FileSink, LogItem, Producer
        >>> path = Path(tempfile.mkdtemp(), "logs.jsonl")
        >>> with Producer(sink=FileSink(path)) as producer:
        ...     future = producer.send("any", "app-log", LogItem({"level": "INFO"}, time=1))
        ...
        >>> '"level": "INFO"' in path.read_text()
        True

    :param path: the file; its directory must exist.
    :param fsync: True to sync the file to the disk for each batch, before the batch counts as delivered.
    :param max_bytes: the size at which the file is renamed to ``PATH.1``, replacing the former one, and a new file
        begins; a single batch may be larger. None for no limit.
    :raises ConfigError: the path is a directory, or its directory does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False, max_bytes: int | None = None) -> None:
        self.path = Path(path).absolute()
        self._fsync, self._max_bytes = fsync, max_bytes
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise ConfigError("path", "must be a file in a directory that exists", str(path))

    def destination(self, key: StreamKey) -> Hashable:
        return self.path

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        body = json_lines(key, [bytes(record) for record in records])
        return Payload(body, len(body))

    def write(self, delivery: Delivery) -> Receipt:
        try:
            with self._open_for(len(delivery.payload.body)) as file:
                self._append(file, delivery.payload.body)
        except OSError as error:
            words = f"{self.path}: {error.strerror}: nothing of the batch is in the file"
            raise UnreachableError("WriteError", words) from error
        return Receipt(http_status=None)

    def _open_for(self, size: int) -> io.FileIO:
        """Open and lock the file; rename it first if ``size`` bytes more would make it too large."""
        while True:
            file = self.path.open("a+b", buffering=0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._max_bytes is None:
                    return file
                end = file.seek(0, os.SEEK_END)
                if self._is_current(file):
                    if not end or end + size <= self._max_bytes:
                        return file
                    self.path.replace(f"{self.path}.1")
            except BaseException:
                file.close()
                raise
            file.close()  # another process may have renamed it before this one had the lock

    def _is_current(self, file: io.FileIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _append(self, file: io.FileIO, body: bytes) -> None:
        end = file.seek(0, os.SEEK_END)
        # A process may have died in the middle of a line.
        torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
        left = memoryview(b"\n" + body if torn else body)
        try:
            while left:
                left = left[file.write(left) :]
            if self._fsync:
                os.fsync(file.fileno())
        except OSError as error:
            self._cut_back(file, end, error)
            raise

    def _cut_back(self, file: io.FileIO, end: int, cause: OSError) -> None:
        try:
            file.truncate(end)
        except OSError as error:
            words = f"{self.path}: {cause.strerror}, and a part of the batch cannot be removed: {error.strerror}"
            raise NetworkError("WriteError", words, may_have_been_stored=True) from cause
