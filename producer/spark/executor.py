"""The producers of a Spark worker: one for each process and configuration, kept from task to task.

A Spark Python worker is a forked process that runs many tasks, one at a time. A producer from before the fork would
have no threads. A new producer for each task would open new connections. An idle producer is closed. Closing may take
long, so a thread does it, and no task waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from pyspark import TaskContext

from ..client.producer import Producer
from ..model.config import ProducerConfig, ProjectConfig
from ..model.errors import InvalidArgumentError
from ..runtime.clock import Clock, Deadline, Signal, SystemClock
from ..runtime.forks import Stage, watch_fork
from ..runtime.locks import Lock
from ..runtime.loggers import get_logger

_log = get_logger("loghub.spark.executor")

#: The limit of producers in one worker process, except those in use. Above it, those that were idle longest are closed.
MAX_PRODUCERS = 4
#: The idle time after which a producer is closed, seconds. Spark ends a worker that is idle for a minute.
IDLE_SECONDS = 30.0

# The interval of the search for idle producers: Spark does not notify us when a task ends.
_CHECK_SECONDS = IDLE_SECONDS / 2
# An idle producer has nothing in flight, so that closing it only ends its threads.
_CLOSE_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class _Entry:
    """A producer of this process.

    :ivar projects: the projects of the last call.
    :ivar made: the producer, once the first caller has made it.
    :ivar users: the number of leases in use.
    :ivar task: the attempt that uses it without a lease until the task ends; None if there is none.
    :ivar held: True if it was taken without a lease outside of a Spark task: then its use has no known end.
    :ivar used_at: the time of the last use, monotonic seconds.
    :ivar closing: True once its close has begun. The close is retried until it succeeds.
    """

    projects: tuple[ProjectConfig, ...]
    config: ProducerConfig
    channel: str | None
    made: Future[Producer] = field(default_factory=Future)
    users: int = 0
    task: int | None = None
    held: bool = False
    used_at: float = 0.0
    closing: bool = False

    def serves(self, projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None) -> bool:
        """Return True if it has these options and destinations; credentials may differ."""
        if self.closing or self.closed or (self.config, self.channel) != (config, channel):
            return False
        return _places(self.projects) == _places(projects)

    def in_use(self, running: int | None) -> bool:
        """Return True if a task may still send with it.

        :param running: the attempt that this process runs.
        """
        if self.closed:
            return False
        return self.users > 0 or self.held or not self.made.done() or (self.task is not None and self.task == running)

    @property
    def closed(self) -> bool:
        """True if its user has closed it."""
        return self.made.done() and self.made.result().closed


def _places(projects: tuple[ProjectConfig, ...]) -> list[list[tuple[str, str, str | None, str | None]]]:
    return [
        [(each.project, each.endpoint, each.user_agent, each.region) for each in project.at_each_endpoint()]
        for project in projects
    ]


def _check_projects(projects: tuple[object, ...]) -> None:
    for project in projects:
        if not isinstance(project, ProjectConfig):
            raise InvalidArgumentError(
                "projects: each must be a ProjectConfig, such as ProjectConfig('my-project', endpoint=..., "
                f"credentials=...), got {project!r} ({type(project).__qualname__})"
            )


def make_producer(projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None) -> Producer:
    """Make a producer, with this process's own channel below the directory ``channel``; None for no channel."""
    if channel is None:
        return Producer(*projects, config=config)
    from ..channels import ProcessFileChannel  # half of a worker's imports, and few workers need it

    return Producer(*projects, config=config, channel=ProcessFileChannel(channel))


class WorkerProducers:
    """The producers of one process.

    :param clock: the clock for idle times.
    :param make: the function that makes a producer.
    """

    def __init__(
        self,
        clock: Clock,
        make: Callable[[tuple[ProjectConfig, ...], ProducerConfig, str | None], Producer] = make_producer,
    ) -> None:
        self._clock = clock
        self._make = make
        self._lock = Lock()  # guards _entries and their fields
        # In the order of use, the last used one last.
        self._entries: list[_Entry] = []
        watch_fork(self, Stage.PRODUCERS)

    def acquire(
        self, projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None, *, lease: bool
    ) -> _Entry:
        """Return the entry of a configuration, marked as in use; a new one if there is none.

        :param lease: True to use it until :meth:`release`, False until the running task ends.
        """
        with self._lock:
            known = next((entry for entry in self._entries if entry.serves(projects, config, channel)), None)
            entry = known or _Entry(projects, config, channel)
            self._use(entry, lease=lease)
            renewed = entry.projects != projects
            entry.projects = projects
        if known is None:
            self._fill(entry)
        producer = entry.made.result()
        if renewed:  # temporary credentials differ from job to job
            for project in projects:
                producer.put_project_config(project)
        return entry

    def _use(self, entry: _Entry, *, lease: bool) -> None:
        """Mark an entry as in use. The caller holds the lock."""
        if entry in self._entries:
            self._entries.remove(entry)
        self._entries.append(entry)
        entry.used_at = self._clock.monotonic()
        if lease:
            entry.users += 1
        else:
            entry.task = _current_task()
            entry.held |= entry.task is None

    def _fill(self, entry: _Entry) -> None:
        """Make the producer of a new entry, and wake the callers that wait for it. The lock is not held: opening a
        channel reads the disk.
        """
        try:
            entry.made.set_result(self._make(entry.projects, entry.config, entry.channel))
        except BaseException as error:
            with self._lock:
                self._entries.remove(entry)
            entry.made.set_exception(error)
            raise

    def release(self, entry: _Entry) -> None:
        """Release a lease."""
        with self._lock:
            entry.users -= 1
            entry.used_at = self._clock.monotonic()

    def close_unused(self) -> list[Producer]:
        """Close idle and surplus producers, and retry failed closes.

        :returns: the producers that this call closed. The next call retries the others.
        """
        with self._lock:
            leaving = self._unused(self._clock.monotonic(), _current_task())
            for entry in leaving:
                entry.closing = True
        closed = [entry for entry in leaving if _closes(entry.made.result())]
        with self._lock:
            self._entries = list(filter(lambda entry: entry not in closed, self._entries))
        return [entry.made.result() for entry in closed]

    def _unused(self, now: float, running: int | None) -> list[_Entry]:
        """Return the unused entries to close. The caller holds the lock."""
        gone = [entry for entry in self._entries if entry.closing or entry.closed]
        kept = [entry for entry in self._entries if entry not in gone]
        for entry in kept:
            if entry.in_use(running):
                entry.used_at = now
        free = [entry for entry in kept if not entry.in_use(running)]
        surplus = max(0, len(kept) - MAX_PRODUCERS)
        return gone + free[:surplus] + [entry for entry in free[surplus:] if now - entry.used_at >= IDLE_SECONDS]

    @property
    def producers(self) -> list[Producer]:
        """The producers that are made."""
        with self._lock:
            return [entry.made.result() for entry in filter(lambda entry: entry.made.done(), self._entries)]

    def _renew_in_child(self) -> None:
        """Start empty in a forked child, which must not use or close its parent's producers."""
        self._lock = Lock()
        self._entries = []


class _IdleCloser:
    """A thread that closes unused producers of its process."""

    def __init__(self, producers: WorkerProducers, clock: Clock) -> None:
        self._producers = producers
        self._clock = clock
        self._renew_in_child()
        watch_fork(self, Stage.PRODUCERS)

    def _renew_in_child(self) -> None:
        """Forget the thread, which a forked child does not have."""
        self._lock = Lock()  # guards _thread
        self._thread: threading.Thread | None = None
        self._signal = Signal()

    def wake(self) -> None:
        """Start the thread if needed, and wake it."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loghub-producer-idle", daemon=True)
                self._thread.start()
        self._signal.set()

    def _run(self) -> None:
        while True:
            self._clock.wait_for(self._signal, Deadline.after(self._clock, _CHECK_SECONDS))
            try:
                self._producers.close_unused()
            except Exception:  # noqa: BLE001  (the thread survives any error of one check)
                _log.exception("cannot check for idle producers; the next check is in %g s", _CHECK_SECONDS)


def _closes(producer: Producer) -> bool:
    """Close a producer. Return True if that succeeded."""
    try:
        producer.close(timeout=_CLOSE_SECONDS)
    except Exception:  # noqa: BLE001  (logged, and retried)
        _log.exception("%s did not close in %g s; the close is retried", producer.name, _CLOSE_SECONDS)
        return False
    return True


def _current_task() -> int | None:
    context = TaskContext.get()
    return None if context is None else int(context.taskAttemptId())


_clock = SystemClock()
_producers = WorkerProducers(_clock)
_idle_closer = _IdleCloser(_producers, _clock)


def get_producer(
    *projects: ProjectConfig, config: ProducerConfig | None = None, channel: str | None = None
) -> Producer:
    """Return this process's producer for a configuration; every task of the process gets the same one.

    Call it inside the function given to ``foreachPartition``: the closure carries the configuration, never a producer.
    The producer signs with the credentials of the last call. It stays open until the task ends. Then it is closed when
    no task has asked for it for half a minute, or when the process has more than four. Outside of a Spark task it stays
    open until you close it.

    :param projects: the projects that records may go to.
    :param config: the producer's options; None for the defaults.
    :param channel: a directory on the executor's own disk, below which each worker process stores undelivered records
        (:class:`~producer.channels.ProcessFileChannel`), so that they survive the worker; None to keep them in memory.
    :raises InvalidArgumentError: a project is not a ``ProjectConfig``.
    """
    _check_projects(projects)
    entry = _producers.acquire(projects, config or ProducerConfig(), channel, lease=False)
    _idle_closer.wake()
    return entry.made.result()


@contextlib.contextmanager
def leased_producer(*projects: ProjectConfig, config: ProducerConfig | None = None) -> Iterator[Producer]:
    """Yield the producer of :func:`get_producer`; after the block it may be closed when idle."""
    _check_projects(projects)
    entry = _producers.acquire(projects, config or ProducerConfig(), None, lease=True)
    try:
        _idle_closer.wake()
        yield entry.made.result()
    finally:
        _producers.release(entry)
