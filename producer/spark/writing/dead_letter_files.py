"""Refused rows as Parquet files, a file a task, for ``spark.read.parquet(deadLetterPath)``.

The columns are those of the DataFrame and, behind them, ``_row`` (the row's number in its partition), ``_error_code``,
``_error_message`` and ``_request_id``. A file appears under its name when its task ends well, and a second attempt at a
task replaces the file of the first.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from ...model.errors import ConfigError
from ..errors import DeliveryFailedError
from ..failure_reason import Reason
from .rows import Rows


def file_system(path: str) -> tuple[Any, str]:
    """The file system of a directory's URI or path, and the directory there.

    :raises ConfigError: it is relative, or of a file system that pyarrow does not have.
    """
    try:
        return pyarrow.fs.FileSystem.from_uri(path) if urlsplit(path).scheme else _local(path)
    except (pa.ArrowException, ValueError, OSError) as error:
        rule = f"must be an absolute path, or a URI of a file system that pyarrow knows ({error})"
        raise ConfigError("deadLetterPath", rule, path) from error


def _local(path: str) -> tuple[Any, str]:
    if not path.startswith("/"):
        raise ValueError("it is relative")
    return pyarrow.fs.LocalFileSystem(), path


def make_folder(path: str) -> None:
    """Make the directory, so that one that cannot be written to is found before the job.

    :raises ConfigError: it cannot be made.
    """
    system, folder = file_system(path)
    try:
        system.create_dir(folder, recursive=True)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError("deadLetterPath", f"must be a directory that can be written to ({error})", path) from error


class DeadLetterFile:
    """The dead letters of one task; several files if their columns change.

    :param path: the directory.
    :param name: of the file in it, the same for every attempt at the task.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._system, folder = file_system(path)
        self._folder, self._name, self._unique = folder.rstrip("/"), name, uuid.uuid4().hex
        # A schema cannot be the key of a dictionary.
        self._writers: list[tuple[pa.Schema, Any]] = []

    def add(self, refused: Rows, reason: Reason) -> None:
        """Add refused rows.

        :raises DeliveryFailedError: the file cannot be written.
        """
        count = len(refused)
        columns = {
            "_row": pa.array(refused.numbers, pa.int64()),
            "_error_code": pa.array([reason.code] * count, pa.string()),
            "_error_message": pa.array([reason.message] * count, pa.string()),
            "_request_id": pa.array([reason.request_id] * count, pa.string()),
        }
        arrays = [*refused.batch.columns, *columns.values()]
        names = _distinct(refused.batch.schema.names, list(columns))
        try:
            rows = pa.RecordBatch.from_arrays(arrays, names=names)
            self._writer(rows.schema).write_batch(rows)
        except (OSError, pa.ArrowException) as error:
            raise DeliveryFailedError(
                f"{refused}, refused ({reason}), cannot be kept as dead letters in deadLetterPath {self._path}: {error}"
            ) from error

    def _writer(self, schema: pa.Schema) -> Any:
        for known, writer in self._writers:
            if known.equals(schema):
                return writer
        self._system.create_dir(self._folder, recursive=True)
        draft = self._draft(len(self._writers))
        writer = pyarrow.parquet.ParquetWriter(draft, schema, filesystem=self._system)
        self._writers.append((schema, writer))
        return writer

    def _draft(self, number: int) -> str:
        # Spark does not read files whose names begin with an underscore.
        return f"{self._folder}/_{self._name}.{self._unique}.{number}"

    def finish(self) -> None:
        """The task ends well: the files get their names."""
        for number, (_, writer) in enumerate(self._writers):
            writer.close()
            name = f"{self._name}-{number}" if number else self._name
            self._system.move(self._draft(number), f"{self._folder}/{name}.parquet")

    def discard(self) -> None:
        """The task fails: nothing is left."""
        for number, (_, writer) in enumerate(self._writers):
            with contextlib.suppress(OSError, pa.ArrowException):
                writer.close()
            with contextlib.suppress(OSError):
                self._system.delete_file(self._draft(number))


def _distinct(names: list[str], own: list[str]) -> list[str]:
    """The names, with underscores behind those that stand there already, and our own: each can be read back then."""
    taken, found = set(own), []
    for name in names:
        distinct = name
        while distinct in taken:
            distinct += "_"
        taken.add(distinct)
        found.append(distinct)
    return [*found, *own]
