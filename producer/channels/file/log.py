"""Log: transactions go to the end of the newest segment, and to the disk in groups.

``_writing`` orders what is written: whoever holds it may write a run of records, begin a segment, replace one whose
sync failed; it is held during that I/O, because there is one end to write at. ``_state`` guards what is known: which
runs are on the disk, who waits, which segments exist, and the channel's queue; no I/O happens under it. It may be taken
with ``_writing`` held, never the other way round.

A *run* is what one transaction writes, in one piece. Runs are numbered as they are written. Whoever commits waits until
his run is on the disk; the first to wait syncs for all that were written by then (group commit), and their outcomes are
published in the order of the log.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from struct import pack

from ...clock import Clock, Deadline
from ...errors import ChannelClosedError, ChannelError, ChannelIOError, ChannelKeyError
from .disk import Disk
from .encryption import OVERHEAD, KeyProvider, SegmentCipher
from .event_queue import Entry, pointer_to
from .format import (
    COMMIT_SIZE,
    FIRST_RECORD,
    FRAME_SIZE,
    Kind,
    SegmentHeader,
    encode_commit,
    encode_record,
    encode_rollback,
)
from .segment import Segment, SegmentWriter, payload_of
from .space import Space

_log = logging.getLogger("producer.channel")

#: Files kept open for reading.
_OPEN_FILES = 32
#: Records of one segment are read together if they lie within this, bytes.
_SPAN = 1 << 20
#: With an interval, what is written and not yet synced is kept in memory up to this, bytes; then it is synced early.
MAX_UNSYNCED = 16 << 20


@dataclass(slots=True, eq=False)
class Run:
    """What one transaction writes.

    :ivar puts: payloads of its Puts; empty if it takes.
    :ivar takes: sequence numbers that it takes; empty if it puts.
    :ivar number: its place among all runs.
    :ivar first: sequence number of its first Put.
    :ivar offsets: where its Puts stand in the segment.
    :ivar lengths: the bytes of their payloads there.
    :ivar error: why it could not be brought to the disk.
    """

    puts: Sequence[bytes] = ()
    takes: Sequence[int] = ()
    time: float = 0.0
    number: int = 0
    transaction: int = 0
    first: int = 0
    segment: int = 0
    start: int = 0
    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    error: ChannelIOError | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes in a segment."""
        records = len(self.puts) + bool(self.takes) + 1
        return sum(map(len, self.puts)) + 8 * len(self.takes) + COMMIT_SIZE + records * (FRAME_SIZE + OVERHEAD)

    @property
    def last(self) -> int:
        """Sequence number of its last Put; one below the first if it has none."""
        return self.first + len(self.puts) - 1


def encode_run(run: Run, segment: Segment, synced: int) -> bytes:
    """The run's records for this segment; notes where its Puts will stand, from the run's start."""
    frames: list[bytes] = []
    seed, cipher, transaction = segment.header.seed, segment.cipher, run.transaction
    remaining, offset, sequence = len(run.puts) + bool(run.takes), 0, run.first
    run.offsets, run.lengths = [], []
    for payload in run.puts:
        sealed = payload if cipher is None else cipher.seal(Kind.PUT, sequence, transaction, payload)
        frame = encode_record(seed, 1, remaining, sequence, transaction, sealed)
        frames.append(frame)
        run.offsets.append(offset)
        run.lengths.append(len(sealed))
        offset += len(frame)
        remaining -= 1
        sequence += 1
    rest = [(Kind.TAKE, pack(f"<{len(run.takes)}Q", *run.takes))] if run.takes else []
    rest.append((Kind.COMMIT, encode_commit(len(run.puts) + bool(run.takes), synced, run.time)))
    for kind, payload in rest:
        sealed = payload if cipher is None else cipher.seal(kind, run.last, transaction, payload)
        frames.append(encode_record(seed, kind, remaining, run.last, transaction, sealed))
        remaining -= 1
    return b"".join(frames)


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two runs: what is before it is in the queue, or gone."""

    segment: int
    offset: int

    @property
    def pointer(self) -> int:
        """As one number."""
        return pointer_to(self.segment, self.offset)


class LogCounters:
    """Sums for :class:`~producer.interfaces.FileStats`; each is touched under one of the log's locks."""

    def __init__(self) -> None:
        self.syncs = self.rolls = self.poisoned = 0


class Log:
    """See the module.

    :param directories: where segments go, in turn.
    :param waits: commits return when they are on the disk; otherwise once written.
    :param keeps: what is not synced is kept in memory, to be written again should a sync fail.
    :param publish: called with each run, in order, once it holds, under ``_state``.
    :param repoint: called with new pointers of published events, when they had to be written again; under
        ``_state``.
    :param lock: ``_state``, which the channel's queue shares.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        directories: Sequence[str],
        *,
        segment_size: int,
        waits: bool,
        keeps: bool,
        keys: KeyProvider | None,
        space: Space,
        clock: Clock,
        lock: threading.Lock,
        publish: Callable[[Run], None],
        repoint: Callable[[dict[int, int]], None],
    ) -> None:
        self._disk, self._name, self._directories = disk, name, tuple(directories)
        self._segment_size, self._waits, self._keeps = segment_size, waits, keeps
        self._keys, self._space, self._clock = keys, space, clock
        self._publish, self._repoint = publish, repoint
        self.counters = LogCounters()
        # Guards: the active segment and those not synced, the next numbers, _unsynced, _voided.
        self._writing = threading.Lock()
        self._active: SegmentWriter | None = None
        self._dirty: list[SegmentWriter] = []
        self.next_sequence = 1
        self.next_transaction = 1
        self._next_segment = 1
        self._last_run = 0
        self._went_past = 0
        self._unsynced: deque[Run] = deque()
        self._unsynced_bytes = 0
        self._voided: list[Run] = []
        self._closed = False
        # Guards: segments, _pending, _synced_*, _syncing, _waiters, and the queue that publish changes.
        self._state = lock
        self.segments: OrderedDict[int, Segment] = OrderedDict()
        self._pending: deque[Run] = deque()
        self._synced_run = 0
        self.synced_transaction = 0
        self.synced_sequence = -1
        self._failed: tuple[int, ChannelIOError | None] = (0, None)  # the last run that a sync has failed for, and why
        self._unsafe = False  # something is in the queue that could not be synced, and never will be
        self._syncing = False
        self._waiters: list[SimpleQueue[None]] = []
        # Guards the files open for reading; held while one of them is read, so that nobody closes it meanwhile.
        self._reading = threading.Lock()
        self._files: OrderedDict[int, int] = OrderedDict()

    # -- opening

    def resume(self, segments: Iterable[Segment], *, next_sequence: int, next_transaction: int) -> None:
        """Go on behind what was found; nothing is ever appended to a segment of another time."""
        self.segments = OrderedDict((segment.number, segment) for segment in segments)
        self._next_segment = max(self.segments, default=0) + 1
        self.next_sequence, self.next_transaction = next_sequence, next_transaction
        self._went_past = self.synced_transaction = next_transaction - 1
        self.synced_sequence = next_sequence - 1

    def open_first(self) -> None:
        """Begin a segment, so that an unwritable directory is found when the channel is opened.

        :raises ChannelIOError: it cannot be written.
        """
        with self._writing:
            try:
                self._roll(self.next_sequence, essential=True)
            except OSError as error:
                raise self._io_error("a segment cannot be begun", error) from error

    # -- writing

    def commit(self, run: Run) -> None:
        """Bring a transaction into the log, and to the disk if the policy is to wait for that.

        :raises DiskFullError: too little space for puts.
        :raises ChannelIOError: it could not be written, or not be synced; then it did not happen.
        """
        while not self._write_in_order(run):
            self.sync()
        early = self._keeps and not self._waits and self._unsynced_bytes > MAX_UNSYNCED
        if self._waits:
            try:
                self._wait_synced(run.number)
            except BaseException:  # an interrupt: the outcome has to be known all the same
                self._wait_synced(run.number)
                raise
        else:
            self._publish_through(run.number)
            if early:
                self.sync()
        if run.error is not None:
            raise run.error

    def _write_in_order(self, run: Run) -> bool:
        """Write a run; False if the segments before have to be synced first.

        Who does not wait for the disk may lose the end of the log, but nothing in its middle: so no segment is begun
        while an earlier one is not on the disk.
        """
        with self._writing:
            if not self._waits and self._is_new_due(run.size):
                writers = [*self._dirty, *([] if self._active is None else [self._active])]
                if any(writer.synced < writer.size for writer in writers):
                    return False
            self._write(run)
        return True

    def _is_new_due(self, size: int) -> bool:
        writer = self._active
        return writer is None or (writer.size > FIRST_RECORD and writer.size + size > self._segment_size)

    def _write(self, run: Run) -> None:
        size, essential = run.size, not run.puts
        if self._closed:
            raise ChannelClosedError(self._name, "it was closed: nothing more can be put or taken")
        try:
            if not essential:
                self._space.admit(size)
            writer = self._writer_for(size, essential=essential)
            run.transaction, run.first = self.next_transaction, self.next_sequence
            self.next_transaction += 1
            self._append_run(writer, run, essential=essential)
        except ChannelError:
            raise
        except OSError as error:
            if _is_full(error) and not essential:
                raise self._space.full(size) from error
            raise self._io_error("a commit failed", error) from error
        self.next_sequence += len(run.puts)
        self._last_run += 1
        run.number = self._last_run
        self._pending.append(run)
        if self._keeps:
            self._unsynced.append(run)
            self._unsynced_bytes += size

    def _append_run(self, writer: SegmentWriter, run: Run, *, essential: bool) -> None:
        data = encode_run(run, writer.segment, self.synced_transaction)
        start = writer.size
        try:
            self._append(writer, data, essential=essential)
        except OSError:
            if writer.broken:
                self._leave(writer)
            raise
        run.segment, run.start = writer.segment.number, start
        run.offsets = [start + offset for offset in run.offsets]

    def _append(self, writer: SegmentWriter, data: bytes, *, essential: bool) -> None:
        try:
            writer.append(data)
        except OSError as error:
            if not (essential and _is_full(error) and not writer.broken and self._space.give_up_reserve()):
                raise
            writer.append(data)
        self._space.used(len(data))

    def _writer_for(self, size: int, *, essential: bool) -> SegmentWriter:
        """The segment to write to, a new one if need be; what is voided is said in it first."""
        writer = self._active
        if writer is None or self._is_new_due(size):
            writer = self._roll(self.next_sequence, essential=essential)
        while self._voided:
            run = self._voided[0]
            payload = encode_rollback(run.first, run.last)
            segment = writer.segment
            if segment.cipher is not None:
                payload = segment.cipher.seal(Kind.ROLLBACK, self.next_sequence - 1, run.transaction, payload)
            frame = encode_record(
                segment.header.seed, Kind.ROLLBACK, 0, self.next_sequence - 1, run.transaction, payload
            )
            self._append(writer, frame, essential=True)
            self._voided.pop(0)
        return writer

    def _leave(self, writer: SegmentWriter) -> None:
        """Write nothing more to this segment; what is in it stays, and is synced."""
        if self._active is writer:
            self._active = None
            self._dirty.append(writer)
            self._went_past = self.next_transaction - 1

    def _roll(self, first_sequence: int, *, essential: bool = False) -> SegmentWriter:
        segment = self._new_segment(first_sequence)
        writer = SegmentWriter(self._disk, segment)
        try:
            try:
                writer.write_header()
            except OSError as error:
                if not (essential and _is_full(error) and not writer.broken and self._space.give_up_reserve()):
                    raise
                writer.write_header()
            # The name has to be on the disk before anything in the file is promised to be, and the header before a
            # checkpoint may say that the log goes on here.
            writer.sync()
            self._disk.sync_directory(os.path.dirname(segment.path))  # noqa: PTH120  # a string for the Disk
        except OSError:
            self._forget_file(writer)
            raise
        if self._active is not None:
            self._dirty.append(self._active)
            self.counters.rolls += 1
        self._active = writer
        with self._state:
            self.segments[segment.number] = segment
        return writer

    def _forget_file(self, writer: SegmentWriter) -> None:
        """Remove a segment that could not be begun; if that fails too, an empty file is left, which means nothing."""
        writer.close()
        try:
            self._disk.unlink(writer.segment.path)
        except OSError as error:
            _log.warning("channel %s: %s could not be begun, nor removed: %s", self._name, writer.segment.path, error)

    def _new_segment(self, first_sequence: int) -> Segment:
        number = self._next_segment
        self._next_segment += 1
        salt = os.urandom(16)
        key_id = None if self._keys is None else self._keys.current_key_id()
        went_past = max(self._went_past, self.synced_transaction)
        header = SegmentHeader(number, first_sequence, salt, self._clock.time(), went_past, key_id)
        directory = self._directories[number % len(self._directories)]
        return Segment(f"{directory}/log-{number:010d}", header, self.cipher_of(header))

    def cipher_of(self, header: SegmentHeader) -> SegmentCipher | None:
        """What opens this segment's payloads.

        :raises ChannelKeyError: its key is missing.
        """
        if header.key_id is None:
            return None
        if self._keys is None:
            message = f"segment {header.number} is encrypted with the key {header.key_id!r}: give encryption=…"
            raise ChannelKeyError(self._name, header.key_id, message)
        try:
            return SegmentCipher(self._keys.get_key(header.key_id), header.salt)
        except KeyError:
            message = f"segment {header.number} needs the key {header.key_id!r}, which the key provider does not have"
            raise ChannelKeyError(self._name, header.key_id, message) from None

    # -- to the disk

    def sync(self, timeout: float | None = None) -> bool:
        """Wait until all that was written before is on the disk; False if the time is over.

        :raises ChannelIOError: it could not be synced.
        """
        with self._writing:
            number = self._last_run
        with self._state:
            before = self._synced_run
        done = self._wait_synced(number, Deadline.after(self._clock, timeout))
        with self._state:
            failed, error = self._failed
        if error is not None and before < failed and done:
            raise error
        return done

    def _wait_synced(self, number: int, deadline: Deadline | None = None) -> bool:
        """Return when run ``number`` is on the disk, or has failed; the first to come syncs for all."""
        while True:
            with self._state:
                if self._synced_run >= number:
                    return True
                leads = not self._syncing
                wake: SimpleQueue[None] = SimpleQueue()
                if leads:
                    self._syncing = True
                else:
                    self._waiters.append(wake)
            if leads:
                self._sync_for_all()
            elif deadline is None:
                wake.get()
            else:
                if deadline.expired(self._clock):
                    return False
                self._clock.wait_for(wake, deadline)

    def _sync_for_all(self) -> None:
        target = 0
        try:
            with self._writing:
                target = self._last_run
                writers = [*self._dirty, *([] if self._active is None else [self._active])]
                transaction, sequence = self.next_transaction - 1, self.next_sequence - 1
            try:
                for writer in writers:
                    if writer.synced < writer.size:
                        self.counters.syncs += 1
                        writer.sync()
            except OSError as error:
                target, transaction, sequence = self._replace_segments(error)
            self._synced(target, transaction, sequence)
        finally:
            with self._state:
                self._syncing = False
                waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.put(None)

    def _synced(self, target: int, transaction: int, sequence: int) -> None:
        with self._writing:
            while self._unsynced and self._unsynced[0].number <= target:
                self._unsynced_bytes -= self._unsynced.popleft().size
            done = [writer for writer in self._dirty if writer.synced >= writer.size]
            for writer in done:
                self._dirty.remove(writer)
                writer.close()
        self._publish_through(target)
        with self._state:
            self._synced_run = max(self._synced_run, target)
            if not self._unsafe:
                self.synced_transaction = max(self.synced_transaction, transaction)
                self.synced_sequence = max(self.synced_sequence, sequence)

    def _publish_through(self, number: int) -> None:
        with self._state:
            while self._pending and self._pending[0].number <= number:
                run = self._pending.popleft()
                if run.error is None:
                    self._publish(run)

    def _replace_segments(self, error: OSError) -> tuple[int, int, int]:
        """A sync failed: the kernel may have dropped what it could not write, and would not say so twice.

        The segments that were not synced are given up, and what is not known to be on the disk is written again to a
        new one. If that fails as well, those runs have failed, and are voided in the next segment that can be written.
        """
        with self._writing:
            for writer in [*self._dirty, *([] if self._active is None else [self._active])]:
                self.counters.poisoned += 1
                writer.close()
            self._dirty, self._active = [], None
            self._went_past = self.next_transaction - 1
            runs = list(self._unsynced)
            first = runs[0].first if runs else self.next_sequence
            _log.error(
                "channel %s: the disk could not sync: %s; a new segment is begun, and %d transactions written again",
                self._name,
                error,
                len(runs),
            )
            try:
                self._write_again(runs, first)
                if not self._keeps:
                    self._fail(runs, error)
            except (OSError, ChannelError) as second:
                self._fail(runs, second)
            return self._last_run, self.next_transaction - 1, self.next_sequence - 1

    def _write_again(self, runs: list[Run], first: int) -> None:
        writer = self._roll(first, essential=True)
        try:
            for run in runs:
                self._append_run(writer, run, essential=True)
            self.counters.syncs += 1
            writer.sync()
        except OSError:
            if self._active is writer:
                self._active = None
                writer.close()
            self._dirty = [other for other in self._dirty if other is not writer]
            raise
        pointers = {
            run.first + place: pointer_to(run.segment, offset)
            for run in runs
            for place, offset in enumerate(run.offsets)
        }
        with self._state:
            self._repoint(pointers)

    def _fail(self, runs: list[Run], error: Exception) -> None:
        failure = self._io_error("what was committed could not be brought to the disk", error)
        with self._state:
            self._failed = self._last_run, failure
        for run in runs:
            run.error = failure
        if self._waits:
            self._voided += runs
        else:  # they are in the queue already, and their bytes may still be read
            with self._state:
                self._unsafe = True
            _log.error(
                "channel %s: %d transactions may not survive the machine: they could not be synced",
                self._name,
                len(runs),
            )

    # -- reading

    def read(self, entries: Sequence[Entry]) -> list[bytes | None]:
        """The payloads of these Puts; None for those that do not check out.

        :raises OSError: the disk could not be read.
        """
        payloads: list[bytes | None] = []
        start = 0
        while start < len(entries):
            stop = _span(entries, start)
            payloads += self._read_span(entries[start:stop])
            start = stop
        return payloads

    def _read_span(self, entries: Sequence[Entry]) -> list[bytes | None]:
        with self._state:
            segment = self.segments.get(entries[0].segment)
        if segment is None:
            return [None] * len(entries)
        begin = entries[0].offset
        end = entries[-1].offset + FRAME_SIZE + entries[-1].length
        with self._reading:
            data = self._disk.read(self._file(segment), end - begin, begin)
        payloads = []
        for entry in entries:
            offset = entry.offset - begin
            frame = data[offset : offset + FRAME_SIZE + entry.length]
            payloads.append(payload_of(segment, frame, Kind.PUT, entry.sequence))
        return payloads

    def _file(self, segment: Segment) -> int:
        file = self._files.pop(segment.number, None)
        if file is None:
            file = self._disk.open(segment.path)
            if len(self._files) >= _OPEN_FILES:
                self._disk.close(self._files.popitem(last=False)[1])
        self._files[segment.number] = file
        return file

    # -- segments

    def position(self) -> Position:
        """A place before which everything is published; for a look at the queue that comes after this call."""
        with self._writing:
            if self._active is None:
                self._roll(self.next_sequence, essential=True)
            active = self._active
            assert active is not None  # noqa: S101  # _roll has set it
            try:  # others may publish it at this moment: an earlier position is as good
                run = self._pending[0]
            except IndexError:
                return Position(active.segment.number, active.size)
            return Position(run.segment, run.start)

    def remove(self, numbers: Iterable[int]) -> None:
        """Delete these segments.

        :raises OSError: one could not be deleted; the rest are.
        """
        failed: OSError | None = None
        directories = set()
        for number in numbers:
            with self._state:
                segment = self.segments.get(number)
            if segment is None:
                continue
            with self._reading:
                file = self._files.pop(number, None)
                if file is not None:
                    self._disk.close(file)
            try:
                self._disk.unlink(segment.path)
            except FileNotFoundError:
                pass
            except OSError as error:
                failed = error
                continue
            directories.add(os.path.dirname(segment.path))  # noqa: PTH120
            with self._state:
                del self.segments[number]
        for directory in directories:
            self._disk.sync_directory(directory)
        if failed is not None:
            raise failed

    @property
    def unsynced_bytes(self) -> int:
        """Bytes written and not known to be on the disk."""
        with self._writing:
            writers = [*self._dirty, *([] if self._active is None else [self._active])]
            return sum(writer.size - writer.synced for writer in writers)

    def refuse(self) -> None:
        """Write no more transactions."""
        with self._writing:
            self._closed = True

    def close_in_child(self) -> None:
        """Give all files back, in a forked child, where a thread of the parent may hold any lock."""
        for writer in [*self._dirty, *([] if self._active is None else [self._active])]:
            writer.close()
        for file in self._files.values():
            self._disk.close(file)

    def close(self) -> None:
        """Give all files back; the caller has synced, or does not want to."""
        with self._writing:
            for writer in [*self._dirty, *([] if self._active is None else [self._active])]:
                writer.close()
            self._dirty, self._active = [], None
        with self._reading:
            for file in self._files.values():
                self._disk.close(file)
            self._files.clear()

    def _io_error(self, what: str, error: BaseException) -> ChannelIOError:
        number = getattr(error, "errno", None) or errno.EIO
        message = f"{what}: {error}. Nothing of it is stored; look at the disk, then try again"
        return ChannelIOError(self._name, message, number)


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _span(entries: Sequence[Entry], start: int) -> int:
    """Where the entries end that can be read in one go with the one at ``start``."""
    segment, begin, before = entries[start].segment, entries[start].offset, entries[start].offset
    stop = start + 1
    while stop < len(entries):
        entry = entries[stop]
        end = entry.offset + FRAME_SIZE + entry.length
        if entry.segment != segment or entry.offset < before or end - begin > _SPAN:
            break
        before, stop = entry.offset, stop + 1
    return stop
