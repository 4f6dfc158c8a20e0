"""Read a stream with ``spark.readStream.format("loghub")``: an offset is a cursor for each shard.

When Spark asks for the latest offset, the reader queries the end of each shard. Its partitions are the ranges between
two offsets. All state is in Spark's checkpoint; the reader's own state only saves requests.

It needs PySpark 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ...model.errors import ConfigError
from ..errors import hidden_traceback
from ..logstore import LogstoreClient
from .admission import advance_by_rows, advance_by_seconds, rotated
from .offsets import LATEST, parse_offsets
from .plan import ReadPlan
from .ranges import ShardRange, ranges_between, read_range


class LogHubStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of a logstore as it grows.

    :param plan: the plan of the read.
    :raises ConfigError: an option is for a batch, or an offset is invalid.
    """

    def __init__(self, plan: ReadPlan) -> None:
        if plan.query is not None:
            raise ConfigError("query", "is for a batch: a stream would miss logs that match later", plan.query)
        if plan.ending is not None:
            raise ConfigError("endingOffsets", "is for a batch: a stream has no end", plan.ending)
        if plan.partitions is not None:
            rule = "is for a batch: in a stream each shard is a partition"
            raise ConfigError("partitionsPerShard", rule, str(plan.partitions))
        if plan.push_filters or plan.received_within is not None:
            name = "pushFilters" if plan.push_filters else "receivedWithin"
            raise ConfigError(name, "is for a batch: Spark does not pass on the filters of a stream", "")
        self._plan = plan
        self._starting = parse_offsets("startingOffsets", plan.starting or LATEST)
        self._client: LogstoreClient | None = None
        # The end of the stream with the trigger availableNow.
        self._target: dict[str, str] | None = None
        self._heads: dict[str, str] | None = None
        self._turn = 0

    def __getstate__(self) -> dict[str, Any]:
        # Executors make clients of their own.
        return self.__dict__ | {"_client": None}

    @hidden_traceback()
    def initialOffset(self) -> dict[str, Any]:
        """Return the first offset of a stream without a checkpoint."""
        client = self._connected()
        return self._starting.resolve(client, self._plan.shards_of(client))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch."""
        return ReadAllAvailable() if self._plan.max_rows is None else ReadMaxRows(self._plan.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Set the current end of the shards as the end of the stream."""
        self._target = self._ends()

    @hidden_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        client = self._connected()
        self._heads = target = self._ends() if self._target is None else self._target
        begin = self._begin(start, target)
        end = {**begin, **target}
        if self._plan.max_seconds is not None:
            end = advance_by_seconds(client, begin, end, self._plan.max_seconds)
        if isinstance(limit, ReadMaxRows):
            self._turn += 1
            ranges = rotated(ranges_between(begin, end), self._turn)
            end = {**begin, **advance_by_rows(client, ranges, limit.max_rows, self._plan.pull_count)}
        # Spark compares offsets as text.
        return {shard: end[shard] for shard in sorted(end, key=int)}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known ends of the shards, for the query's progress."""
        return self._heads

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges between two offsets."""
        return ranges_between(self._begin(start, end), end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of one range. An executor calls it."""
        if not isinstance(partition, ShardRange):
            return iter(())
        return read_range(self._plan, partition)

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ends(self) -> dict[str, str]:
        """Query the ends of the shards."""
        client = self._connected()
        return {shard: client.cursor(shard, "end") for shard in self._plan.shards_of(client)}

    def _begin(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, str]:
        """Return ``start``, with the first cursor of each shard that a split has created since."""
        client = self._connected()
        return {**start, **{shard: client.cursor(shard, "begin") for shard in end if shard not in start}}

    def _connected(self) -> LogstoreClient:
        if self._client is None:
            self._client = self._plan.client()
        return self._client
