"""The producer inside a Spark worker: one a process and configuration, made after the fork, kept for the next task.

A Spark Python worker is a forked process that runs one task at a time and many after each other. A producer made before
the fork would have no threads in it, one made for each task would open its connections again and again. One that no
task has used for a while is closed: its sockets would only grow old.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark import TaskContext

from ..channels import FileChannel
from ..client import Producer
from ..clock import Clock, SystemClock
from ..config import ProducerConfig, ProjectConfig
from ..errors import ProducerError

_log = logging.getLogger("producer.spark.executor")

#: Producers kept in one worker process; the one that was idle longest is closed to make room.
MAX_PRODUCERS = 4
#: A producer that no task has used for this long is closed, seconds. Spark ends a worker that is idle for a minute.
IDLE_SECONDS = 30.0

# Nothing is on its way in a producer that no task uses, so closing it only ends its threads.
_CLOSE_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class _Entry:
    """A producer of this process.

    :ivar projects: as they were given last.
    :ivar users: leases that are not given back.
    :ivar task: the attempt that took it without a lease, and may use it until another one runs; None if nobody did.
    :ivar held: it was taken without a lease outside of Spark, where nobody can tell when it is done with.
    :ivar used_at: when it was last in use, monotonic seconds.
    """

    owner: int
    projects: tuple[ProjectConfig, ...]
    config: ProducerConfig
    channel: str | None
    producer: Producer
    users: int = 0
    task: int | None = None
    held: bool = False
    used_at: float = 0.0

    @property
    def places(self) -> list[tuple[str, str, str | None]]:
        """What tells producers apart besides their options: where records go, and not who signs."""
        return _places(self.projects)


def _places(projects: tuple[ProjectConfig, ...]) -> list[tuple[str, str, str | None]]:
    return [(project.project, project.endpoint, project.user_agent) for project in projects]


# Guards _entries, which is ordered from the one used longest ago to the one used last, and _closers.
_lock = threading.Lock()
_entries: list[_Entry] = []
_clock: Clock = SystemClock()
# The thread that looks after idle producers, by the process that has it: a fork has none.
_closers: dict[int, threading.Thread] = {}


def get_producer(
    *projects: ProjectConfig, config: ProducerConfig | None = None, channel: str | None = None
) -> Producer:
    """The producer of this process for that configuration: made at the first call, then the same for every task.

    Call it inside the function given to ``foreachPartition``: the closure carries the configuration, never a producer.
    The credentials of the last call are those that it signs with from then on. Once the task has ended, and no other
    one has asked for it for half a minute, it is closed.

    :param projects: where records may go.
    :param config: the producer's options; the defaults if left out.
    :param channel: a directory on the executor's own disk, below which each worker process keeps what is not delivered
        (:meth:`~producer.channels.FileChannel.for_process`), so that it survives the worker; None keeps it in memory.
    """
    return _acquire(projects, config, channel, lease=False).producer


@contextlib.contextmanager
def leased_producer(*projects: ProjectConfig, config: ProducerConfig | None = None) -> Iterator[Producer]:
    """As :func:`get_producer`, for as long as the block runs: after it the producer may be closed when it is idle."""
    entry = _acquire(projects, config, None, lease=True)
    try:
        yield entry.producer
    finally:
        with _lock:
            entry.users -= 1
            entry.used_at = _clock.monotonic()


def _acquire(
    projects: tuple[ProjectConfig, ...], config: ProducerConfig | None, channel: str | None, *, lease: bool
) -> _Entry:
    config = ProducerConfig() if config is None else config
    with _lock:
        entry = _take(projects, config, channel) or _Entry(
            os.getpid(), projects, config, channel, _new(projects, config, channel)
        )
        _entries.append(entry)
        if lease:
            entry.users += 1
        else:
            entry.task = _current_task()
            entry.held |= entry.task is None
        entry.used_at = _clock.monotonic()
        surplus = _surplus()
        _watch_idle()
    _renew_credentials(entry, projects)
    _close(surplus)
    return entry


def _new(projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None) -> Producer:
    return Producer(*projects, config=config, channel=None if channel is None else FileChannel.for_process(channel))


def _take(projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None) -> _Entry | None:
    """Remove and return the entry of that configuration, if this process has one."""
    # Entries of a parent process are not ours to use or to close.
    _entries[:] = [entry for entry in _entries if entry.owner == os.getpid()]
    for index, entry in enumerate(_entries):
        if (entry.places, entry.config, entry.channel) == (_places(projects), config, channel):
            return _entries.pop(index)
    return None


def _surplus() -> list[_Entry]:
    """Take out the entries that are too many; those in use stay."""
    surplus = [entry for entry in _entries[:-MAX_PRODUCERS] if not entry.users]
    _entries[:] = [entry for entry in _entries if entry not in surplus]
    return surplus


def _renew_credentials(entry: _Entry, projects: tuple[ProjectConfig, ...]) -> None:
    """Sign with the credentials that were given last: temporary ones are replaced from job to job."""
    if entry.projects != projects:
        for project in projects:
            entry.producer.put_project_config(project)
        entry.projects = projects


def _current_task() -> int | None:
    context = TaskContext.get()
    return None if context is None else int(context.taskAttemptId())


def close_idle(now: float) -> list[Producer]:
    """Close the producers that nobody has used for :data:`IDLE_SECONDS`.

    :param now: monotonic seconds.
    :returns: those that were closed.
    """
    with _lock:
        running = _current_task()
        idle = [entry for entry in _entries if _is_idle(entry, now, running)]
        _entries[:] = [entry for entry in _entries if entry not in idle]
    _close(idle)
    return [entry.producer for entry in idle]


def _is_idle(entry: _Entry, now: float, running: int | None) -> bool:
    if entry.owner != os.getpid() or entry.users or now - entry.used_at < IDLE_SECONDS:
        return False
    return not entry.held and (entry.task is None or entry.task != running)


def _close(entries: list[_Entry]) -> None:
    for entry in entries:
        try:
            entry.producer.close(timeout=_CLOSE_SECONDS)
        except ProducerError:
            _log.exception("%s did not close in %g s", entry.producer.name, _CLOSE_SECONDS)


def _watch_idle() -> None:
    """Have a thread look after idle producers in this process. The caller holds the lock."""
    if os.getpid() not in _closers:
        thread = threading.Thread(target=_close_idle_for_ever, name="loghub-producer-idle", daemon=True)
        _closers.clear()
        _closers[os.getpid()] = thread
        thread.start()


def _close_idle_for_ever() -> None:
    never = threading.Event()
    while not never.wait(IDLE_SECONDS / 2):
        close_idle(_clock.monotonic())
