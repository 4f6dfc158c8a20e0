"""``spark.readStream.format("loghub")``: a cursor for each shard, kept in Spark's checkpoint.

The reader looks, when Spark asks for the latest offset, where each shard ends, and hands out the ranges between two
offsets. Its state is only what spares requests: after a restart the checkpoint says all.

The parts of the Data Source API that it uses exist since PySpark 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ...model.errors import ConfigError
from ..errors import said_in_the_first_line
from ..logstore import LogstoreClient
from .admission import advance_by_rows, advance_by_seconds, in_turn
from .offsets import LATEST, parse_offsets
from .plan import ReadPlan
from .ranges import ShardRange, ranges_between, read_range


class LogHubStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a logstore as it grows.

    :param plan: what to read.
    :raises ConfigError: an option of a batch, or an offset that makes no sense.
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
        # Where the stream is to stop, with the trigger availableNow.
        self._target: dict[str, str] | None = None
        self._heads: dict[str, str] | None = None
        self._turn = 0

    def __getstate__(self) -> dict[str, Any]:
        # Executors read with clients of their own.
        return self.__dict__ | {"_client": None}

    @said_in_the_first_line()
    def initialOffset(self) -> dict[str, Any]:
        """Where a stream without a checkpoint begins."""
        client = self._connected()
        return self._starting.resolve(client, self._plan.shards_of(client))

    def getDefaultReadLimit(self) -> ReadLimit:
        """What one micro-batch takes, about."""
        return ReadAllAvailable() if self._plan.max_rows is None else ReadMaxRows(self._plan.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now, in as many micro-batches as it takes, and no more."""
        self._target = self._look()

    @said_in_the_first_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        client = self._connected()
        self._heads = target = self._look() if self._target is None else self._target
        begin = self._begin(start, target)
        end = {**begin, **target}
        if self._plan.max_seconds is not None:
            end = advance_by_seconds(client, begin, end, self._plan.max_seconds)
        if isinstance(limit, ReadMaxRows):
            self._turn += 1
            ranges = in_turn(ranges_between(begin, end), self._turn)
            end = {**begin, **advance_by_rows(client, ranges, limit.max_rows, self._plan.pull_count)}
        # Spark compares offsets as text.
        return {shard: end[shard] for shard in sorted(end, key=int)}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the shards ended at the last look, for the query's progress."""
        return self._heads

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets."""
        return ranges_between(self._begin(start, end), end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one range. Runs in an executor."""
        if not isinstance(partition, ShardRange):
            return iter(())
        return read_range(self._plan, partition)

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _look(self) -> dict[str, str]:
        """Where the shards end."""
        client = self._connected()
        return {shard: client.cursor(shard, "end") for shard in self._plan.shards_of(client)}

    def _begin(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, str]:
        """``start``, and for each shard that a split has made since its first LogGroup."""
        client = self._connected()
        return {**start, **{shard: client.cursor(shard, "begin") for shard in end if shard not in start}}

    def _connected(self) -> LogstoreClient:
        if self._client is None:
            self._client = self._plan.client()
        return self._client
