"""Refused rows as Parquet files, a file a task, for ``spark.read.parquet(deadLetterPath)``.

The columns are those of the DataFrame and, behind them, ``_row`` (the row's number in its partition), ``_error_code``,
``_error_message`` and ``_request_id``. A file appears under its name when its task ends well, and a second attempt at a
task replaces the file of the first.
"""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from ...errors import ConfigError
from .refusals import Reason
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


class DeadLetterFile:
    """The dead letters of one task.

    :param path: the directory.
    :param name: of the file in it, the same for every attempt at the task.
    """

    def __init__(self, path: str, name: str) -> None:
        self._system, directory = file_system(path)
        self._final = f"{directory.rstrip('/')}/{name}.parquet"
        # Spark does not read files whose names begin with an underscore.
        self._draft = f"{directory.rstrip('/')}/_{name}.{uuid.uuid4().hex}"
        self._writer: Any = None

    def add(self, refused: Rows, reason: Reason) -> None:
        """Add refused rows."""
        rows, count = refused.batch, len(refused)
        columns = {
            "_row": pa.array(refused.numbers, pa.int64()),
            "_error_code": pa.array([reason.code] * count, pa.string()),
            "_error_message": pa.array([reason.message] * count, pa.string()),
            "_request_id": pa.array([reason.request_id] * count, pa.string()),
        }
        for name, column in columns.items():
            rows = rows.append_column(name, column)
        if self._writer is None:
            self._open(rows.schema)
        self._writer.write_batch(rows)

    def _open(self, schema: pa.Schema) -> None:
        self._system.create_dir(self._draft.rpartition("/")[0], recursive=True)
        self._writer = pyarrow.parquet.ParquetWriter(self._draft, schema, filesystem=self._system)

    def finish(self) -> None:
        """The task ends well: the file gets its name."""
        if self._writer is not None:
            self._writer.close()
            self._system.move(self._draft, self._final)

    def discard(self) -> None:
        """The task fails: nothing is left."""
        if self._writer is not None:
            self._writer.close()
            self._system.delete_file(self._draft)
