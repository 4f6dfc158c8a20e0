"""The writers that Spark calls: created on the driver, run in tasks, committed on the driver.

Spark creates them in a process of its own beside the driver, pickles them into tasks, and calls ``commit`` in yet
another process. So they have only the state of their creation. Each process imports only what it needs: Spark restarts
the one beside the driver after each error, and it sends no rows.
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
from ..errors import SparkJobError, hidden_traceback
from .metrics import WriteMetrics, report
from .options import WriteOptions
from .planning import check_schema

if TYPE_CHECKING:
    import pyarrow as pa

_log = get_logger("loghub.spark.write")


class _Checked:
    """The streams whose target this process has checked: Spark uses the process for the writer of each micro-batch.

    A stream without a micro-batch for a while is checked again: it may be a new one with the same options.

    :param clock: the clock for the time of the last use.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[frozenset[tuple[str, str]], float] = {}

    def knows(self, options: Mapping[str, str]) -> bool:
        """Return True if a writer with these options was checked or used recently, and record this use."""
        earliest = self._clock.monotonic() - _FORGET_SECONDS
        self._used = {known: used for known, used in self._used.items() if used >= earliest}
        known = frozenset(options.items())
        if known not in self._used:
            return False
        self.remember(options)
        return True

    def remember(self, options: Mapping[str, str]) -> None:
        """Record that the target of such a stream is valid."""
        self._used[frozenset(options.items())] = self._clock.monotonic()


# The time without a micro-batch after which a stream is checked again, seconds.
_FORGET_SECONDS = 60.0
_checked = _Checked(SystemClock())


class LogHubWriter(DataSourceArrowWriter):
    """A writer of a DataFrame.

    :param options: the options from Spark.
    :param schema: the schema of the DataFrame.
    :param overwrite: True for the mode ``overwrite``, which is refused: LogHub can only append.
    :raises ConfigError: an option is invalid.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = plan(options, schema, overwrite=overwrite, streaming=False)
        # The name of this write in every attempt at every task, because Spark gives tasks no job id.
        self._run = uuid.uuid4().hex

    @hidden_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMetrics:
        """Send the rows of a task."""
        from .task import write_rows

        return write_rows(iterator, self._options, self._run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Report the total after every task succeeded."""
        total = _total(messages)
        report(total, f"wrote to {self._options.target}", self._options.metrics_path)
        if total.rows and total.already_written == total.rows:
            _log.warning(
                "%s already stored in %s, by a run named %r: give another run a runId of its own",
                "the only row was" if total.rows == 1 else f"all {total.rows} rows were",
                self._options.target,
                self._options.run_id,
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Report a write whose task failed permanently; rows of other tasks stay stored."""
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
    """A writer of a streaming query's micro-batches, with the parameters of :class:`LogHubWriter`."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = plan(options, schema, overwrite=overwrite, streaming=True)

    @hidden_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMetrics:
        """Send the rows of a task of a micro-batch."""
        from .task import write_rows

        return write_rows(iterator, self._options, None)

    @hidden_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Report a micro-batch after every task succeeded.

        :raises SparkJobError: the trigger is continuous, for which Spark passes the writer no rows.
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
        """Report a micro-batch whose task failed permanently. The query ends; its restart sends the batch again."""
        done = _total(messages)
        _log.error(
            "micro-batch %d to %s failed: %d of its tasks had succeeded by then, with %s acknowledged",
            batchId,
            self._options.target,
            done.tasks,
            counted(done.rows, "row"),
        )
        title = f"the failed micro-batch {batchId} to {self._options.target}"
        report(done, title, self._options.metrics_path, batch=batchId, failed=True)


def plan(options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool) -> WriteOptions:
    """Check a write, and return its options.

    :raises ConfigError: an option, a column or the target is invalid.
    """
    if overwrite:
        mode = "outputMode('complete')" if streaming else "mode('overwrite')"
        instead = "outputMode('append')" if streaming else "mode('append')"
        raise ConfigError(mode, f"would delete stored logs, which LogHub cannot do: use {instead}", mode)
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
    if options.guarantee != "exactlyOnce":
        return
    from ..numbering_check import uses_up_numbers

    if uses_up_numbers(options.target, options.config):
        raise ConfigError(
            "deliveryGuarantee",
            f"{options.target} uses up the sequence numbers of refused requests, so refused rows could count as "
            "written: use atLeastOnce",
            options.guarantee,
        )


def refuse_continuous(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Refuse the commit of a continuous trigger, in which Spark 4.3 passes no rows to Python writers.

    :raises SparkJobError: a task sent no commit message.
    """
    if any(message is None for message in messages):
        raise SparkJobError(
            "trigger(continuous=...) is not supported: Spark would pass no rows to the writer, and lose all of them. "
            "Use trigger(processingTime=...) or trigger(availableNow=True)"
        )


def _total(messages: Sequence[WriterCommitMessage | None]) -> WriteMetrics:
    return WriteMetrics.sum(message for message in messages if isinstance(message, WriteMetrics))
