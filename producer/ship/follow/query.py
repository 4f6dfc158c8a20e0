"""``--follow``: the same job as a Structured Streaming query over directories.

A micro-batch is a set of file ranges. Its offset is written to the checkpoint before it is shipped, and its end after
every record of it was acknowledged; a query that died in between ships the whole batch again when it is started with
the same checkpoint. So nothing is lost, and what may come twice is at most one batch.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyspark
from rich.console import Console

from ...spark.datasource import FORMAT, register
from ..counts import Counts, counts_accumulator
from ..errors import InputError
from ..failure import describe
from ..files.plan import PARTITION_BYTES
from ..job import ShipJob
from ..portions import frame_of_stream
from ..report import ProgressBar, Shipment, progress_bar
from ..written import Written

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("producer.ship.follow")

#: How often to look for something new, seconds.
INTERVAL = 1.0
#: A file that was not written to for this long is complete, seconds.
SETTLE = 10.0

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """How to follow.

    :ivar paths: directories, files or globs.
    :ivar exclude: glob patterns of files to leave out.
    :ivar checkpoint: the directory that remembers how far each file was shipped; never followed itself.
    :ivar once: ship what is there and end.
    :ivar interval: how often to look for something new, seconds.
    :ivar settle: a file that was not written to for this long is complete, seconds.
    :ivar batch_bytes: about how much one micro-batch takes, bytes on disk.
    :ivar partition_bytes: what one task reads, bytes on disk.
    :ivar stop_timeout: how long a stop waits for the micro-batch that is running, seconds.
    """

    paths: Sequence[str]
    exclude: Sequence[str] = ()
    checkpoint: str
    once: bool = False
    interval: float = INTERVAL
    settle: float = SETTLE
    batch_bytes: int = 1 << 30
    partition_bytes: int = PARTITION_BYTES
    stop_timeout: float = 60.0


def follow(session: SparkSession, job: ShipJob, options: FollowOptions, *, console: Console) -> Shipment:
    """Follow until SIGTERM or SIGINT, until the query fails, or, with ``once``, until all is shipped.

    :param session: the Spark session.
    :param job: where to, and how.
    :param options: what to follow.
    :param console: where progress is shown.
    """
    counts = counts_accumulator(session.sparkContext)
    stop = threading.Event()
    began = time.monotonic()
    with Written() as written, _stopping_on_signals(stop):
        query = _start(session, job, options, counts, written.path)
        with progress_bar(console, None) as bar:
            watch = _Watch(counts, written, bar)
            failure = watch.until_end(query, stop, options.stop_timeout)
        return Shipment(counts.value, written.total(), time.monotonic() - began, failure=failure or watch.loss)


def _start(
    session: SparkSession, job: ShipJob, options: FollowOptions, counts: Accumulator[Counts], metrics_path: str
) -> StreamingQuery:
    try:
        from .source import FILES, FilesSource  # noqa: PLC0415  (an older PySpark can still ship without it)
    except ImportError as error:
        raise InputError(f"--follow needs PySpark 4.2 or newer, this is {pyspark.__version__}") from error
    session.dataSource.register(FilesSource)
    register(session)
    trigger: dict[str, Any] = (
        {"availableNow": True} if options.once else {"processingTime": f"{round(options.interval * 1000)} milliseconds"}
    )
    stream = (
        session.readStream.format(FILES)
        .option("paths", json.dumps(list(options.paths)))
        .option("exclude", json.dumps(list(options.exclude)))
        .option("checkpoint", options.checkpoint)
        .option("settle", str(options.settle))
        .option("maxBytes", str(options.batch_bytes))
        .option("partitionBytes", str(options.partition_bytes))
        .option("parallelism", str(session.sparkContext.defaultParallelism))
        .load()
    )
    return (
        frame_of_stream(stream, job, counts)
        .writeStream.format(FORMAT)
        # Asked before each micro-batch otherwise, and a follower has to outlive a server that is down.
        .options(**job.write_options(metricsPath=metrics_path, checkTarget="false"))
        .option("checkpointLocation", options.checkpoint)
        .trigger(**trigger)
        .start()
    )


class _Watch:
    """Keeps the bar moving, and tells of what was lost.

    :ivar loss: the last sentence about bytes that were gone before they could be shipped; None if there was none.
    """

    def __init__(self, counts: Accumulator[Counts], written: Written, bar: ProgressBar) -> None:
        self.loss: str | None = None
        self._counts = counts
        self._written = written
        self._bar = bar
        self._told = 0

    def until_end(self, query: StreamingQuery, stop: threading.Event, stop_timeout: float) -> str | None:
        """Wait for the end of the query; the reason if it failed."""
        while query.isActive and not stop.wait(_POLL_SECONDS):
            self._look()
        if stop.is_set():
            _stop(query, stop_timeout)
        self._look()
        error = query.exception()
        return None if error is None else describe(error)

    def _look(self) -> None:
        counts = self._counts.value
        self._bar.show(counts, retries=self._written.total().retries)
        for loss in counts.lost[self._told :]:
            self.loss = loss
            _log.error("%s", loss)
        self._told = len(counts.lost)


def _stop(query: StreamingQuery, timeout: float) -> None:
    """Stop between two micro-batches, so that none has to be shipped again; in the midst of one after ``timeout``."""
    deadline = time.monotonic() + timeout
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    query.stop()


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may install handlers
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # whoever asks twice does not want to wait
            hurried = before[signal.Signals(number)]
            if callable(hurried):
                hurried(number, frame)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
