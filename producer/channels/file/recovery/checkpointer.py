"""Checkpointer: writes down from time to time what is in the queue, and deletes the segments that nobody needs then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ....model.errors import ChannelError
from ....runtime.clock import Clock
from ....runtime.loggers import get_logger
from ..log.log import Log
from ..log.run import Mark, Run
from ..queue.event_queue import Columns
from ..queue.ledger import Ledger
from ..store.disk import Disk
from ..store.format import Live
from ..store.segments import Segments
from ..store.space import Space
from . import checkpoint as checkpoints
from . import quarantine

_log = get_logger("loghub.channel")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a checkpoint is made of.

    :ivar changes: the state of changes.
    :ivar mark: where the log is to be read from.
    :ivar events: those before it that are in the channel.
    :ivar data: the checkpoint's bytes.
    """

    changes: int
    mark: Mark
    events: Columns
    data: bytes


class Checkpointer:
    """Writes the checkpoints of one channel; as long as nothing can be kept aside of a damaged segment it writes none,
    so that the segment stays, and is found damaged by the next process, too.

    :param uncopied: knows such segments.
    :param check_owned: raises if the directories are not the channel's any more.
    :param dual: keep a second copy.
    :param generation: that of the checkpoint that was found.
    :ivar lock: held while one is written; guards all that is in here.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        directory: str,
        *,
        ledger: Ledger,
        log: Log,
        segments: Segments,
        space: Space,
        uncopied: quarantine.Uncopied,
        check_owned: Callable[[], object],
        dual: bool,
        generation: int,
        clock: Clock,
    ) -> None:
        self._disk, self._name, self._directory = disk, name, directory
        self._ledger, self._journal, self._segments, self._space = ledger, log, segments, space
        self._uncopied, self._check_owned, self._dual, self._clock = uncopied, check_owned, dual, clock
        self._copies = (checkpoints.NAME, checkpoints.BACKUP_NAME) if dual else (checkpoints.NAME,)
        self.lock = threading.Lock()
        self._generation = generation
        self._written = -1

    def write(self, *, force: bool) -> bool:
        """Write one, if anything has changed; called with :attr:`lock` held.

        :param force: also if nothing has changed.
        :returns: whether one was written; an error is logged and counted, and the one before still holds.
        """
        self._ledger.return_aside()
        try:
            self._check_owned()
            if not force and self._ledger.changes == self._written:
                return False
            self._write()
        except (OSError, ChannelError) as error:
            self._ledger.add("checkpoint_errors", 1)
            _log.error("channel %s: a checkpoint could not be written: %s", self._name, error)
            return False
        self._space.keep_reserve()
        return True

    def _write(self) -> None:
        self._uncopied.keep_all()
        seen = self._look()
        if self._unneeded(seen):
            self._say_what_lives(seen)
        backup_error = self._put(seen.data)
        self._written = seen.changes
        self._ledger.add("checkpoints", 1)
        if backup_error is not None:
            # The older copy still needs all segments that it knows.
            self._ledger.add("checkpoint_backup_errors", 1)
            _log.error("channel %s: the second copy of a checkpoint could not be written: %s", self._name, backup_error)
            return
        while unneeded := self._unneeded(seen):  # some are needed until others are gone
            self._segments.remove(unneeded)

    def _unneeded(self, seen: _Seen) -> list[int]:
        return self._segments.unneeded(seen.events.segments(), seen.mark.position.segment)

    def _say_what_lives(self, seen: _Seen) -> None:
        """Segments are to be deleted whose Takes tell that events of other segments are gone: say it once more."""
        ranges = seen.events.ranges()
        firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
        live = Live(seen.mark.transaction, seen.mark.sequence, firsts, lasts)
        self._journal.commit(Run(live=live, time=self._clock.time()))
        self._journal.sync()

    def _look(self) -> _Seen:
        """What is there now, and on the disk.

        The sync comes last: whatever the look has seen, events put and takes committed meanwhile included, is on the
        disk then, and so is the position. A sync that failed has moved what it did not bring to the disk.
        """
        while True:
            poisoned = self._journal.poisoned
            seen = self._snapshot(self._journal.mark())
            self._journal.sync()
            if self._journal.poisoned == poisoned:
                return seen

    def _snapshot(self, mark: Mark) -> _Seen:
        salts = {segment.number: segment.header.salt for segment in self._segments.all()}
        with self._ledger.lock:
            changes = self._ledger.changes
            events = self._ledger.queue.snapshot(mark.position.pointer)
        self._generation += 1
        checkpoint = checkpoints.Checkpoint(
            generation=self._generation,
            position=mark.position,
            next_sequence=self._journal.next_sequence,
            next_transaction=self._journal.next_transaction,
            segments=salts,
            events=events,
        )
        return _Seen(changes, mark, events, checkpoints.encode(checkpoint))

    def _put(self, data: bytes) -> OSError | None:
        """Write all copies; why one other than the first could not be written."""
        try:
            backup_error = checkpoints.write_both(self._disk, self._directory, self._copies, data)
        except OSError:
            if not self._space.give_up_reserve():
                raise
            backup_error = checkpoints.write_both(self._disk, self._directory, self._copies, data)
        if not self._dual:
            checkpoints.remove_backup(self._disk, self._directory)
        return backup_error
