"""A function for ``foreachPartition``, with the options of ``format("loghub")``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from ...model.errors import ConfigError
from ..accumulators import SumParam
from ..errors import WITHOUT_PACKAGE
from .metrics import WriteMetrics
from .options import WriteOptions
from .rows import batches_of
from .task import write_rows

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext


def write_partition(
    config: Mapping[str, str] | WriteOptions, *, metrics: Accumulator[WriteMetrics] | None = None
) -> Callable[[Iterable[Any]], None]:
    """Return a function for ``foreachPartition`` that sends a partition's rows until each is acknowledged.

    It has the options, the guarantees and the errors of ``df.write.format("loghub")``, which is faster, because rows
    need not become Python objects. Use this function for rows that are Python objects anyway, as in an RDD, or with
    Spark before 4.0::

        df.foreachPartition(write_partition({"endpoint": …, "project": …, "logstore": …}))

    Values become text as with ``send``. A value of the column ``timeColumn`` may be an integer of Unix seconds, or a
    ``datetime``; without a zone it is local time, as in Spark's timestamps.

    :param config: the options as text, or checked options.
    :param metrics: the accumulator from :func:`metrics_accumulator`, to which successful tasks add; None for none.
    :returns: the function, which takes the rows of a partition: ``Row`` objects, mappings or named tuples.
    :raises ConfigError: an option is invalid, or ``runId`` is missing with ``exactlyOnce``.
    """
    options = config if isinstance(config, WriteOptions) else WriteOptions.from_mapping(config)
    if options.guarantee == "exactlyOnce" and options.run_id is None:
        # Inside foreachBatch a query has an id, but this function cannot tell whether it is called there.
        raise ConfigError("runId", "is required for deliveryGuarantee=exactlyOnce with write_partition", "runId")
    return _WritePartition(options, uuid.uuid4().hex, metrics)


class _WritePartition:
    """The function of :func:`write_partition`, as a class to control how it is pickled.

    It is pickled as bytes and a function that loads them. So where Spark's Python lacks the package ``producer``, that
    function can still raise an error that says what to do.
    """

    def __init__(self, options: WriteOptions, run: str, metrics: Accumulator[WriteMetrics] | None) -> None:
        self._options = options
        self._run = run
        self._metrics = metrics

    def __reduce__(self) -> tuple[Any, ...]:
        parcel = cloudpickle.dumps((self._options, self._run, self._metrics))  # type: ignore[no-untyped-call]  # it has no types
        return _opener(), (parcel,)

    def __call__(self, rows: Iterable[Any]) -> None:
        done = write_rows(batches_of(rows, self._options.columns), self._options, self._run)
        if self._metrics is not None:
            self._metrics.add(done)


def _opener() -> Callable[[bytes], Callable[[Iterable[Any]], None]]:
    """Return a function that is pickled with its code, and loads a :class:`_WritePartition` from bytes."""

    def open_parcel(parcel: bytes) -> Callable[[Iterable[Any]], None]:
        import pickle  # the worker's modules
        import sys

        try:
            from producer.spark.writing.partition import _WritePartition
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "producer":
                raise
            raise ImportError(WITHOUT_PACKAGE.format(sys.executable)) from error
        return _WritePartition(*pickle.loads(parcel))  # noqa: S301  # the driver pickled it

    return open_parcel


def metrics_accumulator(context: SparkContext) -> Accumulator[WriteMetrics]:
    """Make an accumulator for :func:`write_partition`, at zero. Spark ignores the counts of failed attempts."""
    return context.accumulator(WriteMetrics(), SumParam(WriteMetrics))
