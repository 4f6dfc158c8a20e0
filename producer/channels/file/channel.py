"""FileChannel: events on the disk, in transactions; what is committed survives the process and the machine.

It puts the parts together: the ledger knows what is there, the log writes it down, the reader brings it back, the
checkpointer makes the next opening short. The file is long because each option and each call is told
about where it stands.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ...model.errors import ChannelError, ChannelLockedError, ConfigError, TransactionFullError
from ...model.interfaces import ChannelStats, Event, FileStats, Stored
from ...runtime.clock import Clock, Deadline, SystemClock
from ...runtime.forks import Stage, call_in_child
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..limits import default_transaction_capacity
from ..room import Claim
from .keeper import Keeper
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
from .store.lost import LostEvent, TellLost
from .store.notes import FileNotes
from .store.segments import Segments
from .store.space import Space
from .store.speed import encode_events

_log = get_logger("loghub.channel")

#: Where no commit waits for the disk, from so many bytes on that have come since a sync began the next one begins, on
#: the keeper's thread: else a commit would wait for that of a whole segment, when it is full.
SYNC_AHEAD = 4 << 20

#: The name of a note.
_PASSED = "passed through"

_channels: weakref.WeakSet[FileChannel] = weakref.WeakSet()


class FileChannel:
    """A channel whose events lie on the disk, in order, until their take is committed.

    :param directory: the channel's own; made if it does not exist. One channel at a time may use it.
    :param capacity: events.
    :param byte_capacity: bytes of headers and bodies; None for no limit but the disk's.
    :param admit_larger: a transaction that puts more bytes than ``byte_capacity`` is let in when nothing else is there,
        and not refused.
    :param transaction_capacity: puts, or takes, of one transaction; None is 10,000, or ``capacity`` if that is less.
    :param keep_alive: seconds that a commit waits for room, and a take for its first event, unless told otherwise.
    :param fsync: ``"commit"``: a commit returns when it is on the disk, and concurrent ones share a sync. A number:
        it returns when it is written, and the disk follows after at most so many seconds. ``"os"``: it returns when
        it is written, and the operating system decides.
    :param segment_size: bytes, about, after which a new file is begun.
    :param checkpoint_interval: seconds; None for none but those of opening and closing, and no thread for them.
    :param dual_checkpoints: keep a second copy.
    :param minimum_free_space: bytes that puts leave free on the disk, or what a checkpoint takes if that is more.
    :param reserve: bytes given up when the disk is full all the same, so that takes can be committed.
    :param data_directories: where segments go, in turn, if not into ``directory``; on other disks, say.
    :param encryption: a :class:`~producer.channels.KeyProvider`: new segments are encrypted with its current key.
    :param name: for messages; None is the directory.
    :param lost: is told, in place of the log, of events whose records are damaged, with what is left of their headers;
        in the constructor, and by whoever takes. See :mod:`.store.lost`.
    :param clock: the source of time, for tests.
    :param disk: the file system, for tests.
    :raises ConfigError: a wrong option.
    :raises ChannelLockedError: another channel owns a directory.
    :raises ChannelFormatError: a directory is none, or not a channel's, or of a newer version.
    :raises ChannelKeyError: an encrypted segment's key is missing.
    :raises ChannelIOError: the directory cannot be read or written.
    :raises RuntimeError: the system has no thread for it.
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
        lost: TellLost | None = None,
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
        self._keys, self._promise, self._tell_lost = encryption, self.options.promise, lost
        absolute = os.path.abspath if disk is None else os.fspath
        self.directory = absolute(directory)
        self.data_directories = tuple(absolute(path) for path in data_directories) or (self.directory,)
        self.name = name or Path(self.directory).name or self.directory
        #: Events up to this sequence number may come behind later ones: one of them could not be read for a while.
        self._passed_through = -1
        self._disk: Disk = disk or Disk()
        self._clock: Clock = clock or SystemClock()
        self._ledger = Ledger(self.name, self.options, self._clock)
        self._closing = threading.Lock()  # held by the one who closes; guards _ended
        self._ended = False
        self._place = Directories(self._disk, self.name, self.directory, self.data_directories)
        self._ownership = own(self._place, self._clock)
        self._check_owned = partial(_check_owned, self._ownership, self._ledger)
        self._segments = Segments(
            self._disk, self.name, self.data_directories, self._keys, self._clock, self._check_owned
        )
        self._log = self._new_log()
        #: What idempotent streams need to survive a restart; a disk of a test's own has none.
        self.notes = FileNotes(self.directory, self.name) if disk is None else None
        _channels.add(self)  # before what takes long: a child that is forked meanwhile has to give the lock up
        # One that is dropped without close gives its files and locks back; it writes nothing more.
        self._finalizer = weakref.finalize(self, _give_back, self._log, self.notes, self._ownership)
        self._finalizer.atexit = False
        self._keeper = Keeper(self, self._clock)
        try:
            self._open()
            self._keeper.start()
        except BaseException:
            self._ledger.close("it could not be opened")  # nor does its thread write anything, if it has begun
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
            # Without the channel, which holds this: one that is dropped has to go at once.
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
        self._log.open_first(found.what_lives(self._clock) if found.owes_live else None)
        self._space.keep_reserve()
        self.checkpoint(force=True)

    def _recover(self) -> Recovered:
        found = recover(self._place, self._segments.cipher_of, self._clock, lost=self._tell_lost)
        self._ledger.restore(found.events, found.sums)
        self._log.resume(found.segments, next_sequence=found.next_sequence, next_transaction=found.next_transaction)
        self._segments.pass_over(found.last_number)
        uncopied = quarantine.Uncopied(self._disk, found.uncopied)
        self._reader = EventReader(
            self._disk, self.name, self._segments, self._ledger, uncopied.keep, self._note_passed, self._tell_lost
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
        """An event will come behind others, whose numbers are higher; also whoever opens the channel next must know."""
        self._passed_through = max(sequence, self._passed_through)
        try:
            if self.notes is not None:
                self.notes.write(_PASSED, b"%d" % self._passed_through, self._passed_through)
        except ChannelError as error:  # what was taken with it must not be lost for this
            _log.error(
                "channel %s: the note of events out of order cannot be written, and a restart will miss it: %s",
                *(self.name, error),
            )

    @property
    def _has_quarantined(self) -> bool:
        """Whether something is kept aside in ``quarantine/``."""
        return bool(quarantine.files(self._disk, self._place.all))

    def close(self) -> None:
        """Write a checkpoint and give the directory up; what is in the channel stays there. May be called again, also
        after a call that a signal handler's exception ended.
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
        """Whether nothing is lost with the directory; called when nothing can be committed any more."""
        with contextlib.suppress(ChannelError):
            self._log.sync()  # what was being committed is there now, or has failed
        figures, sums = self._ledger.figures()
        left = figures["size"] or figures["taken"]
        # Of what was damaged perhaps no copy could be kept: then its segment is all that there is of it.
        return not (left or sums.get("lost_events") or sums.get("damaged_records") or self._has_quarantined)

    def _release(self) -> None:
        """Let another channel have the directory; after :meth:`close`."""
        self._ownership.release()
        self._finalizer.detach()
        _channels.discard(self)

    def _abandon_in_child(self) -> None:
        """After a fork: the directory is the parent's; forget all files without touching what is in them."""
        self._finalizer.detach()
        self._closing, self._ended = threading.Lock(), True
        self._ledger.close_in_child("it belongs to the parent of this process; ProcessFileChannel gives each its own")
        if self.notes is not None:
            self.notes.close_in_child()
        with contextlib.suppress(OSError):
            self._log.close_in_child()
        self._ownership.release_in_child()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FileChannel {self.directory} {'open' if self._ledger.is_open else 'closed'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a FileChannel belongs to one process and cannot be pickled ({self.directory}); "
            "use ProcessFileChannel, which gives each process a directory of its own"
        )

    def transaction(self) -> FileTransaction:
        """See :class:`~producer.model.interfaces.Channel`."""
        self._ledger.must_be_open()
        return FileTransaction(self)

    @property
    def _next_sequence(self) -> int:
        """The number that the next event will get."""
        return self._log.next_sequence

    @property
    def synced_sequence(self) -> int:
        """See :class:`~producer.model.interfaces.Channel`."""
        return self._log.synced_sequence

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all that is committed is on the disk, whatever ``fsync`` says.

        :param timeout: seconds; None is for ever.
        :raises TimeoutError: it took longer.
        :raises ChannelIOError: the disk could not.
        """
        self._ledger.must_be_open()
        if not self._log.sync(timeout):
            raise TimeoutError(f"channel {self.name}: not on the disk within {timeout} s; the sync goes on")

    def checkpoint(self, *, force: bool = False) -> bool:
        """Write down which events are in the channel, and delete the segments that nobody needs any more.

        :param force: also if nothing has changed.
        :returns: whether one was written; an error is logged and counted, and the one before still holds.
        :raises ChannelClosedError: the directory may be another channel's by now.
        """
        self._ledger.must_be_open()  # in a forked child somebody else may have held the lock
        with self._checkpointer.lock:
            self._ledger.must_be_open()
            return self._checkpointer.write(force=force)

    def _put_at_once(self, events: Sequence[Event], timeout: float | None) -> tuple[Stored, int]:
        """As a transaction that puts these, at least one, and commits; what it promises, and its last sequence number.

        :param timeout: as of :meth:`~producer.model.interfaces.Transaction.commit`.
        :raises ChannelError: as its ``put_many`` and ``commit``; nothing was stored.
        """
        self._ledger.must_be_open()
        self._ledger.count_puts(len(events))
        if len(events) > self.options.transaction_capacity:
            raise TransactionFullError(self.name, "puts", self.options.transaction_capacity)
        return self._promise, self._commit_puts(encode_events(events), timeout)

    # -- what its transactions call

    def _count_puts(self, count: int) -> None:
        """See :class:`~producer.channels.file.queue.file_transaction.Keeping`, as for those that follow."""
        self._ledger.count_puts(count)

    def _commit_puts(self, payloads: Sequence[PutPayload], timeout: float | None) -> int:
        """Store one transaction's events; returns the last sequence number.

        :raises ChannelFullError: no room in time.
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
            self._keeper.hurry()
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
        """Make these of ``taken`` final.

        :raises ChannelError: one is not among them, or the disk failed.
        """
        if not sequences:
            return
        with self._ledger.lock:
            self._ledger.must_be_open()
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
        """A transaction was dropped while it was open. For :class:`FileTransaction`."""
        self._ledger.orphan(taken)

    def _put_back(self, taken: Taken, sequences: Sequence[int | None] | None = None) -> None:
        """Give these of ``taken`` back to the head; None is all."""
        known = list(taken) if sequences is None else [sequence for sequence in sequences if sequence is not None]
        self._ledger.put_back(taken, known)

    # -- looking

    def peek(self, damaged: Callable[[LostEvent], object] | None = None) -> Iterator[Event]:
        """Every event that is in the channel now, taken ones included, in order; takes nothing.

        Events that are committed away meanwhile may be missing, and so are those that cannot be read.

        :param damaged: is told of those whose records are damaged; who takes them finds them lost.
        """
        with self._ledger.lock:
            events = self._ledger.queue.snapshot(1 << 64)
        return self._reader.peek(events, damaged)

    def stats(self) -> ChannelStats:
        """See :class:`~producer.model.interfaces.Channel`."""
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
        except OSError:  # deleted a moment ago
            return 0

    def _free(self) -> int:
        try:
            return min(self._disk.free(path) for path in (self.directory, *self.data_directories))
        except OSError:
            return 0


def _check_owned(ownership: Ownership, ledger: Ledger) -> None:
    """Check that the directories are still the channel's, and end the channel if they are not.

    :raises ChannelLockedError: another process may have them by now.
    """
    lost = ownership.lost()
    if lost is None:
        return
    reason = (
        f"{lost} was removed or replaced: another process may use the directory; end that one, then open this again"
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
    with contextlib.ExitStack() as all_of_them:  # also if one of them raises
        for channel in list(_channels):
            all_of_them.callback(channel._abandon_in_child)
        _channels.clear()


call_in_child(_abandon_in_child, Stage.CHANNELS)
