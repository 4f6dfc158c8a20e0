"""FileSink: batches become lines of JSON at the end of a file (see :mod:`producer.wire.json_lines`).

A batch is in the file whole or not at all: what a full disk let through in part is cut off again, under a lock that
other writers of this class, in this process and in others, respect. The file is opened for each batch, so that it may
be renamed meanwhile, and nothing is held that a fork or a pickle could not take along.
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
    """Appends to a file, which is made if it is missing.

    :param path: the file; its directory must exist.
    :param fsync: whether a batch counts as delivered only when it is on the disk, which costs a sync for each.
    :raises ConfigError: a directory, or a file in none.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.path = Path(path).absolute()
        self._fsync = fsync
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise ConfigError("path", "must be a file in a directory that exists", str(path))

    def destination(self, key: StreamKey) -> Hashable:
        """The file."""
        return self.path

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        """Lines of JSON."""
        body = json_lines(key, [bytes(record) for record in records])
        return Payload(body, len(body))

    def write(self, delivery: Delivery) -> Receipt:
        """Append the lines of a batch: all of them, or none."""
        try:
            with self.path.open("a+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._append(file, delivery.payload.body)
        except OSError as error:
            words = f"{self.path}: {error.strerror}: nothing of the batch is in the file"
            raise UnreachableError("WriteError", words) from error
        return Receipt(http_status=None)

    def _append(self, file: io.FileIO, body: bytes) -> None:
        end = file.seek(0, os.SEEK_END)
        # A process that died in the middle of a line must not spoil the next one.
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
