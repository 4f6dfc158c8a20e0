"""The writers that Spark calls: made on the driver, run in the tasks, committed on the driver.

Spark makes them in a process of its own beside the driver, pickles them into the tasks, and has ``commit`` called in
yet another process; so whatever they know is what they were made with. Each process imports what it does, no more: the
one beside the driver is started anew after each error, and sends no rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...model.errors import ConfigError
from ...runtime.clock import Clock, SystemClock
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..errors import SparkJobError, said_in_the_first_line
from .metrics import WriteMetrics, report
from .options import Guarantee, WriteOptions
from .planning import check_schema

if TYPE_CHECKING:
    import pyarrow as pa

_log = get_logger("loghub.spark.write")


class _Checked:
    """Streams whose target was checked in this process, which Spark uses again for the writer of each micro-batch.

    A stream that has made none for a while may have ended, and be a new one; it is checked again.

    :param clock: tells when.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[frozenset[tuple[str, str]], float] = {}

    def knows(self, options: Mapping[str, str]) -> bool:
        """Whether a writer with these options was made not long ago; this is one of them."""
        earliest = self._clock.monotonic() - _FORGET_SECONDS
        self._used = {known: used for known, used in self._used.items() if used >= earliest}
        known = frozenset(options.items())
        if known not in self._used:
            return False
        self.remember(options)
        return True

    def remember(self, options: Mapping[str, str]) -> None:
        """The target of such a stream is well."""
        self._used[frozenset(options.items())] = self._clock.monotonic()


# A stream without a micro-batch for so long is checked again with the next one.
_FORGET_SECONDS = 60.0
_checked = _Checked(SystemClock())


class LogHubWriter(DataSourceArrowWriter):
    """Writes a DataFrame; see ``docs/spark/write.md``.

    :param options: as Spark hands them over.
    :param schema: of the DataFrame.
    :param overwrite: the mode; LogHub can only append.
    :raises ConfigError: an option is wrong.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = plan(options, schema, overwrite=overwrite, streaming=False)
        # Of every attempt at every task of this write, for none of them is told which job it belongs to.
        self._run = uuid.uuid4().hex

    @said_in_the_first_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMetrics:
        """Send the rows of a task."""
        from .task import write_rows

        return write_rows(iterator, self._options, self._run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every task has ended well: add up what they did."""
        total = _total(messages)
        report(total, f"wrote to {self._options.target}", self._options.metrics_path)
        if total.rows and total.already_written == total.rows:
            _log.warning(
                "%s already stored in %s, by a run named %r: another run needs a runId of its own",
                "the only row was" if total.rows == 1 else f"all {total.rows} rows were",
                self._options.target,
                self._options.run_id,
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task has failed for good; what others have sent stays sent."""
        done = _total(messages)
        _log.error(
            "the write to %s failed: %d of its tasks had succeeded by then, with %s acknowledged; other tasks "
            "may still be sending",
            self._options.target,
            done.tasks,
            counted(done.rows, "row"),
        )
        report(done, f"the failed write to {self._options.target}", self._options.metrics_path, failed=True)


class LogHubStreamWriter(DataSourceStreamArrowWriter):
    """Write the micro-batches of a streaming query. Parameters as :class:`LogHubWriter`."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = plan(options, schema, overwrite=overwrite, streaming=True)

    @said_in_the_first_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMetrics:
        """Send the rows of a task of a micro-batch."""
        from .task import write_rows

        return write_rows(iterator, self._options, None)

    @said_in_the_first_line()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Every task of the micro-batch has ended well.

        :raises SparkJobError: the query is a continuous one, in which Spark gives the writer no rows.
        """
        refuse_continuous(messages)
        total = _total(messages)
        report(
            total, f"wrote micro-batch {batchId} to {self._options.target}", self._options.metrics_path, batch=batchId
        )
        if total.already_written:
            _log.warning(
                "micro-batch %d: %d of its %s were already stored in %s, by an earlier attempt at it",
                batchId,
                total.already_written,
                counted(total.rows, "row"),
                self._options.target,
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A task of the micro-batch has failed for good; the query ends, and its restart sends the batch again."""
        done = _total(messages)
        _log.error(
            "micro-batch %d to %s failed: %d of its tasks had succeeded by then, with %s acknowledged",
            batchId,
            self._options.target,
            done.tasks,
            counted(done.rows, "row"),
        )
        what = f"the failed micro-batch {batchId} to {self._options.target}"
        report(done, what, self._options.metrics_path, batch=batchId, failed=True)


def plan(options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool) -> WriteOptions:
    """The checked options of a write of such a DataFrame.

    :raises ConfigError: names the option.
    """
    if overwrite:
        what = "outputMode('complete')" if streaming else "mode('overwrite')"
        instead = "outputMode('append')" if streaming else "mode('append')"
        raise ConfigError(what, f"would delete what is stored, which LogHub does not do: use {instead}", what)
    checked = WriteOptions.from_mapping(options)
    check_schema(schema, checked.columns, checked.row_labels)
    if checked.dead_letter_path is not None:
        from .dead_letter_files import make_folder

        make_folder(checked.dead_letter_path)
    if checked.check_target and not (streaming and _checked.knows(options)):
        from ..check import check_target

        check_target(checked.target, checked.config, patient=streaming)
        _check_numbering(checked)
        _checked.remember(options)
    return checked


def _check_numbering(options: WriteOptions) -> None:
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    from ..numbering_check import uses_up_numbers

    if uses_up_numbers(options.target, options.config):
        raise ConfigError(
            "deliveryGuarantee",
            f"{options.target} uses up the sequence numbers of requests that it refuses, so rows of a refused request "
            "could be taken for written: use atLeastOnce",
            options.guarantee.value,
        )


def refuse_continuous(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Refuse to commit an epoch whose tasks said nothing: Spark 4.3 lets a Python writer see no row of it.

    :raises SparkJobError: always, if there is such a task.
    """
    if any(message is None for message in messages):
        raise SparkJobError(
            "trigger(continuous=...) is not supported: Spark calls the writer of a Python data source with no rows "
            "then, and would lose every one of them without a word. Use trigger(processingTime=...) or "
            "trigger(availableNow=True)"
        )


def _total(messages: Sequence[WriterCommitMessage | None]) -> WriteMetrics:
    return WriteMetrics.sum(message for message in messages if isinstance(message, WriteMetrics))
