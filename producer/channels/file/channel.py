"""FileChannel: a channel whose committed events survive the process and the machine.

It connects the parts. The ledger holds the state in memory, the log writes it to the disk, the reader reads events
back, and the checkpointer keeps recovery short. The file is long because each option and each public call is described
where it is defined.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ...model.errors import ChannelError, ChannelLockedError, ConfigError, TransactionFullError
from ...model.interfaces import ChannelStats, Event, FileStats, Stored
from ...runtime.clock import Clock, Deadline, SystemClock
from ...runtime.closing import Closing
from ...runtime.forks import Stage, call_in_child
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..limits import default_transaction_capacity
from ..room import Claim
from .keeper import Keeper, Work
from .log.log import Log
from .log.run import Run
from .options import FileChannelOptions, check_paths
from .queue.event_reader import EventReader
from .queue.file_transaction import FileTransaction
from .queue.ledger import Ledger, Taken
from .recovery import checkpoint as checkpoints
from .recovery import quarantine
from .recovery.checkpointer import Checkpointer
from .recovery.ownership import Ownership, own
from .recovery.recovery import Recovered, recover
from .store.directories import Directories
from .store.disk import Disk
from .store.encryption import OVERHEAD, KeyProvider, check_available
from .store.format import PutPayload
from .store.lost import LostEvent, OnLost
from .store.notes import FileNotes
from .store.segments import Segments
from .store.space import Space
from .store.speed import encode_events

_log = get_logger("loghub.channel")

#: If no commit waits for the disk, the sync thread syncs after this many bytes. Otherwise the commit that fills a
#: segment would wait for a sync of the whole segment.
SYNC_AHEAD = 4 << 20

#: Key of the note with the highest sequence number that was overtaken.
_PASSED = "passed through"

_channels: weakref.WeakSet[FileChannel] = weakref.WeakSet()

_CHECKPOINT = Work("the checkpoint", lambda channel: channel.checkpoint())
_SYNC = Work("the sync", lambda channel: channel.sync())


class FileChannel(Closing):
    """A channel on the disk: committed events stay there, in order, until their take is committed.

    Example:

        >>> from loghub.channels import Event, FileChannel
        >>> with FileChannel("events") as channel, channel.transaction() as transaction:
        ...     transaction.put(Event({"host": "web-1"}, b"hello"))
        >>> with FileChannel("events") as channel, channel.transaction() as transaction:
        ...     [event.body for event in transaction.take(10)]
        [b'hello']

    :param directory: the channel's own directory, created if missing. One channel at a time may use it.
    :param capacity: the number of events that it holds.
    :param byte_capacity: limit on the bytes of headers and bodies; None for no limit but the disk's.
    :param admit_larger: True to admit a transaction larger than ``byte_capacity`` when the channel is empty, instead of
        refusing it.
    :param transaction_capacity: limit on the puts, or takes, of one transaction; None for 10,000, or ``capacity`` if
        that is less.
    :param keep_alive: default wait in seconds, of a commit for capacity and of a take for its first event.
    :param fsync: ``"commit"``: a commit returns once it is on the disk, and concurrent commits share a sync. A number:
        a commit returns once written, and is synced within this many seconds. ``"os"``: a commit returns once written,
        and the operating system decides when to sync.
    :param segment_size: approximate size in bytes at which a new segment file is begun.
    :param checkpoint_interval: seconds between checkpoints; None for checkpoints only at opening and closing, and no
        thread.
    :param dual_checkpoints: True to keep a second copy.
    :param minimum_free_space: bytes that puts leave free on the disk, or the size of a checkpoint if that is more.
    :param reserve: bytes reserved on the disk, and released when it fills up, so that takes can still be committed.
    :param data_directories: directories for the segments, used in turn, for instance on other disks; ``directory`` by
        default.
    :param encryption: a :class:`~producer.channels.KeyProvider`: new segments are encrypted with its current key.
    :param name: the name in messages; None for the directory's name.
    :param lost: callback for events with damaged records, replacing the log line; it receives the headers that can
        still be read. It is called by the constructor and by taking threads. Details: :mod:`.store.lost`.
    :param clock: the source of time, for tests.
    :param disk: the file system, for tests.
    :raises ConfigError: an option is invalid.
    :raises ChannelLockedError: another channel owns a directory.
    :raises ChannelFormatError: a path is not a directory, or holds other files, or a channel of a newer version.
    :raises ChannelKeyError: the key of an encrypted segment is missing.
    :raises ChannelIOError: the directory cannot be read or written.
    :raises RuntimeError: the system cannot start a thread.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        capacity: int = 1_000_000,
        byte_capacity: int | None = None,
        admit_larger: bool = False,
        transaction_capacity: int | None = None,
        keep_alive: float = 3.0,
        fsync: Literal["commit", "os"] | float = "commit",
        segment_size: int = 64 * 1024 * 1024,
        checkpoint_interval: float | None = 30.0,
        dual_checkpoints: bool = True,
        minimum_free_space: int = 64 * 1024 * 1024,
        reserve: int = 4 * 1024 * 1024,
        data_directories: Sequence[str | os.PathLike[str]] = (),
        encryption: KeyProvider | None = None,
        name: str | None = None,
        lost: OnLost | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        check_paths(directory, data_directories)
        self.options = FileChannelOptions(
            capacity=capacity,
            byte_capacity=byte_capacity,
            admit_larger=admit_larger,
            transaction_capacity=default_transaction_capacity(capacity)
            if transaction_capacity is None
            else transaction_capacity,
            keep_alive=keep_alive,
            fsync=fsync,
            segment_size=segment_size,
            checkpoint_interval=checkpoint_interval,
            dual_checkpoints=dual_checkpoints,
            minimum_free_space=minimum_free_space,
            reserve=reserve,
        )
        if encryption is not None:
            if not isinstance(encryption, KeyProvider):
                raise ConfigError("encryption", "must be a KeyProvider", type(encryption).__qualname__)
            check_available()
        self._keys, self._promise, self._on_lost = encryption, self.options.promise, lost
        absolute = os.path.abspath if disk is None else os.fspath
        self.directory = absolute(directory)
        self.data_directories = tuple(absolute(path) for path in data_directories) or (self.directory,)
        self.name = name or Path(self.directory).name or self.directory
        # Events up to this sequence number may come after later ones: one of them could not be read for a while.
        self._passed_through = -1
        self._disk: Disk = disk or Disk()
        self._clock: Clock = clock or SystemClock()
        self._ledger = Ledger(self.name, self.options, self._clock)
        self._closing = Lock()  # held while closing; guards _ended
        self._ended = False
        self._place = Directories(self._disk, self.name, self.directory, self.data_directories)
        self._ownership = own(self._place, self._clock)
        self._check_owned = partial(_check_owned, self._ownership, self._ledger)
        self._segments = Segments(
            self._disk, self.name, self.data_directories, self._keys, self._clock, self._check_owned
        )
        self._log = self._new_log()
        #: Notes of idempotent streams, which survive a restart; None with a test's own disk.
        self.notes = FileNotes(self.directory, self.name) if disk is None else None
        _channels.add(self)  # before recovery, which takes long: a child forked meanwhile must release the lock
        # A channel dropped without close releases its files and locks, and writes nothing more.
        self._finalizer = weakref.finalize(self, _give_back, self._log, self.notes, self._ownership)
        self._finalizer.atexit = False
        periods = {_CHECKPOINT: self.options.checkpoint_interval, _SYNC: self.options.interval}
        work = {each: period for each, period in periods.items() if period is not None}
        self._keeper = Keeper(self, self._clock, work, name="keeper")
        try:
            self._open()
            self._keeper.start()
        except BaseException:
            self._ledger.close("it could not be opened")  # so that its thread, if started, writes nothing
            self._log.close()
            self._close_notes()
            self._release()
            raise

    def _new_log(self) -> Log:
        options, ledger, every = self.options, self._ledger, (self.directory, *self.data_directories)
        minimum, reserve = options.minimum_free_space, options.reserve
        self._space = Space(
            self._disk,
            self.name,
            every,
            minimum=minimum,
            reserve=reserve,
            # No reference to the channel: a cycle would delay the release of a dropped one.
            checkpoint=lambda: checkpoints.size_of(ledger.events, copies=1 + options.dual_checkpoints),
            clock=self._clock,
        )
        return Log(
            self._disk,
            self.name,
            self._segments,
            segment_size=options.segment_size,
            waits=options.waits,
            keeps=options.keeps,
            space=self._space,
            clock=self._clock,
            lock=self._ledger.lock,
            publish=self._ledger.publish,
            published=self._ledger.wake,
            repoint=self._ledger.queue.repoint,
        )

    def _open(self) -> None:
        found = self._recover()
        if self.notes is not None:
            self.notes.forget_lost(self._log.next_sequence)
            self._passed_through = int(self.notes.read(_PASSED) or -1)
        self._log.open_first(found.live_run(self._clock) if found.needs_live else None)
        self._space.keep_reserve()
        self.checkpoint(force=True)

    def _recover(self) -> Recovered:
        found = recover(self._place, self._segments.cipher_of, self._clock, lost=self._on_lost)
        self._ledger.restore(found.events, found.sums)
        self._log.resume(found.segments, next_sequence=found.next_sequence, next_transaction=found.next_transaction)
        self._segments.skip_numbers(found.last_number)
        uncopied = quarantine.Uncopied(self._disk, found.uncopied)
        self._reader = EventReader(
            self._disk, self.name, self._segments, self._ledger, uncopied.keep, self._note_passed, self._on_lost
        )
        self._checkpointer = Checkpointer(
            self._disk,
            self.name,
            self.directory,
            ledger=self._ledger,
            log=self._log,
            segments=self._segments,
            space=self._space,
            uncopied=uncopied,
            check_owned=self._check_owned,
            dual=self.options.dual_checkpoints,
            generation=found.generation,
            clock=self._clock,
        )
        if len(found.events):
            events = counted(len(found.events), "event")
            _log.info("channel %s: %s recovered from %s", self.name, events, self.directory)
        return found

    def _note_passed(self, sequence: int) -> None:
        """Record, also for the next opening, that an event will come after events with higher numbers."""
        self._passed_through = max(sequence, self._passed_through)
        try:
            if self.notes is not None:
                self.notes.write(_PASSED, b"%d" % self._passed_through, self._passed_through)
        except ChannelError as error:  # the events taken with it must still be delivered
            _log.error(
                "channel %s: the note of events out of order cannot be written and will be missing after a restart: %s",
                *(self.name, error),
            )

    @property
    def _has_quarantined(self) -> bool:
        """True if there are files in ``quarantine/``."""
        return bool(quarantine.files(self._disk, self._place.all))

    def close(self) -> None:
        """Write a checkpoint and release the directory; the events stay there.

        It may be called again, also after a call that a signal handler's exception ended.

        Example:

            >>> channel.close()
        """
        self._close(keep_empty=True)

    def _close_to_remove(self) -> bool:
        """Close the channel, for a caller that removes an empty directory.

        :returns: True if the channel is empty. Its lock is still held then, until :meth:`_release`.
        """
        return self._close(keep_empty=False)

    def _close(self, *, keep_empty: bool) -> bool:
        self._ledger.close("it was closed")
        with self._closing:
            if self._ended:
                return False
            self._keeper.stop()
            self._log.refuse()
            with self._checkpointer.lock:
                empty = not keep_empty and self._is_owned() and self._is_empty()
                try:
                    if not empty:
                        self._checkpointer.write(force=True)
                finally:
                    self._ended = True
                    self._log.trim()
                    self._log.close()
                    self._close_notes()
                    if not empty:
                        self._release()
            return empty

    def _close_notes(self) -> None:
        if self.notes is not None:
            self.notes.close()

    def _is_owned(self) -> bool:
        with contextlib.suppress(ChannelError):
            self._check_owned()
            return True
        return False

    def _is_empty(self) -> bool:
        """True if removing the directory loses nothing; called when no further commit is possible."""
        with contextlib.suppress(ChannelError):
            self._log.sync()  # commits in progress are stored now, or have failed
        figures, sums = self._ledger.figures()
        left = figures["size"] or figures["taken"]
        # There may be no copy of damaged records: their segment must stay.
        return not (left or sums.get("lost_events") or sums.get("damaged_records") or self._has_quarantined)

    def _release(self) -> None:
        """Release the directory for another channel, after :meth:`close`."""
        self._ownership.release()
        self._finalizer.detach()
        _channels.discard(self)

    def _abandon_in_child(self) -> None:
        """Close all files in a forked child, unchanged: the directory is the parent's."""
        self._finalizer.detach()
        self._closing, self._ended = Lock(), True
        self._ledger.close_in_child("it belongs to the parent of this process; ProcessFileChannel gives each its own")
        with contextlib.suppress(OSError):
            self._log.close_in_child()
        self._ownership.release_in_child()

    def __repr__(self) -> str:
        return f"<FileChannel {self.directory} {'open' if self._ledger.is_open else 'closed'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a FileChannel belongs to one process and cannot be pickled ({self.directory}); "
            "use ProcessFileChannel, which gives each process a directory of its own"
        )

    def transaction(self) -> FileTransaction:
        """Return a new transaction.

        Example:

            >>> with channel.transaction() as transaction:
            ...     transaction.put(Event({}, b"hello"))

        :raises ChannelClosedError: the channel is closed.
        """
        self._ledger.check_open()
        return FileTransaction(self)

    @property
    def _next_sequence(self) -> int:
        """Return the sequence number of the next event."""
        return self._log.next_sequence

    @property
    def synced_sequence(self) -> int:
        """Return the sequence number up to which all events are on the disk; -1 for none."""
        return self._log.synced_sequence

    def sync(self, timeout: float | None = None) -> None:
        """Wait until everything committed is on the disk, whatever ``fsync`` is.

        Example:

            >>> channel.sync(timeout=10)

        :param timeout: seconds; None for no limit.
        :raises TimeoutError: it took longer.
        :raises ChannelIOError: the sync failed.
        """
        self._ledger.check_open()
        if not self._log.sync(timeout):
            raise TimeoutError(f"channel {self.name}: not synced within {timeout} s; the sync continues")

    def checkpoint(self, *, force: bool = False) -> bool:
        """Write a checkpoint of the queue, and delete the segments that are no longer needed.

        Example:

            >>> channel.checkpoint(force=True)
            True

        :param force: True to write one even if nothing has changed.
        :returns: True if one was written. A failure is logged and counted, and the previous checkpoint remains valid.
        :raises ChannelClosedError: the channel is closed; the directory may belong to another one.
        """
        self._ledger.check_open()  # before the lock: in a forked child it may stay locked forever
        with self._checkpointer.lock:
            self._ledger.check_open()
            return self._checkpointer.write(force=force)

    def _put_at_once(self, events: Sequence[Event], timeout: float | None) -> tuple[Stored, int]:
        """Put and commit events, at least one, without a transaction object.

        :param timeout: seconds to wait for capacity; None for ``keep_alive``.
        :returns: the durability and the last sequence number.
        :raises ChannelError: nothing was stored.
        """
        self._ledger.check_open()
        self._ledger.count_puts(len(events))
        if len(events) > self.options.transaction_capacity:
            raise TransactionFullError(self.name, "puts", self.options.transaction_capacity)
        return self._promise, self._commit_puts(encode_events(events), timeout)

    # -- called by its transactions

    def _count_puts(self, count: int) -> None:
        """Count events given to ``put``."""
        self._ledger.count_puts(count)

    def _commit_puts(self, payloads: Sequence[PutPayload], timeout: float | None) -> int:
        """Store one transaction's events; return the last sequence number.

        :raises ChannelFullError: no capacity within the timeout.
        :raises ChannelIOError: the disk failed, or is too full.
        """
        count = len(payloads)
        size = sum(map(len, payloads)) + (OVERHEAD * count if self._keys is not None else 0)
        claim = Claim(count, size)
        run = Run(puts=payloads, time=self._clock.time(), claim=claim)
        try:
            self._ledger.acquire(claim, self.options.keep_alive if timeout is None else timeout)
            self._log.commit(run)
        except ChannelError:
            self._ledger.count_puts(0, 1)
            raise
        finally:
            if not run.number or run.error is not None:
                self._ledger.settle(run)
        if self._log.behind >= SYNC_AHEAD:
            self._keeper.hurry(_SYNC)
        return run.last

    def _take_into(self, taken: Taken, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        """Take up to ``count`` events into ``taken``.

        :raises ChannelIOError: they could not be read; they are back in the queue.
        """
        deadline = Deadline.after(self._clock, self.options.keep_alive if timeout is None else timeout)
        while True:
            entries = self._ledger.take(taken, count, max_bytes, deadline)
            events = self._reader.read(taken, entries) if entries else []
            if events or not entries:
                self._ledger.count_takes(max(1, len(events)))
                return events

    def _commit_takes(self, taken: Taken, sequences: Sequence[int | None]) -> None:
        """Make the takes of these events final.

        :raises ChannelError: an event is not in ``taken``, or the disk failed.
        """
        if not sequences:
            return
        with self._ledger.lock:
            self._ledger.check_open()
            takes = tuple(sequence for sequence in sequences if sequence in taken)
            strangers = len(sequences) - len(set(takes))
        if strangers:
            were = "was" if strangers == 1 else "were"
            what = f"{strangers} of {counted(len(sequences), 'event')} {were} not taken in this transaction"
            raise ChannelError(self.name, what)
        try:
            self._log.commit(Run(takes=takes, time=self._clock.time()))
        except ChannelError:
            self._ledger.count_takes(0, 1)
            raise
        with self._ledger.lock:
            for sequence in takes:
                taken.pop(sequence, None)

    def _orphan(self, taken: Taken) -> None:
        """Schedule the takes of a transaction that was dropped while open to be returned."""
        self._ledger.orphan(taken)

    def _put_back(self, taken: Taken, sequences: Sequence[int | None] | None = None) -> None:
        """Return these of ``taken`` to the queue; None for all."""
        known = list(taken) if sequences is None else [sequence for sequence in sequences if sequence is not None]
        self._ledger.put_back(taken, known)

    # -- inspection

    def peek(self, damaged: Callable[[LostEvent], object] | None = None) -> Iterator[Event]:
        """Yield every event in the channel, taken ones included, in order, without taking any.

        Events that are committed away meanwhile may be missing, and so are unreadable ones.

        Example:

            >>> with channel.transaction() as transaction:
            ...     transaction.put(Event({}, b"hello"))
            >>> [event.body for event in channel.peek()]
            [b'hello']

        :param damaged: callback for events with damaged records, which a take would find lost; None to skip them.
        """
        with self._ledger.lock:
            events = self._ledger.queue.snapshot(1 << 64)
        return self._reader.peek(events, damaged)

    def stats(self) -> ChannelStats:
        """Return what the channel holds and has done since it was opened.

        Example:

            >>> channel.stats().file.segments
            1
        """
        figures, sums = self._ledger.figures()
        segments = self._segments.all()
        file = FileStats(
            segments=len(segments),
            disk_bytes=sum(self._size_of(segment.path) for segment in segments),
            free_bytes=self._free(),
            unsynced_bytes=self._log.unsynced_bytes,
            syncs=self._log.syncs,
            rolls=self._log.rolls,
            poisoned=self._log.poisoned,
            **sums,
        )
        return ChannelStats(name=self.name, file=file, **figures)

    def _size_of(self, path: str) -> int:
        try:
            return self._disk.size_of(path)
        except OSError:  # deleted concurrently
            return 0

    def _free(self) -> int:
        try:
            return min(self._disk.free(path) for path in (self.directory, *self.data_directories))
        except OSError:
            return 0


def _check_owned(ownership: Ownership, ledger: Ledger) -> None:
    """Check that the directories still belong to the channel; close the channel if not.

    :raises ChannelLockedError: another process may be using them.
    """
    lost = ownership.lost()
    if lost is None:
        return
    reason = (
        f"{lost} was removed or replaced, so another process may use the directory: stop that one, then open this again"
    )
    error = ChannelLockedError(ledger.name, reason)
    if ledger.close(reason):
        _log.error("%s", error)
    raise error


def _give_back(log: Log, notes: FileNotes | None, ownership: Ownership) -> None:
    with contextlib.suppress(OSError):
        log.close()
    if notes is not None:
        notes.close()
    ownership.release()


def _abandon_in_child() -> None:
    with contextlib.ExitStack() as all_of_them:  # each callback runs even if another raises
        for channel in list(_channels):
            all_of_them.callback(channel._abandon_in_child)
        _channels.clear()


call_in_child(_abandon_in_child, Stage.CHANNELS)
