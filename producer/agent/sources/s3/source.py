"""S3Source: the source that the agent runs."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext, suppress
from typing import ClassVar

from ....runtime.clock import Clock, Stop
from ...events.batch import EventBatch
from ...events.interfaces import Context, Outlet
from .bucket import Bucket
from .clients import Requests, S3Error, StoppedError, ask, clients_of
from .feeds import Feed, Task
from .options import S3Options
from .queue import Queue
from .reader import ObjectReader, Outcome

#: Seconds between two polls of the feed while no worker finishes.
_PAUSE = 0.2


class S3Source:
    """Source of the lines of objects in S3 and compatible stores."""

    endless = True

    needs: ClassVar = {"boto3": "aws"}

    Options = S3Options

    ask = staticmethod(ask)

    @staticmethod
    def decode_sample(options: S3Options, data: bytes, _clock: Clock) -> EventBatch:
        """Return the events of an object's content, without the headers of the object."""
        return options.batch_maker().sample(data, options.encoding)

    def __init__(self, options: S3Options, context: Context) -> None:
        self._options, self._context = options, context

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """:raises S3Error: the bucket or the queue cannot be read."""
        options, context = self._options, self._context
        s3, sqs = clients_of(options)
        ended = Stop(outer=stop)
        with closing(s3), closing(sqs) if sqs else nullcontext(), suppress(StoppedError):
            reader = ObjectReader(Requests(s3, ended), options, context, outlet, ended)
            feed: Feed = (
                Queue(Requests(sqs, stop), options, context, outlet, reader)
                if options.bucket is None
                else Bucket(Requests(s3, stop), options, context, outlet)
            )
            with ThreadPoolExecutor(options.workers, f"producer-agent-{context.name}") as pool:
                dispatcher = _Dispatcher(pool, options.workers, feed, reader, ended)
                try:
                    dispatcher.run()
                finally:
                    ended.set()
                    dispatcher.finish()


class _Dispatcher:
    """Dispatcher of the feed's tasks to the workers."""

    def __init__(self, pool: ThreadPoolExecutor, workers: int, feed: Feed, reader: ObjectReader, stop: Stop) -> None:
        self._pool, self._workers, self._feed, self._reader, self._stop = pool, workers, feed, reader, stop
        self._running: dict[Future[Outcome], Task] = {}

    def run(self) -> None:
        """Dispatch tasks until ``stop`` is set."""
        for task in self._feed.tasks(self._running):
            if task is not None:
                self._running[self._pool.submit(self._reader.read_all, task.refs)] = task
            self._collect(_PAUSE if task is None else 0)
            while len(self._running) >= self._workers and not self._stop.is_set():
                self._collect(_PAUSE)
            if self._stop.is_set():
                return

    def finish(self) -> None:
        """Wait for the workers, and release unread objects. Errors are ignored: :meth:`run` has raised the first."""
        wait(self._running)
        with suppress(S3Error, StoppedError):
            for future, task in self._running.items():
                if future.exception() is None:
                    self._feed.done(task, future.result())
            self._feed.release()

    def _collect(self, timeout: float) -> None:
        """Report finished tasks to the feed; wait for one, or for the stop, up to the timeout."""
        if self._running:
            wait(self._running, timeout, FIRST_COMPLETED)
        elif timeout:
            self._stop.wait(timeout)
        for future in [each for each in self._running if each.done()]:
            self._feed.done(self._running.pop(future), future.result())
        self._feed.maintain()
