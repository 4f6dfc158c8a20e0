"""``spark.read.format("loghub")``: each shard a partition, or several, their ends fixed in the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...errors import ConfigError
from .offsets import LATEST, parse_offsets
from .plan import ReadPlan
from .ranges import ShardRange, divided, ranges_between, read_range


class LogHubReader(DataSourceReader):
    """Reads what a logstore held when the read was planned.

    :param plan: what to read.
    :raises ConfigError: an option of streaming, or an offset that makes no sense.
    """

    def __init__(self, plan: ReadPlan) -> None:
        for name, value in (("maxRowsPerTrigger", plan.max_rows), ("maxSecondsPerTrigger", plan.max_seconds)):
            if value is not None:
                raise ConfigError(name, "is for readStream: a batch reads all between its two ends", str(value))
        self._plan = plan
        self._starting = parse_offsets("startingOffsets", plan.starting or "earliest")
        self._ending = parse_offsets("endingOffsets", plan.ending or LATEST)
        if self._starting.of_all == "end":
            raise ConfigError("startingOffsets", "must not be latest in a batch, which would be empty", plan.starting)
        if self._ending.of_all == "begin":
            raise ConfigError("endingOffsets", "must not be earliest, which would be empty", plan.ending)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges to read. Runs in the driver, once."""
        with self._plan.client() as client:
            shards = self._plan.shards_of(client)
            begin = self._starting.resolve(client, shards)
            end = self._ending.resolve(client, shards)
            whole = ranges_between(begin, end)
            return [part for each in whole for part in divided(client, each, self._plan.partitions or 1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one range. Runs in an executor."""
        # Spark makes up an empty partition where there is none.
        if not isinstance(partition, ShardRange):
            return iter(())
        return read_range(self._plan, partition)
