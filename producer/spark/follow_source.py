"""The streaming source behind ``--follow``: which bytes of which files are new.

It hands out ranges of files, not lines; a micro-batch collects them in the driver and ships them as a batch job would.
So there is one way to read, parse and send, and Spark's checkpoint says how far each file was taken (``tracking``).

The parts of the Data Source API that it uses exist since PySpark 4.2.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from .files import LINK_TO_DIRECTORY, Found
from .text import readable
from .tracking import Offset, Row, advance, ranges, scan, to_row

_log = logging.getLogger("producer.spark.follow")

#: The name by which the source is registered.
FORMAT = "loghub_producer_files"

# Fields of tracking.Row.
_SCHEMA = "path binary, size long, compression string, device string, inode string, start long, lost boolean"


class FilesSource(DataSource):
    """Followed directories as a stream of file ranges.

    Options: ``paths`` and ``exclude`` (JSON lists), ``checkpoint`` (never followed), ``settle`` (seconds), ``maxBytes``
    (of a micro-batch).
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``readStream.format``."""
        return FORMAT

    def schema(self) -> str:
        """One row a range."""
        return _SCHEMA

    def streamReader(self, schema: StructType) -> FilesReader:  # noqa: N802, ARG002  (Spark's names)
        """The reader, made in the driver."""
        return FilesReader(
            json.loads(self.options["paths"]),
            json.loads(self.options["exclude"]),
            self.options["checkpoint"],
            float(self.options["settle"]),
            int(self.options["maxBytes"]),
        )


@dataclass
class _Ranges(InputPartition):
    rows: list[Row]


class FilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Looks at the directories each time that Spark asks how far the stream has come."""

    def __init__(self, paths: list[str], exclude: list[str], checkpoint: str, settle: float, max_bytes: int) -> None:
        self._paths = paths
        self._exclude = exclude
        self._checkpoint = checkpoint
        self._settle = settle
        self._max_bytes = max_bytes
        self._once = False
        self._target: Offset | None = None
        self._links: set[str] = set()  # those that were told

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Nothing taken of any file."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What one micro-batch takes, about."""
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ship what is there at the first look, in as many micro-batches as it takes, and no more."""
        self._once = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes."""
        known = cast("Offset", start)
        target = self._target
        if target is None:
            target = self._scan(known)
        if self._once:
            self._target = target
        reached = advance(known, target, limit.max_bytes) if isinstance(limit, ReadMaxBytes) else target
        return cast("dict[str, Any]", reached)

    def _scan(self, known: Offset) -> Offset:
        return scan(
            self._paths,
            self._exclude,
            known,
            settle=self._settle,
            now=time.time(),
            checkpoint=self._checkpoint,
            look=self._tell_links,
        )

    def _tell_links(self, found: Found) -> None:
        """Say once of each link to a directory that nothing behind it is shipped."""
        links = {path for path, reason in found.skipped if reason == LINK_TO_DIRECTORY}
        for path in sorted(links - self._links):
            _log.warning("skipped %s: %s", readable(path), LINK_TO_DIRECTORY)
        self._links |= links

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets; few and small enough for one partition."""
        found = [to_row(each) for each in ranges(cast("Offset", start), cast("Offset", end), self._exclude)]
        return [_Ranges(found)] if found else []

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The rows of a partition."""
        yield from cast("_Ranges", partition).rows
