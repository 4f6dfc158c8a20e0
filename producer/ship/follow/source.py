"""The streaming source behind ``--follow``: which bytes of which files are new.

It hands out portions, which are ranges of files, and not lines: what comes behind it reads them as a batch job would.
So there is one way to read, parse and send, and Spark's checkpoint says how far each file was taken (``tracking``).

The parts of the Data Source API that it uses exist since PySpark 4.2.
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
from ..files.plan import PARTITION_BYTES
from ..lines.log_start import logs_that_start
from .path_scan import Looks
from .tracking import Offset, advance

#: The column of packed portions.
PORTION = "portion"
#: The name by which the source is registered.
FILES = "loghub_producer_files"

# Counts batches, beside the files in an offset, where each line is stored once: no two batches have the same name, also
# not where a file comes again as it was before.
_BATCHES = "#"


class FilesSource(DataSource):
    """Followed directories as a stream of portions.

    Options: ``paths``, ``exclude`` and ``allowLinksTo`` (JSON lists), ``checkpoint`` (never followed), ``settle``
    (seconds), ``maxBytes`` (of a micro-batch), ``partitionBytes`` (the most of a portion), ``parallelism`` (tasks that
    run at a time); ``exactlyOnce`` (the name of the checkpoint);
    ``logStart`` and ``maxLogBytes`` of logs of several lines.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``readStream.format``."""
        return FILES

    def schema(self) -> str:
        """One row a portion, and one a partition."""
        return f"{PORTION} binary"

    def streamReader(self, schema: StructType) -> FilesReader:
        """The reader, made in the driver."""
        return FilesReader(
            json.loads(self.options["paths"]),
            json.loads(self.options["exclude"]),
            self.options["checkpoint"],
            float(self.options["settle"]),
            int(self.options["maxBytes"]),
            int(self.options["partitionBytes"]),
            int(self.options["parallelism"]),
            exactly_once=self.options.get("exactlyOnce", ""),
            allow_links_to=json.loads(self.options.get("allowLinksTo", "[]")),
            logs=logs_that_start(self.options.get("logStart"), int(self.options.get("maxLogBytes", 0))),
        )


def _parts(offset: dict[str, Any]) -> tuple[Offset, int]:
    """How far each file was taken, and in how many batches."""
    taken = dict(offset)
    batches = taken.pop(_BATCHES, 0)
    return cast("Offset", taken), batches


@dataclass
class _Packed(InputPartition):
    portion: bytes


class FilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Looks at the directories each time that Spark asks how far the stream has come."""

    def __init__(
        self,
        paths: list[str],
        exclude: list[str],
        checkpoint: str,
        settle: float,
        max_bytes: int,
        partition_bytes: int = PARTITION_BYTES,
        parallelism: int = 1,
        *,
        logs: Logs | None = None,
        exactly_once: str = "",
        allow_links_to: Sequence[str] = (),
    ) -> None:
        self._looks = Looks(
            paths, exclude, checkpoint=checkpoint, settle=settle, logs=logs, allow_links_to=allow_links_to
        )
        self._exactly_once = exactly_once
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._parallelism = parallelism
        self._once = False
        self._target: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Nothing taken of any file."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What one micro-batch takes, about."""
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Ship what is there at the first look, in as many micro-batches as it takes, and no more."""
        self._once = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        known, batches = _parts(start)
        target = self._target
        if target is None:
            target = self._looks.latest(known)
        if self._once:
            self._target = target
        reached = advance(known, target, limit.max_bytes) if isinstance(limit, ReadMaxBytes) else target
        if not self._exactly_once:
            return dict(reached)
        return {**reached, _BATCHES: batches + (reached != known)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The portions between two offsets."""
        reached, batch = _parts(end)
        portions = self._looks.portions(
            _parts(start)[0],
            reached,
            partition_bytes=self._partition_bytes,
            parallelism=self._parallelism,
            run=f"{self._exactly_once}:{batch}" if self._exactly_once else "",
        )
        return [_Packed(portion.packed()) for portion in portions]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        """The row of a partition."""
        yield (cast("_Packed", partition).portion,)
