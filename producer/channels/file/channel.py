"""FileChannel: events on the disk, in transactions; what is committed survives the process and the machine.

The queue, the room and the counters are guarded by one lock, ``_lock``, under which no I/O happens; the log has its own
for writing (see ``log.py``).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...clock import Clock, Deadline, SystemClock
from ...errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    ChannelIOError,
    ConfigError,
    TransactionFullError,
    TransactionStateError,
)
from ...interfaces import ChannelStats, Event, FileStats, Stored
from ..counters import ChannelCounters
from ..permits import Permits
from ..transaction import BaseTransaction
from . import checkpoint as checkpoints
from .disk import Disk
from .encryption import OVERHEAD, KeyProvider, check_available
from .event_queue import Entry, EventQueue
from .format import decode_event, encode_event
from .keeper import Keeper
from .log import Log
from .options import FileChannelOptions
from .ownership import QUARANTINE, own
from .recovery import quarantine_copy, recover
from .run import Run
from .segments import Segments
from .space import Space

if TYPE_CHECKING:
    from .per_process import ProcessFileChannel

_log = logging.getLogger("producer.channel")

#: When the disk fails so often in a row to read an event, it is set aside, and the channel goes on with the next.
_READ_TRIES = 3
_PEEKED_AT_ONCE = 1000

_channels: weakref.WeakSet[FileChannel] = weakref.WeakSet()


class FileTransaction(BaseTransaction):
    """See :class:`~producer.interfaces.Transaction`; puts or takes, not both."""

    def __init__(self, channel: FileChannel) -> None:
        super().__init__(channel.name)
        self._channel = channel
        self._puts: list[bytes] = []
        #: Taken and not yet committed, by sequence number; guarded by the channel's lock.
        self.taken: dict[int, Entry] = {}

    def _do_put(self, events: Sequence[Event]) -> None:
        channel = self._channel
        channel.note_attempts(puts=len(events))
        if self.taken:
            raise self._mixed()
        if len(self._puts) + len(events) > channel.options.transaction_capacity:
            raise TransactionFullError(channel.name, "puts", channel.options.transaction_capacity)
        self._puts += [encode_event(event) for event in events]

    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        if self._puts:
            raise self._mixed()
        return self._channel.take(self, count, max_bytes, timeout)

    def _mixed(self) -> TransactionStateError:
        message = "a transaction of a file channel either puts or takes: use two"
        return TransactionStateError(self._channel.name, message)

    def _do_acknowledge(self, events: Sequence[Event]) -> None:
        sequences = [event.sequence for event in events]
        self._channel.commit_takes(self, sequences)

    def _do_commit(self, timeout: float | None) -> Stored:
        if self._puts:
            self._last_sequence = self._channel.commit_puts(self._puts, timeout)
            self._puts = []
        elif self.taken:
            self._channel.commit_takes(self, list(self.taken))
        return self._channel.options.promise

    def _do_rollback(self) -> None:
        self._puts = []
        self._channel.put_back(self, list(self.taken))


class FileChannel:
    """A channel whose events lie on the disk, in order, until their take is committed.

    :param directory: the channel's own; made if it does not exist. One channel at a time may use it.
    :param capacity: events.
    :param byte_capacity: bytes of headers and bodies; None for no limit but the disk's.
    :param transaction_capacity: puts, or takes, of one transaction.
    :param keep_alive: seconds that a commit waits for room, and a take for its first event, unless told otherwise.
    :param fsync: ``"commit"``: a commit returns when it is on the disk, and concurrent ones share a sync. A number:
        it returns when it is written, and the disk follows after at most so many seconds. ``"os"``: it returns when
        it is written, and the operating system decides.
    :param segment_size: bytes, about, after which a new file is begun.
    :param checkpoint_interval: seconds; None for none but those of opening and closing, and no thread for them.
    :param dual_checkpoints: keep a second copy.
    :param minimum_free_space: bytes that puts leave free on the disk.
    :param reserve: bytes given up when the disk is full all the same, so that takes can be committed.
    :param data_directories: where segments go, in turn, if not into ``directory``; on other disks, say.
    :param encryption: a :class:`~producer.channels.KeyProvider`: new segments are encrypted with its current key.
    :param name: for messages; None is the directory.
    :param clock: the source of time, for tests.
    :param disk: the file system, for tests.
    :raises ConfigError: a wrong option.
    :raises ChannelLockedError: another channel owns a directory.
    :raises ChannelFormatError: a directory is none, or not a channel's, or of a newer version.
    :raises ChannelKeyError: an encrypted segment's key is missing.
    :raises ChannelIOError: the directory cannot be read or written.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        capacity: int = 1_000_000,
        byte_capacity: int | None = None,
        transaction_capacity: int = 10_000,
        keep_alive: float = 3.0,
        fsync: str | float = "commit",
        segment_size: int = 64 * 1024 * 1024,
        checkpoint_interval: float | None = 30.0,
        dual_checkpoints: bool = True,
        minimum_free_space: int = 64 * 1024 * 1024,
        reserve: int = 4 * 1024 * 1024,
        data_directories: Sequence[str | os.PathLike[str]] = (),
        encryption: KeyProvider | None = None,
        name: str | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.options = FileChannelOptions(
            capacity=capacity,
            byte_capacity=byte_capacity,
            transaction_capacity=transaction_capacity,
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
        self._keys = encryption
        self.directory = os.path.abspath(directory) if disk is None else os.fspath(directory)  # noqa: PTH100
        self.data_directories = tuple(os.fspath(path) for path in data_directories) or (self.directory,)
        self.name = name or Path(self.directory).name or self.directory
        self._disk: Disk = disk or Disk()
        self._clock: Clock = clock or SystemClock()
        # Guards the queue, the permits, the counters, who waits for events, and what every transaction has taken.
        self._lock = threading.Lock()
        self._queue = EventQueue()
        self._permits = Permits(capacity, byte_capacity)
        self._counters = ChannelCounters(self._clock)
        self._takers: deque[SimpleQueue[None]] = deque()
        self._closed: str | None = None
        self._read_failures: dict[int, int] = {}
        self._aside: list[int] = []  # taken by nobody, until the next checkpoint is due; guarded by _lock
        self._damaged: set[int] = set()
        self._stats = FileStats()
        self._sums: dict[str, int] = {}
        self._checkpointing = threading.Lock()  # one checkpoint at a time; guards _generation and _checkpointed
        self._generation = 0
        self._checkpointed = -1
        self._changes = 0
        self._ownership = own(self._disk, self.name, (self.directory, *self.data_directories), self._clock)
        try:
            self._open()
        except BaseException:
            self._ownership.release()
            raise
        self._keeper = Keeper(self, self._clock)
        _channels.add(self)
        self._keeper.start()

    # -- opening and closing

    def _open(self) -> None:
        every = (self.directory, *self.data_directories)
        options = self.options
        space = Space(
            self._disk, self.name, every, minimum=options.minimum_free_space, reserve=options.reserve, clock=self._clock
        )
        self._space = space
        self._segments = Segments(self._disk, self.name, self.data_directories, self._keys, self._clock)
        self._log = Log(
            self._disk,
            self.name,
            self._segments,
            segment_size=options.segment_size,
            waits=options.waits,
            keeps=options.keeps,
            space=space,
            clock=self._clock,
            lock=self._lock,
            publish=self._publish,
            repoint=self._queue.repoint,
        )
        recovered = recover(
            self._disk, self.name, self.directory, self.data_directories, self._segments.cipher_of, self._clock
        )
        self._generation = recovered.generation
        self._sums = dict(recovered.sums)
        self._damaged = set(recovered.damaged)
        size = self._queue.restore(recovered.events)
        self._permits.force(len(self._queue), size)
        self._log.resume(
            recovered.segments, next_sequence=recovered.next_sequence, next_transaction=recovered.next_transaction
        )
        self._log.open_first()
        self._space.keep_reserve()
        self.checkpoint(force=True)
        if len(self._queue):
            _log.info("channel %s: %d events recovered from %s", self.name, len(self._queue), self.directory)

    @classmethod
    def for_process(
        cls, base: str | os.PathLike[str], *, adopt_interval: float | None = 30.0, **options: Any
    ) -> ProcessFileChannel:
        """A channel with a directory of its own, below ``base``, in each process that uses it, forked ones too.

        Directories of processes that died are adopted: their events are delivered by one that lives. A directory is
        removed when its process closes it empty.

        :param base: made if it does not exist; on a local disk.
        :param adopt_interval: seconds between looks for dead processes; None looks once.
        :param options: those of the constructor.
        """
        from .per_process import ProcessFileChannel  # noqa: PLC0415  # which needs this class

        return ProcessFileChannel(base, adopt_interval=adopt_interval, options=options)

    @property
    def quarantined(self) -> bool:
        """Whether something damaged is kept in the directory."""
        return self._disk.exists(f"{self.directory}/{QUARANTINE}")

    def close(self, *, keep: bool = True) -> None:
        """Write a checkpoint and give the directory up; what is in the channel stays there. May be called again.

        :param keep: False keeps the directory locked, and writes nothing, for a caller who removes it and then calls
            :meth:`release`.
        """
        with self._lock:
            if self._closed is not None:
                return
            self._closed = "it was closed"
            self._permits.wake_all()
            takers = list(self._takers)
        for taker in takers:
            taker.put(None)
        self._keeper.stop()
        self._log.refuse()
        with self._checkpointing:
            try:
                if keep:
                    self._checkpoint(force=True)
            finally:
                self._log.close()
                if keep:
                    self.release()

    def release(self) -> None:
        """Let another channel have the directory; after :meth:`close`."""
        self._ownership.release()
        _channels.discard(self)

    def abandon_in_child(self) -> None:
        """After a fork: the directory is the parent's; forget all files without touching what is in them."""
        if self._closed is None:
            self._closed = "it belongs to the parent of this process; FileChannel.for_process gives each its own"
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):
            self._log.close_in_child()
        self._ownership.release()

    def _must_be_open(self) -> None:
        if self._closed is not None:
            raise ChannelClosedError(self.name, f"{self._closed}: nothing more can be put or taken")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FileChannel {self.directory} {'open' if self._closed is None else 'closed'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a FileChannel belongs to one process and cannot be pickled ({self.directory}); "
            "use FileChannel.for_process, which gives each process a directory of its own"
        )

    # -- the channel

    def transaction(self) -> FileTransaction:
        """See :class:`~producer.interfaces.Channel`."""
        self._must_be_open()
        return FileTransaction(self)

    @property
    def synced_sequence(self) -> int:
        """See :class:`~producer.interfaces.Channel`."""
        return self._log.synced_sequence

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all that is committed is on the disk, whatever ``fsync`` says.

        :param timeout: seconds; None is for ever.
        :raises TimeoutError: it took longer.
        :raises ChannelIOError: the disk could not.
        """
        self._must_be_open()
        if not self._log.sync(timeout):
            raise TimeoutError(f"channel {self.name}: not on the disk within {timeout} s; it is on its way")

    def note_attempts(self, puts: int) -> None:
        """Count events given to ``put``."""
        with self._lock:
            self._counters.put_attempts += puts

    # -- puts

    def commit_puts(self, payloads: Sequence[bytes], timeout: float | None) -> int:
        """Store one transaction's events; returns the last sequence number. For :class:`FileTransaction`.

        :raises ChannelFullError: no room in time.
        :raises ChannelIOError: the disk failed, or is too full.
        """
        count = len(payloads)
        size = sum(map(len, payloads)) + (OVERHEAD * count if self._keys is not None else 0)
        run = Run(puts=payloads, time=self._clock.time())
        written = False
        try:
            self._acquire(count, size, self.options.keep_alive if timeout is None else timeout)
            try:
                self._log.commit(run)
                written = True
            finally:
                # An interrupt after the write leaves what is published to those who take it.
                if not written and (not run.number or run.error is not None):
                    with self._lock:
                        self._permits.release(count, size)
        except ChannelError:
            with self._lock:
                self._counters.put_errors += 1
            raise
        return run.last

    def _acquire(self, count: int, size: int, timeout: float) -> None:
        with self._lock:
            self._must_be_open()
            if self._permits.acquire(count, size):
                return
            fits = self._permits.could_hold(count, size)
        started = self._clock.monotonic()
        if fits and timeout > 0 and self._wait_for_room(count, size, timeout):
            return
        with self._lock:
            self._must_be_open()
            permits = self._permits
            raise ChannelFullError(
                self.name,
                size=permits.events,
                capacity=permits.capacity,
                used_bytes=permits.size,
                byte_capacity=permits.byte_capacity,
                wanted=count,
                wanted_bytes=size,
                last_take_age=self._counters.last_take_age,
                waited=self._clock.monotonic() - started,
            )

    def _wait_for_room(self, count: int, size: int, timeout: float) -> bool:
        deadline = Deadline.after(self._clock, timeout)
        waiter, kept = None, False
        try:
            with self._lock:
                waiter = self._permits.line_up(count, size)
            while not waiter.granted and self._closed is None and not deadline.expired(self._clock):
                waiter.wait(self._clock, deadline)
            kept = waiter.granted
        finally:
            if waiter is not None and not kept:
                with self._lock:
                    self._permits.leave(waiter)
        return kept

    def _publish(self, run: Run) -> None:
        """A run holds: its puts can be taken, its takes are gone. Called in the order of the log, under the lock."""
        self._changes += 1
        if run.puts:
            self._queue.append(run.first, run.segment, run.offsets, run.lengths, run.time)
            self._counters.committed(len(run.puts), 0)
            self._wake_takers()
        if run.takes:
            # One that an interrupted commit has given back already is delivered again.
            gone = [sequence for sequence in run.takes if sequence in self._queue.taken]
            self._permits.release(len(gone), self._queue.remove(gone))
            self._counters.committed(0, len(gone))

    def _wake_takers(self) -> None:
        for taker in self._takers:
            taker.put(None)

    # -- takes

    def take(
        self, transaction: FileTransaction, count: int, max_bytes: int | None, timeout: float | None
    ) -> list[Event]:
        """Take events into ``transaction``. For :class:`FileTransaction`."""
        deadline = Deadline.after(self._clock, self.options.keep_alive if timeout is None else timeout)
        wake: SimpleQueue[None] = SimpleQueue()
        try:
            while True:
                entries = self._take_entries(transaction, count, max_bytes, wake)
                if entries:
                    events = self._read(transaction, entries)
                    if events:
                        with self._lock:
                            self._counters.take_attempts += len(events)
                        return events
                elif deadline.expired(self._clock):
                    with self._lock:
                        self._counters.take_attempts += 1
                    return []
                else:
                    self._clock.wait_for(wake, deadline)
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._takers.remove(wake)

    def _take_entries(
        self, transaction: FileTransaction, count: int, max_bytes: int | None, wake: SimpleQueue[None]
    ) -> list[Entry]:
        capacity = self.options.transaction_capacity
        with self._lock:
            self._must_be_open()
            if len(transaction.taken) >= capacity:
                self._counters.take_attempts += 1
                raise TransactionFullError(self.name, "takes", capacity)
            entries = self._queue.take(min(count, capacity - len(transaction.taken)), max_bytes)
            transaction.taken.update((entry.sequence, entry) for entry in entries)
            if not entries and wake not in self._takers:
                self._takers.append(wake)
        return entries

    def _read(self, transaction: FileTransaction, entries: Sequence[Entry]) -> list[Event]:
        """The events; what does not check out is lost, kept aside and counted, and the rest goes on."""
        try:
            payloads = self._segments.read(entries)
        except OSError as error:
            self._read_failed(transaction, entries, error)
            return []
        self._read_failures.clear()
        events: list[Event] = []
        lost: list[Entry] = []
        for entry, payload in zip(entries, payloads, strict=True):
            event = _decode(payload, entry.sequence) or self._read_elsewhere(entry)
            if event is None:
                lost.append(entry)
            else:
                events.append(event)
        if lost:
            self._lose(transaction, lost)
        return events

    def _read_elsewhere(self, entry: Entry) -> Event | None:
        """The event, if it was written again to another segment since it was taken."""
        with self._lock:
            now = self._queue.taken.get(entry.sequence, entry)
        if now.pointer == entry.pointer:
            return None
        try:
            return _decode(self._segments.read([now])[0], now.sequence)
        except OSError:
            return None

    def _read_failed(self, transaction: FileTransaction, entries: Sequence[Entry], error: OSError) -> None:
        first = entries[0].sequence
        failures = self._read_failures[first] = self._read_failures.get(first, 0) + 1
        if failures >= _READ_TRIES:
            self._set_aside(transaction, first, error)
            self.put_back(transaction, [entry.sequence for entry in entries[1:]])
            return
        self.put_back(transaction, [entry.sequence for entry in entries])
        with self._lock:
            self._counters.take_attempts += 1
            self._counters.take_errors += 1
        message = f"an event cannot be read ({failures} of {_READ_TRIES} tries before it is set aside): {error}"
        raise ChannelIOError(self.name, message, error.errno or errno.EIO) from error

    def _set_aside(self, transaction: FileTransaction, sequence: int, error: OSError) -> None:
        """Let what is behind an event pass that may be whole, but cannot be read; it stays in the channel."""
        with self._lock:
            if transaction.taken.pop(sequence, None) is not None:
                self._aside.append(sequence)
            self._read_failures.pop(sequence, None)
            self._counters.take_errors += 1
        _log.error(
            "channel %s: event %d cannot be read and is set aside; it comes back with the next checkpoint: %s",
            *(self.name, sequence, error),
        )

    def _return_aside(self) -> None:
        with self._lock:
            aside, self._aside = self._aside, []
            self._queue.put_back([self._queue.taken[sequence] for sequence in aside])
            if aside:
                self._wake_takers()

    def _lose(self, transaction: FileTransaction, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                transaction.taken.pop(entry.sequence, None)
            size = self._queue.remove([entry.sequence for entry in entries if entry.sequence in self._queue.taken])
            self._permits.release(len(entries), size)
            self._counters.take_errors += len(entries)
            self._add("lost_events", len(entries))
            self._add("damaged_records", len(entries))
            self._changes += 1
            segments = {entry.segment for entry in entries} - self._damaged
            self._damaged |= segments
            paths = [segment.path for segment in map(self._segments.get, segments) if segment is not None]
        _log.error(
            "channel %s: %d events are damaged on the disk and lost; the next ones follow", self.name, len(entries)
        )
        for path in paths:
            if quarantine_copy(self._disk, self.name, self.directory, path):
                with self._lock:
                    self._add("quarantined", 1)

    def _add(self, name: str, amount: int) -> None:
        self._sums[name] = self._sums.get(name, 0) + amount

    def commit_takes(self, transaction: FileTransaction, sequences: Sequence[int | None]) -> None:
        """Make takes of ``transaction`` final. For :class:`FileTransaction`.

        :raises ChannelError: one is not the transaction's, or the disk failed.
        """
        if not sequences:
            return
        with self._lock:
            self._must_be_open()
            takes = [sequence for sequence in sequences if sequence in transaction.taken]
            strangers = len(sequences) - len(set(takes))
        if strangers:
            raise ChannelError(self.name, f"{strangers} of {len(sequences)} events were not taken in this transaction")
        try:
            self._log.commit(Run(takes=takes, time=self._clock.time()))
        except ChannelError:
            with self._lock:
                self._counters.take_errors += 1
            raise
        with self._lock:
            for sequence in takes:
                transaction.taken.pop(sequence, None)

    def put_back(self, transaction: FileTransaction, sequences: Sequence[int]) -> None:
        """Give these takes of ``transaction`` back to the head. For :class:`FileTransaction`."""
        with self._lock:
            entries = [transaction.taken.pop(sequence) for sequence in sequences if sequence in transaction.taken]
            back = [entry for entry in entries if entry.sequence in self._queue.taken]
            self._queue.put_back(back)
            if back:
                self._wake_takers()

    # -- keeping

    def checkpoint(self, *, force: bool = False) -> bool:
        """Write down which events are in the channel, and delete the segments that nobody needs any more.

        :param force: also if nothing has changed.
        :returns: whether one was written; an error is logged and counted, and the one before still holds.
        :raises ChannelClosedError: the directory may be another channel's by now.
        """
        self._must_be_open()  # in a forked child somebody else may have held the lock
        with self._checkpointing:
            self._must_be_open()
            return self._checkpoint(force=force)

    def _checkpoint(self, *, force: bool) -> bool:
        self._return_aside()
        if not force and self._changes == self._checkpointed:
            return False
        try:
            self._write_checkpoint()
        except (OSError, ChannelError) as error:
            with self._lock:
                self._add("checkpoint_errors", 1)
            _log.error("channel %s: a checkpoint could not be written: %s", self.name, error)
            return False
        self._space.keep_reserve()
        return True

    def _write_checkpoint(self) -> None:
        self._log.sync()
        position = self._log.position()
        with self._lock:
            changes = self._changes
            events = self._queue.snapshot(position.pointer)
            salts = {segment.number: segment.header.salt for segment in self._segments.all()}
            unneeded = [
                number for number in salts if number < position.segment and number not in self._queue.references
            ]
        self._generation += 1
        checkpoint = checkpoints.Checkpoint(
            generation=self._generation,
            position=position,
            next_sequence=self._log.next_sequence,
            next_transaction=self._log.next_transaction,
            segments={number: salt for number, salt in salts.items() if number not in unneeded},
            events=events,
        )
        copies = (checkpoints.NAME, checkpoints.BACKUP_NAME) if self.options.dual_checkpoints else (checkpoints.NAME,)
        data = checkpoints.encode(checkpoint)
        try:
            backup_error = checkpoints.write_both(self._disk, self.directory, copies, data)
        except OSError:
            if not self._space.give_up_reserve():
                raise
            backup_error = checkpoints.write_both(self._disk, self.directory, copies, data)
        if not self.options.dual_checkpoints:
            checkpoints.remove_backup(self._disk, self.directory)
        self._checkpointed = changes
        with self._lock:
            self._add("checkpoints", 1)
            self._add("checkpoint_backup_errors", int(backup_error is not None))
        if backup_error is not None:
            _log.error("channel %s: the second copy of a checkpoint could not be written: %s", self.name, backup_error)
            return
        self._segments.remove(unneeded)

    def peek(self) -> Iterator[Event]:
        """Every event that is in the channel now, taken ones included, in order; takes nothing.

        Events that are committed away meanwhile may be missing, and so are those that cannot be read.
        """
        with self._lock:
            events = self._queue.snapshot(1 << 64)
        for start in range(0, len(events), _PEEKED_AT_ONCE):
            entries = events.entries(start, start + _PEEKED_AT_ONCE)
            try:
                payloads = self._segments.read(entries)
            except OSError:  # a segment that was deleted meanwhile
                continue
            for entry, payload in zip(entries, payloads, strict=True):
                event = _decode(payload, entry.sequence)
                if event is not None:
                    yield event

    def stats(self) -> ChannelStats:
        """See :class:`~producer.interfaces.Channel`."""
        now = self._clock.time()
        unsynced = self._log.unsynced_bytes
        with self._lock:
            counters, permits, queue = self._counters, self._permits, self._queue
            size, taken, oldest = len(queue), len(queue.taken), queue.oldest
            segments = self._segments.all()
            sums = dict(self._sums)
            known = {
                "put_attempts": counters.put_attempts,
                "put_successes": counters.put_successes,
                "take_attempts": counters.take_attempts,
                "take_successes": counters.take_successes,
                "put_errors": counters.put_errors,
                "take_errors": counters.take_errors,
            }
            rates = counters.put_rate.per_second(), counters.take_rate.per_second()
            used, waiting, last_take = permits.size, permits.waiting, counters.last_take_age
        log = self._log
        file = FileStats(
            segments=len(segments),
            disk_bytes=sum(self._size_of(segment.path) for segment in segments),
            free_bytes=self._free(),
            unsynced_bytes=unsynced,
            syncs=log.syncs,
            rolls=log.rolls,
            poisoned=log.poisoned,
            **sums,
        )
        return ChannelStats(
            name=self.name,
            open=self._closed is None,
            size=size,
            taken=taken,
            capacity=self.options.capacity,
            fill=(size + taken) / self.options.capacity,
            bytes=used,
            byte_capacity=self.options.byte_capacity,
            put_rate=rates[0],
            take_rate=rates[1],
            oldest_event_age=None if oldest is None else max(0.0, now - oldest),
            last_take_age=last_take,
            waiting=waiting,
            file=file,
            **known,
        )

    def _size_of(self, path: str) -> int:
        try:
            return self._disk.size_of(path)
        except OSError:  # deleted a moment ago
            return 0

    def _free(self) -> int:
        try:
            return min(self._disk.free(path) for path in (self.directory, *self.data_directories))
        except OSError:
            return 0


def _decode(payload: bytes | None, sequence: int) -> Event | None:
    if payload is None:
        return None
    try:
        return decode_event(payload, sequence)
    except ValueError:
        return None


def _abandon_in_child() -> None:
    for channel in list(_channels):
        channel.abandon_in_child()
    _channels.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
