"""Follows files with Spark: the same job as a Structured Streaming query.

A micro-batch is a set of file ranges. Its end is written to the checkpoint before it is shipped. Its completion is
written after every record of it was acknowledged. A query that died within a micro-batch ships all of it again when it
is restarted with the same checkpoint. So no line is lost, and at most one micro-batch is sent twice.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyspark
from rich.console import Console

from ...runtime.signals import on_stop_signal
from ...text.extras import how_to_install
from ..errors import InputError
from ..failure import describe
from ..figures import Figures
from ..job import ShipJob
from ..options import ShipOptions
from ..report import ProgressBar, Shipment, progress_bar
from ..spark_engine import NOTHING, ShipBatches, figures_accumulator
from .losses import Losses
from .path_scan import unread_of

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 0.2


def follow(session: SparkSession, job: ShipJob, options: ShipOptions, *, console: Console) -> Shipment:
    """Follow until SIGTERM or SIGINT, until the query fails, or, with ``once``, until all is shipped.

    :param session: the Spark session.
    :param job: the target and the settings of the job.
    :param options: the paths and the checkpoint.
    :param console: the console that shows the progress.
    :raises InputError: pandas is missing, or PySpark is too old.
    """
    _check_pandas()
    figures = figures_accumulator(session.sparkContext)
    stop = threading.Event()
    began = time.monotonic()
    with on_stop_signal(lambda _: stop.set()):
        query = _start(session, job, options, figures)
        with progress_bar(console, None) as bar:
            watch = _Watch(figures, bar)
            failure = watch.until_end(query, stop, options.stop_timeout)
        seconds = time.monotonic() - began
        failure = failure or watch.losses.last
        return Shipment(figures.value, seconds, failure=failure, unread=unread_of(options), follows=True)


def _check_pandas() -> None:
    try:
        import pandas  # noqa: F401  # mapInArrow imports it later
    except ImportError as error:
        raise InputError(f"--follow on Spark needs pandas: {how_to_install('follow')}; or --engine local") from error


def _start(session: SparkSession, job: ShipJob, options: ShipOptions, figures: Accumulator[Figures]) -> StreamingQuery:
    try:
        from .source import FILES, FilesSource  # An older PySpark can still ship without --follow.
    except ImportError as error:
        raise InputError(f"--follow needs PySpark 4.2 or newer, this is {pyspark.__version__}") from error
    session.dataSource.register(FilesSource)
    trigger: dict[str, Any] = (
        {"availableNow": True} if options.once else {"processingTime": f"{round(options.interval * 1000)} milliseconds"}
    )
    stream = (
        session.readStream.format(FILES)
        .option("options", json.dumps(asdict(options)))
        .option("logs", json.dumps((job.multiline_start, job.max_line_bytes)))
        .option("parallelism", str(session.sparkContext.defaultParallelism))
    )
    return (
        stream.load()
        .mapInArrow(ShipBatches(job, figures), NOTHING)
        # The tasks have sent everything, so there is nothing to write.
        .writeStream.format("noop")
        .option("checkpointLocation", options.checkpoint)
        .trigger(**trigger)
        .start()
    )


class _Watch:
    """Updates the progress bar, and logs losses.

    :ivar losses: the bytes that were gone before they could be shipped.
    """

    def __init__(self, figures: Accumulator[Figures], bar: ProgressBar) -> None:
        self.losses = Losses()
        self._figures = figures
        self._bar = bar

    def until_end(self, query: StreamingQuery, stop: threading.Event, stop_timeout: float) -> str | None:
        """Wait for the end of the query. Return the reason if it failed, else None."""
        while query.isActive and not stop.wait(_POLL_SECONDS):
            self._update()
        if stop.is_set():
            _stop(query, stop_timeout)
        self._update()
        error = query.exception()
        return None if error is None else describe(error)

    def _update(self) -> None:
        figures = self._figures.value
        self._bar.show(figures)
        self.losses.log(figures)


def _stop(query: StreamingQuery, timeout: float) -> None:
    """Stop between two micro-batches, so that none is shipped again; after ``timeout`` seconds within one."""
    deadline = time.monotonic() + timeout
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    query.stop()
