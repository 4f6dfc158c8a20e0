"""A file channel for each process on a host, below one directory; orphans of dead processes are adopted.

It is meant for pre-fork servers and Spark workers. The same object works in the parent and in every child, where it
opens a directory of its own at first use. A directory with a free lock belonged to a process that died. A new process
takes it over, or a running one moves its events. Nothing is lost in a move; a crash during it delivers events twice.

The file is long because it repeats the reference of every method of a channel.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...model.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFormatError,
    ChannelFullError,
    ChannelIOError,
    ChannelLockedError,
    ConfigError,
)
from ...model.interfaces import ADOPTED_HEADER, ChannelStats, Event, Stored
from ...model.options import unknown
from ...runtime.clock import Clock, SystemClock
from ...runtime.closing import Closing
from ...runtime.forks import Stage, watch_fork
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...text.plural import counted
from .channel import FileChannel
from .keeper import Keeper, Work
from .queue.file_transaction import FileTransaction
from .recovery.ownership import CHECKPOINT_NAMES, LOCK_NAME, OTHER_NAMES, is_segment
from .recovery.quarantine import QUARANTINE
from .store.disk import Disk
from .store.notes import FileNotes

_log = get_logger("loghub.channel")

#: Limits of one moving transaction, in events and in bytes.
_MOVED_AT_ONCE = 1000
_MOVED_BYTES = 4 << 20
#: Tries to create a directory: another process may adopt a new one before it is locked.
_TRIES = 10

_OPTIONS = frozenset(FileChannel.__init__.__kwdefaults__ or ())

_ADOPTION = Work("the adoption of orphans", lambda channel: channel._adopt())


class ProcessFileChannel(Closing):
    """A channel with a directory of its own below ``base`` in each process that uses it, forked ones included.

    Directories of dead processes are adopted: a running process delivers their events. A directory is removed when its
    process closes it empty. The channel can be pickled; the copy opens a directory where it is unpickled. Implements
    :class:`~producer.model.interfaces.Channel`.

    Example:

        >>> from loghub.channels import Event, ProcessFileChannel
        >>> with ProcessFileChannel("workers", fsync="os") as channel, channel.transaction() as transaction:
        ...     transaction.put(Event({}, b"hello"))

    :param base: the parent of the processes' directories, created if missing; on a local disk.
    :param adopt_interval: seconds between scans for orphans; None for a single scan.
    :param options: the options of each process's :class:`FileChannel`.
    :raises ConfigError: an option is unknown, or ``data_directories`` are given.
    """

    def __init__(self, base: str | os.PathLike[str], *, adopt_interval: float | None = 30.0, **options: Any) -> None:
        self.base = os.path.abspath(base)
        self._adopt_interval = adopt_interval
        self._options = options
        for option in options:
            if option not in _OPTIONS:
                raise unknown(option, _OPTIONS)
        if self._options.get("data_directories"):
            rule = "cannot be shared by processes: leave it out, and put base where the space is"
            raise ConfigError("data_directories", rule, self._options["data_directories"])
        self._clock: Clock = self._options.get("clock") or SystemClock()
        self._lock = Lock()  # guards _own and _closed, and is held while a directory is opened
        self._own: FileChannel | None = None
        self._closed = False
        self._adopter: Keeper | None = None
        self.adopted = 0
        watch_fork(self, Stage.CHANNELS)

    @property
    def name(self) -> str:
        """Return the name for messages and statistics."""
        return str(self._options.get("name") or Path(self.base).name)

    @property
    def own(self) -> FileChannel:
        """Return this process's channel, opening it at the first use.

        :raises ChannelClosedError: after :meth:`close`.
        :raises ChannelIOError: no directory can be created.
        """
        own = self._own
        if own is not None:
            return own
        with self._lock:
            if self._closed:
                raise ChannelClosedError(self.name, "it was closed: nothing more can be put or taken")
            if self._own is None:
                self._own = self._open()
                work = {_ADOPTION: self._adopt_interval}
                self._adopter = Keeper(self, self._clock, work, name="adopter", at_once=True)
                self._adopter.start()
            return self._own

    @property
    def directory(self) -> str:
        """Return this process's directory."""
        return self.own.directory

    def _open(self) -> FileChannel:
        """Open an orphan's directory, if there is one; else a new one."""
        if Path(self.base, LOCK_NAME).exists():
            message = (
                f"{self.base} is the directory of a single channel, whose events would not be delivered from here: "
                "give another directory, or drain that channel (producer channel drain) and remove it"
            )
            raise ChannelFormatError(self.name, message)
        for directory in self._others(None):
            channel = self._try_orphan(directory)
            if channel is not None:
                return channel
        for _ in range(_TRIES):
            unique = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
            channel = self._try(f"{self.base}/{unique}")
            if channel is not None:
                return channel
        raise ChannelIOError(self.name, f"no directory could be created in {self.base} within {_TRIES} tries")

    def _try(self, directory: str) -> FileChannel | None:
        options = {"name": f"{self.name}/{Path(directory).name}", **self._options}
        try:
            return FileChannel(directory, **options)
        except ChannelLockedError:
            return None

    def _try_orphan(self, directory: str) -> FileChannel | None:
        """Open an orphan; None if that fails. A failure must not stop this process, or the adoption of others."""
        try:
            return self._try(directory)
        except ChannelError as error:
            _log.error(
                "channel %s: %s cannot be adopted, and its events are not delivered: %s", self.name, directory, error
            )
            return None

    def _others(self, own: str | None) -> list[str]:
        try:
            with os.scandir(self.base) as entries:
                found = [entry.path for entry in entries if entry.is_dir() and Path(entry.path, LOCK_NAME).exists()]
        except FileNotFoundError:
            return []
        except OSError as error:
            message = f"{self.base} cannot be used: {error}: give a directory that this user may write"
            raise ChannelIOError(self.name, message, error.errno or 0) from error
        return sorted(path for path in found if path != own)

    def _adopt(self) -> int:
        """Move the events of dead processes into this process's channel; return their number.

        It stops without an error when the channel is full. The rest is moved later, by the first process with capacity.
        """
        moved = 0
        own = self.own
        for directory in self._others(own.directory):
            orphan = self._try_orphan(directory)
            if orphan is None:
                continue
            try:
                events, full = self._move(orphan, own)
            except BaseException:
                orphan.close()
                raise
            moved += events
            if full is None:
                _close_or_remove(orphan)
                continue
            orphan.close()
            if not full.never:
                _log.info(
                    "channel %s: full while adopting %s: the rest of its events stays there for now",
                    self.name,
                    directory,
                )
                break
            _log.error(
                "channel %s: an event of %s can never fit: it and the events after it stay there until the limits are "
                "raised or `producer channel drain` delivers them: %s",
                *(self.name, directory, full),
            )
        return moved

    def _move(self, orphan: FileChannel, own: FileChannel) -> tuple[int, ChannelFullError | None]:
        """Move as many events as fit, in ever smaller transactions; return their number and why not all moved."""
        moved, most, origin, full = 0, _MOVED_AT_ONCE, None, None
        if own.notes is not None and orphan.notes is not None:
            origin = own.notes.adopt(
                orphan.notes
            )  # before the first event, so that no other process continues its numbers
        while most:
            try:
                events = self._move_some(orphan, own, origin, most, None if full is None else 0.0)
            except ChannelFullError as error:
                full, most = error, error.wanted // 2
                continue
            if not events:
                full = None
                break
            moved += events
            self.adopted += events
        if moved:
            _log.info("channel %s: %s adopted from %s", self.name, counted(moved, "event"), orphan.directory)
        return moved, full

    @staticmethod
    def _move_some(orphan: FileChannel, own: FileChannel, origin: str | None, most: int, timeout: float | None) -> int:
        """Move up to ``most`` events in one transaction; return their number.

        :param timeout: seconds to wait for capacity; None for ``keep_alive``.
        :raises ChannelFullError: they do not fit.
        """
        with orphan.transaction() as taking:
            events = taking.take(most, max_bytes=_MOVED_BYTES, timeout=0)
            if events:
                with own.transaction() as putting:
                    putting.put_many(events if origin is None else [_marked(event, origin) for event in events])
                    putting.commit(timeout)
                own.sync()  # whatever the policy: the orphan's copy is deleted next
        return len(events)

    @property
    def notes(self) -> FileNotes | None:
        """Return the notes of this process's channel."""
        return self.own.notes

    def transaction(self) -> FileTransaction:
        """Return a new transaction on this process's channel.

        Example:

            >>> with channel.transaction() as transaction:
            ...     transaction.put(Event({}, b"hello"))

        :raises ChannelClosedError: the channel is closed.
        """
        return self.own.transaction()

    def _put_at_once(self, events: Sequence[Event], timeout: float | None) -> tuple[Stored, int]:
        return self.own._put_at_once(events, timeout)

    @property
    def synced_sequence(self) -> int:
        """Return the sequence number up to which this process's events are on the disk; -1 for none."""
        return self.own.synced_sequence

    def sync(self, timeout: float | None = None) -> None:
        """Wait until everything committed by this process is on the disk.

        Example:

            >>> channel.sync(timeout=10)

        :param timeout: seconds; None for no limit.
        """
        self.own.sync(timeout)

    def checkpoint(self, *, force: bool = False) -> bool:
        """Write a checkpoint of this process's channel.

        Example:

            >>> channel.checkpoint(force=True)
            True

        :param force: True to write one even if nothing has changed.
        :returns: True if one was written.
        """
        return self.own.checkpoint(force=force)

    def stats(self) -> ChannelStats:
        """Return what this process's channel holds and has done.

        Example:

            >>> channel.stats().file.adopted
            0
        """
        own = self._own
        if own is None:
            own = self.own
        stats = own.stats()
        if stats.file is None:
            return stats
        return dataclasses.replace(stats, file=dataclasses.replace(stats.file, adopted=self.adopted))

    def close(self) -> None:
        """Release this process's directory, and remove it if it is empty. May be called again.

        Example:

            >>> channel.close()
        """
        with self._lock:
            own, self._own, self._closed = self._own, None, True
            adopter, self._adopter = self._adopter, None
        if adopter is not None:
            adopter.stop()
        if own is not None:
            _close_or_remove(own)

    def _renew_in_child(self) -> None:
        """Start without a directory after a fork: the parent's stays the parent's."""
        self._lock = Lock()
        self._own = self._adopter = None
        self.adopted = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.base, self._adopt_interval, self._options)

    def __repr__(self) -> str:
        return f"<ProcessFileChannel below {self.base}>"


def _rebuild(base: str, adopt_interval: float | None, options: dict[str, Any]) -> ProcessFileChannel:
    return ProcessFileChannel(base, adopt_interval=adopt_interval, **options)


def _marked(event: Event, origin: str) -> Event:
    """Return ``event`` with a header of its origin and number there, unless it has been moved before."""
    if ADOPTED_HEADER in event.headers:
        return event
    return Event({**event.headers, ADOPTED_HEADER: f"{origin}:{event.sequence}"}, event.body)


def _close_or_remove(channel: FileChannel) -> None:
    """Close a channel, and remove its directory if it holds neither events nor damaged records.

    The lock is held during the removal. A process that opens the lock file meanwhile finds that it has no name any
    more.
    """
    if channel._close_to_remove():
        try:
            _remove(Path(channel.directory))
        except OSError as error:  # the rest has a lock file, or nothing of a channel
            _log.warning("channel %s: its empty directory could not be removed: %s", channel.name, error)
        finally:
            channel._release()


def _remove(directory: Path) -> None:
    """Remove a channel's files, in an order safe for a crash, and the directory if nothing else is in it.

    Without checkpoints the log is read. Without its older segments it holds only takes of removed events.
    """
    for name in CHECKPOINT_NAMES:
        (directory / name).unlink(missing_ok=True)
    Disk().sync_directory(str(directory))
    for path in sorted(path for path in directory.iterdir() if is_segment(path.name)):
        path.unlink()
    for name in (*OTHER_NAMES, LOCK_NAME):
        (directory / name).unlink(missing_ok=True)
    quarantine = directory / QUARANTINE
    if quarantine.is_dir():
        quarantine.rmdir()
    if not any(directory.iterdir()):
        directory.rmdir()
