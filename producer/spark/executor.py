"""The producer inside a Spark worker: one a process and configuration, made after the fork, kept for the next task.

A Spark Python worker is a forked process that runs one task at a time and many after each other. A producer made before
the fork would have no threads in it, one made for each task would open its connections again and again.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from ..channels import FileChannel
from ..client import Producer
from ..config import ProducerConfig, ProjectConfig

#: Producers kept in one worker process; the one that was idle longest is closed to make room.
MAX_PRODUCERS = 4

# Nothing is on its way in a producer that no task uses, so closing it only ends its threads.
_CLOSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: int
    projects: tuple[ProjectConfig, ...]
    config: ProducerConfig
    channel: str | None
    producer: Producer


# Guards _entries, which is ordered from the one used longest ago to the one used last.
_lock = threading.Lock()
_entries: list[_Entry] = []


def get_producer(
    *projects: ProjectConfig, config: ProducerConfig | None = None, channel: str | None = None
) -> Producer:
    """The producer of this process for that configuration: made at the first call, then the same for every task.

    Call it inside the function given to ``foreachPartition``: the closure carries the configuration, never a producer.
    A credentials provider of your own must compare equal after pickling, which a frozen dataclass does.

    :param projects: where records may go.
    :param config: the producer's options; the defaults if left out.
    :param channel: a directory on the executor's own disk, below which each worker process keeps what is not delivered
        (:meth:`~producer.channels.FileChannel.for_process`), so that it survives the worker; None keeps it in memory.
    """
    config = ProducerConfig() if config is None else config
    with _lock:
        found = _take(projects, config, channel)
        entry = found or _Entry(os.getpid(), projects, config, channel, _new(projects, config, channel))
        _entries.append(entry)
        surplus = _entries[:-MAX_PRODUCERS]
        del _entries[:-MAX_PRODUCERS]
    for old in surplus:
        old.producer.close(timeout=_CLOSE_SECONDS)
    return entry.producer


def _new(projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None) -> Producer:
    return Producer(*projects, config=config, channel=None if channel is None else FileChannel.for_process(channel))


def _take(projects: tuple[ProjectConfig, ...], config: ProducerConfig, channel: str | None) -> _Entry | None:
    """Remove and return the entry of that configuration, if this process has one."""
    # Entries of a parent process are not ours to use or to close.
    _entries[:] = [entry for entry in _entries if entry.owner == os.getpid()]
    for index, entry in enumerate(_entries):
        if (entry.projects, entry.config, entry.channel) == (projects, config, channel):
            return _entries.pop(index)
    return None
