"""The producer inside a Spark worker: one a process and configuration, made after the fork, kept for the next task.

A Spark Python worker is a forked process that runs one task at a time and many after each other. A producer made before
the fork would have no threads in it, one made for each task would open its connections again and again. One that no
task has used for a while is closed: its sockets would only grow old. Closing may take long, so a thread of its own does
it, and no task waits for it.
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
from ..runtime.loggers import get_logger

_log = get_logger("loghub.spark.executor")

#: Producers kept in one worker process besides those in use; the one that was idle longest is closed to make room.
MAX_PRODUCERS = 4
#: A producer that no task has used for this long is closed, seconds. Spark ends a worker that is idle for a minute.
IDLE_SECONDS = 30.0

# How often is looked for idle producers, seconds. Nobody tells when a task has ended.
_LOOK_SECONDS = IDLE_SECONDS / 2
# Nothing should be on its way in a producer that no task uses, so closing it only ends its threads.
_CLOSE_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class _Entry:
    """A producer of this process.

    :ivar projects: as they were given last.
    :ivar made: the producer, once whoever asked first has made it.
    :ivar users: leases that are not given back.
    :ivar task: the attempt that took it without a lease, and may use it until it ends; None if nobody did.
    :ivar held: it was taken without a lease outside of Spark, where nobody can tell when it is done with.
    :ivar used_at: when it was last seen in use, monotonic seconds.
    :ivar closing: its close has begun, and is tried again until it succeeds: nobody gets it any more.
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
        """Whether it has the options and the places asked for; who signs may change."""
        if self.closing or self.closed or (self.config, self.channel) != (config, channel):
            return False
        return _places(self.projects) == _places(projects)

    def in_use(self, running: int | None) -> bool:
        """Whether somebody may still send with it.

        :param running: the attempt that this process runs now.
        """
        if self.closed:
            return False
        return self.users > 0 or self.held or not self.made.done() or (self.task is not None and self.task == running)

    @property
    def closed(self) -> bool:
        """Whether its user has closed it, as is his right."""
        return self.made.done() and self.made.result().closed


def _places(projects: tuple[ProjectConfig, ...]) -> list[tuple[str, str, str | None]]:
    return [(project.project, project.endpoint, project.user_agent) for project in projects]


def _check_projects(projects: tuple[object, ...]) -> None:
    for project in projects:
        if not isinstance(project, ProjectConfig):
            raise InvalidArgumentError(
                "projects: each must be a ProjectConfig, such as ProjectConfig('my-project', endpoint=..., "
                f"credentials=...), got {project!r} ({type(project).__qualname__})"
            )


def make_producer(projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None) -> Producer:
    """A new producer, with a channel of this process's own below the directory ``channel``."""
    if channel is None:
        return Producer(*projects, config=config)
    from ..channels import ProcessFileChannel  # few workers need it, and it is half of what they import

    return Producer(*projects, config=config, channel=ProcessFileChannel(channel))


class WorkerProducers:
    """The producers of one process, and which of them nobody needs any more.

    :param clock: tells how long one was idle.
    :param make: makes a producer.
    """

    def __init__(
        self,
        clock: Clock,
        make: Callable[[tuple[ProjectConfig, ...], ProducerConfig, str | None], Producer] = make_producer,
    ) -> None:
        self._clock = clock
        self._make = make
        self._lock = threading.Lock()  # guards _entries and what stands in them
        # From the one used longest ago to the one used last.
        self._entries: list[_Entry] = []
        watch_fork(self, Stage.PRODUCERS)

    def acquire(
        self, projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None, *, lease: bool
    ) -> _Entry:
        """The entry of that configuration, in use from now on; it is made if this process has none.

        :param lease: until :meth:`release`; else until the running task has ended.
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
        if renewed:  # temporary credentials are replaced from job to job
            for project in projects:
                producer.put_project_config(project)
        return entry

    def _use(self, entry: _Entry, *, lease: bool) -> None:
        """Note that somebody uses it. The caller holds the lock."""
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
        """Make the producer of a new entry, for all who wait for it. Not under the lock: a channel reads a disk."""
        try:
            entry.made.set_result(self._make(entry.projects, entry.config, entry.channel))
        except BaseException as error:
            with self._lock:
                self._entries.remove(entry)
            entry.made.set_exception(error)
            raise

    def release(self, entry: _Entry) -> None:
        """Give a lease back."""
        with self._lock:
            entry.users -= 1
            entry.used_at = self._clock.monotonic()

    def close_unused(self) -> list[Producer]:
        """Close what is idle, what is too much, and what could not be closed before.

        :returns: those that are closed now. Of the others each is tried again at the next call.
        """
        with self._lock:
            leaving = self._leaving(self._clock.monotonic(), _current_task())
            for entry in leaving:
                entry.closing = True
        closed = [entry for entry in leaving if _closes(entry.made.result())]
        with self._lock:
            self._entries = list(filter(lambda entry: entry not in closed, self._entries))
        return [entry.made.result() for entry in closed]

    def _leaving(self, now: float, running: int | None) -> list[_Entry]:
        """The entries to close, of those that nobody uses. The caller holds the lock."""
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
        """Those that are made and not closed."""
        with self._lock:
            return [entry.made.result() for entry in filter(lambda entry: entry.made.done(), self._entries)]

    def _renew_in_child(self) -> None:
        """Start empty in a forked child: its parent's producers are not its to use or to close."""
        self._lock = threading.Lock()
        self._entries = []


class _Caretaker:
    """A thread that closes producers which nobody needs, in the process that has them."""

    def __init__(self, producers: WorkerProducers, clock: Clock) -> None:
        self._producers = producers
        self._clock = clock
        self._renew_in_child()
        watch_fork(self, Stage.PRODUCERS)

    def _renew_in_child(self) -> None:
        """Be without a thread, as a forked child is."""
        self._lock = threading.Lock()  # guards _thread
        self._thread: threading.Thread | None = None
        self._signal = Signal()

    def wake(self) -> None:
        """Have a look soon."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loghub-producer-idle", daemon=True)
                self._thread.start()
        self._signal.set()

    def _run(self) -> None:
        while True:
            self._clock.wait_for(self._signal, Deadline.after(self._clock, _LOOK_SECONDS))
            try:
                self._producers.close_unused()
            except Exception:  # noqa: BLE001  (the thread outlives whatever goes wrong in one look)
                _log.exception("idle producers could not be searched for; the next search is in a while")


def _closes(producer: Producer) -> bool:
    """Close one; whether it is closed."""
    try:
        producer.close(timeout=_CLOSE_SECONDS)
    except Exception:  # noqa: BLE001  (told, and tried again)
        _log.exception("%s did not close in %g s; it is tried again", producer.name, _CLOSE_SECONDS)
        return False
    return True


def _current_task() -> int | None:
    context = TaskContext.get()
    return None if context is None else int(context.taskAttemptId())


_clock = SystemClock()
_producers = WorkerProducers(_clock)
_caretaker = _Caretaker(_producers, _clock)


def get_producer(
    *projects: ProjectConfig, config: ProducerConfig | None = None, channel: str | None = None
) -> Producer:
    """The producer of this process for that configuration: made at the first call, then the same for every task.

    Call it inside the function given to ``foreachPartition``: the closure carries the configuration, never a producer.
    The credentials of the last call are those that it signs with from then on. It stays open until the task has ended,
    however many others the task asks for, and is closed when no other task has asked for it for half a minute, or when
    the process has more than four. Outside of a Spark task it stays open until you close it.

    :param projects: where records may go.
    :param config: the producer's options; the defaults if left out.
    :param channel: a directory on the executor's own disk, below which each worker process keeps what is not delivered
        (:class:`~producer.channels.ProcessFileChannel`), so that it survives the worker; None keeps it in memory.
    :raises InvalidArgumentError: a project that is no ``ProjectConfig``.
    """
    _check_projects(projects)
    entry = _producers.acquire(projects, config or ProducerConfig(), channel, lease=False)
    _caretaker.wake()
    return entry.made.result()


@contextlib.contextmanager
def leased_producer(*projects: ProjectConfig, config: ProducerConfig | None = None) -> Iterator[Producer]:
    """As :func:`get_producer`, for as long as the block runs: after it the producer may be closed when it is idle."""
    _check_projects(projects)
    entry = _producers.acquire(projects, config or ProducerConfig(), None, lease=True)
    try:
        _caretaker.wake()
        yield entry.made.result()
    finally:
        _producers.release(entry)
