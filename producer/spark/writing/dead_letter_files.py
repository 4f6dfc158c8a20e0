"""Write refused rows to Parquet files, one for each task, for ``spark.read.parquet(deadLetterPath)``.

The columns are those of the DataFrame, then ``_row`` (the row's number in its partition), ``_error_code``,
``_error_message`` and ``_request_id``. A file gets its name when its task succeeds. Another attempt at the task
replaces the file.
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
    """Return the file system of a directory's URI or path, and the directory there.

    :raises ConfigError: the path is relative, or pyarrow does not have its file system.
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
    """Create the directory before the job.

    :raises ConfigError: it cannot be created.
    """
    system, folder = file_system(path)
    try:
        system.create_dir(folder, recursive=True)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError("deadLetterPath", f"must be a writable directory ({error})", path) from error


class DeadLetterFile:
    """The dead letters of one task, in several files if their columns change.

    :param path: the directory.
    :param name: the file's name, the same for every attempt at the task.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._system, folder = file_system(path)
        self._folder, self._name, self._unique = folder.rstrip("/"), name, uuid.uuid4().hex
        # A list, because a schema is not hashable.
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
                f"{refused}, refused ({reason}), cannot be stored in deadLetterPath {self._path}: {error}"
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
        """Rename the files to their names when the task succeeds."""
        for number, (_, writer) in enumerate(self._writers):
            writer.close()
            name = f"{self._name}-{number}" if number else self._name
            self._system.move(self._draft(number), f"{self._folder}/{name}.parquet")

    def discard(self) -> None:
        """Delete the files when the task fails."""
        for number, (_, writer) in enumerate(self._writers):
            with contextlib.suppress(OSError, pa.ArrowException):
                writer.close()
            with contextlib.suppress(OSError):
                self._system.delete_file(self._draft(number))


def _distinct(names: list[str], own: list[str]) -> list[str]:
    """Return the names followed by ``own``, with underscores added to duplicates: Parquet columns must differ."""
    taken, found = set(own), []
    for name in names:
        distinct = name
        while distinct in taken:
            distinct += "_"
        taken.add(distinct)
        found.append(distinct)
    return [*found, *own]
