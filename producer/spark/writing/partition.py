"""``write_partition``: what ``foreachPartition`` calls, with the options of ``format("loghub")``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from ...model.errors import ConfigError
from ..accumulators import SumParam
from ..errors import WITHOUT_PACKAGE
from .metrics import WriteMetrics
from .options import Guarantee, WriteOptions
from .rows import batches_of
from .task import write_rows

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext


def write_partition(
    config: Mapping[str, str] | WriteOptions, *, metrics: Accumulator[WriteMetrics] | None = None
) -> Callable[[Iterable[Any]], None]:
    """A function for ``foreachPartition`` that sends the rows of a partition, and ends when each is acknowledged.

    It has the options, the guarantees and the errors of ``df.write.format("loghub")``; that is faster, since the rows
    need not become Python objects. Use this where the rows are Python objects anyway, as in an RDD, or where Spark is
    older than 4.0::

        df.foreachPartition(write_partition({"endpoint": …, "project": …, "logstore": …}))

    Values become text as with ``send``. A value of the column ``timeColumn`` may be an integer of Unix seconds, or a
    ``datetime``; one without a zone is local time, as Spark hands timestamps to Python.

    :param config: the options, as text; or checked before.
    :param metrics: of :func:`metrics_accumulator`: grows as tasks end well.
    :returns: takes the partition's rows: ``Row`` objects, mappings or named tuples.
    :raises ConfigError: an option is wrong; ``exactlyOnce`` without ``runId``.
    """
    options = config if isinstance(config, WriteOptions) else WriteOptions.from_mapping(config)
    if options.guarantee is Guarantee.EXACTLY_ONCE and options.run_id is None:
        # In a foreachBatch there is a query, but who calls this does not know whether it is in one.
        raise ConfigError("runId", "is required for deliveryGuarantee=exactlyOnce with write_partition", "runId")
    return _WritePartition(options, uuid.uuid4().hex, metrics)


class _WritePartition:
    """See :func:`write_partition`; a class, so that it is pickled with what it holds and nothing else.

    That travels in a parcel, beside code that opens it: where Spark's Python has no package ``producer``, that code can
    still say what to do about it.
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
    """A function that is pickled with its code, and makes the one that sends from its parcel."""

    def open_parcel(parcel: bytes) -> Callable[[Iterable[Any]], None]:
        import pickle  # of the process that it travels to
        import sys

        try:
            from producer.spark.writing.partition import _WritePartition
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "producer":
                raise
            raise ImportError(WITHOUT_PACKAGE.format(sys.executable)) from error
        return _WritePartition(*pickle.loads(parcel))  # noqa: S301  # by Spark, from the driver

    return open_parcel


def metrics_accumulator(context: SparkContext) -> Accumulator[WriteMetrics]:
    """A new accumulator for :func:`write_partition`, at zero. Spark does not count what failed attempts did."""
    return context.accumulator(WriteMetrics(), SumParam(WriteMetrics))
