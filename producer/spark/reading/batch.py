"""``spark.read.format("loghub")``: each shard a partition, or several, their ends fixed in the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...model.errors import ConfigError
from ..errors import said_in_the_first_line
from ..logstore import LogstoreClient
from .filters import conditions_of, times_of
from .offsets import LATEST, parse_offsets
from .plan import ReadPlan
from .query import QueryReader
from .ranges import ShardRange, divided, ranges_between, read_range, received_between


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
        if plan.received_within is not None and not plan.push_filters:
            raise ConfigError("receivedWithin", "needs pushFilters=true", str(plan.received_within))

    @said_in_the_first_line()
    def partitions(self) -> Sequence[InputPartition]:
        """The ranges to read. Runs in the driver, once."""
        with self._plan.client() as client:
            shards = self._plan.shards_of(client)
            begin = self._starting.resolve(client, shards)
            end = self._ending.resolve(client, shards)
            whole = self._narrowed(client, ranges_between(begin, end))
            return [part for each in whole for part in divided(client, each, self._plan.partitions or 1)]

    def _narrowed(self, client: LogstoreClient, whole: list[ShardRange]) -> list[ShardRange]:
        """The ranges without what was received too early or too late for the times that are asked for."""
        margin = self._plan.received_within
        if margin is None:
            return whole
        first, last = times_of(self._plan.conditions)
        span = (None if first is None else first - margin, None if last is None else last + margin)
        return [part for each in whole if (part := received_between(client, each, *span)) is not None]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one range. Runs in an executor."""
        # Spark makes up an empty partition where there is none.
        if not isinstance(partition, ShardRange):
            return iter(())
        return read_range(self._plan, partition)


class Filtering:
    """A reader, as which it is made, that hands out no rows of which it knows that Spark would drop them.

    A class of its own: unless ``spark.sql.python.filterPushdown.enabled`` is true, Spark refuses one of these.

    :raises ConfigError: PySpark is older than 4.1.
    """

    _plan: ReadPlan

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__(plan)  # type: ignore[call-arg]  # the reader's, which comes next
        if not hasattr(DataSourceReader, "pushFilters"):
            raise ConfigError("pushFilters", f"needs PySpark 4.1 or newer, this is {pyspark.__version__}", "true")

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Take from the conditions of a query what can be used. Runs in the driver, before :meth:`partitions`.

        :returns: all of them, for Spark to look at the rows once more.
        """
        self._plan = replace(self._plan, conditions=conditions_of(filters, self._plan.schema))
        return filters


class FilteringReader(Filtering, LogHubReader):
    """Of shards."""


class FilteringQueryReader(Filtering, QueryReader):
    """Of a query."""
