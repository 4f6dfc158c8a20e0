"""The streaming source of ``--follow``: yields the new byte ranges of files.

Its rows are portions (ranges of files), not lines. The tasks read them as those of a batch job do, so there is one way
to read, parse and send. Spark's checkpoint stores the offset of each file (:mod:`.tracking`). The source needs PySpark
4.2 or newer for its parts of the Data Source API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ...wire.log_start import Logs
from ..lines.log_start import logs_that_start
from ..options import ShipOptions
from .path_scan import PathScanner
from .tracking import Offset, advance

#: The column of serialised portions.
PORTION = "portion"
#: The name that registers the source.
FILES = "loghub_producer_files"

# The key in an offset of the number of batches, for exactly-once delivery. It makes the name of each batch unique, even
# if a file returns with its earlier content.
_BATCHES = "#"


class FilesSource(DataSource):
    """Followed directories as a stream of portions.

    Options:

    * ``options``: the :class:`.ShipOptions` as JSON.
    * ``logs``: the start pattern of multi-line logs, and their maximum size in bytes, as JSON.
    * ``parallelism``: number of concurrent tasks.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``readStream.format``."""
        return FILES

    def schema(self) -> str:
        """Return the schema: each row is a portion, and each partition has one row."""
        return f"{PORTION} binary"

    def streamReader(self, schema: StructType) -> FilesReader:
        """Return the reader, which runs in the driver."""
        options = ShipOptions(**json.loads(self.options["options"]))
        logs = logs_that_start(*json.loads(self.options["logs"]))
        return FilesReader(options, logs, int(self.options["parallelism"]))


def _parts(offset: dict[str, Any]) -> tuple[Offset, int]:
    """Split an offset into the offset of the files and the number of batches."""
    taken = dict(offset)
    batches = taken.pop(_BATCHES, 0)
    return cast("Offset", taken), batches


@dataclass
class _Packed(InputPartition):
    portion: bytes


class FilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Scans the directories each time that Spark asks for the latest offset."""

    def __init__(self, options: ShipOptions, logs: Logs | None, parallelism: int) -> None:
        self._options = options
        self._scanner = PathScanner(options, logs)
        self._parallelism = parallelism
        self._once = False
        self._target: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before any file."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the approximate size of a micro-batch."""
        return ReadMaxBytes(self._options.batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the lines of the first scan, in as many micro-batches as needed."""
        self._once = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset at the end of the next micro-batch."""
        known, batches = _parts(start)
        target = self._target
        if target is None:
            target = self._scanner.latest(known)
        if self._once:
            self._target = target
        reached = advance(known, target, limit.max_bytes) if isinstance(limit, ReadMaxBytes) else target
        if not self._options.exactly_once:
            return dict(reached)
        return {**reached, _BATCHES: batches + (reached != known)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the portions between two offsets."""
        reached, batch = _parts(end)
        before = _parts(start)[0]
        portions = self._scanner.portions(before, reached, batch=batch, parallelism=self._parallelism)
        return [_Packed(portion.packed()) for portion in portions]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        """Yield the row of a partition."""
        yield (cast("_Packed", partition).portion,)
