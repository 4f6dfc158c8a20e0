"""Read a batch with ``spark.read.format("loghub")``: one or more partitions a shard, with ends fixed in the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...model.errors import ConfigError
from ..errors import hidden_traceback
from ..logstore import LogstoreClient
from .filters import conditions_of, times_of
from .offsets import LATEST, parse_offsets
from .plan import ReadPlan
from .query import QueryReader
from .ranges import ShardRange, divided, ranges_between, read_range, received_between


class LogHubReader(DataSourceReader):
    """A reader of the logs that a logstore held when the read was planned.

    :param plan: the plan of the read.
    :raises ConfigError: an option is for streaming, or an offset is invalid.
    """

    def __init__(self, plan: ReadPlan) -> None:
        for name, value in (("maxRowsPerTrigger", plan.max_rows), ("maxSecondsPerTrigger", plan.max_seconds)):
            if value is not None:
                raise ConfigError(name, "is for readStream: a batch reads everything between its offsets", str(value))
        self._plan = plan
        self._starting = parse_offsets("startingOffsets", plan.starting or "earliest")
        self._ending = parse_offsets("endingOffsets", plan.ending or LATEST)
        if self._starting.of_all == "end":
            raise ConfigError("startingOffsets", "must not be latest in a batch, which would be empty", plan.starting)
        if self._ending.of_all == "begin":
            raise ConfigError("endingOffsets", "must not be earliest, which would be empty", plan.ending)
        if plan.received_within is not None and not plan.push_filters:
            raise ConfigError("receivedWithin", "needs pushFilters=true", str(plan.received_within))

    @hidden_traceback()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read. The driver calls it once."""
        with self._plan.client() as client:
            shards = self._plan.shards_of(client)
            begin = self._starting.resolve(client, shards)
            end = self._ending.resolve(client, shards)
            whole = self._narrowed(client, ranges_between(begin, end))
            return [part for each in whole for part in divided(client, each, self._plan.partitions or 1)]

    def _narrowed(self, client: LogstoreClient, whole: list[ShardRange]) -> list[ShardRange]:
        """Return the ranges without LogGroups received too early or too late for the wanted times."""
        margin = self._plan.received_within
        if margin is None:
            return whole
        first, last = times_of(self._plan.conditions)
        span = (None if first is None else first - margin, None if last is None else last + margin)
        return [part for each in whole if (part := received_between(client, each, *span)) is not None]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of one range. An executor calls it."""
        # Spark adds an empty partition if there is none.
        if not isinstance(partition, ShardRange):
            return iter(())
        return read_range(self._plan, partition)


class Filtering:
    """A mixin for a reader that leaves out rows which Spark would drop.

    It is a separate class because Spark refuses it unless ``spark.sql.python.filterPushdown.enabled`` is true.

    :raises ConfigError: PySpark is older than 4.1.
    """

    _plan: ReadPlan

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__(plan)  # type: ignore[call-arg]  # the reader is the next base class
        if not hasattr(DataSourceReader, "pushFilters"):
            raise ConfigError("pushFilters", f"needs PySpark 4.1 or newer, this is {pyspark.__version__}", "true")

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Use the supported filters. The driver calls it before :meth:`partitions`.

        :returns: all filters, so that Spark applies them again.
        """
        self._plan = replace(self._plan, conditions=conditions_of(filters, self._plan.schema))
        return filters


class FilteringReader(Filtering, LogHubReader):
    """A filtering reader of shards."""


class FilteringQueryReader(Filtering, QueryReader):
    """A filtering reader of a query."""
