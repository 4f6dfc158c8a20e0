"""Checkpointer: write checkpoints of the queue, and delete the segments that they make unnecessary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....model.errors import ChannelError
from ....runtime.clock import Clock
from ....runtime.locks import Lock
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
    """Snapshot that a checkpoint is made of.

    :ivar changes: the ledger's count of changes.
    :ivar mark: the log position to replay from.
    :ivar events: the events before it that are in the channel.
    :ivar data: the encoded checkpoint.
    """

    changes: int
    mark: Mark
    events: Columns
    data: bytes


class Checkpointer:
    """Writes the checkpoints of one channel.

    It writes none while a damaged segment could not be copied to quarantine. So the segment stays, and the next process
    finds the damage, too.

    :param uncopied: the damaged segments without a copy.
    :param check_owned: raises if the directories no longer belong to the channel.
    :param dual: True to keep a second copy.
    :param generation: the generation of the recovered checkpoint.
    :ivar lock: held while one is written; guards everything here.
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
        self.lock = Lock()
        self._generation = generation
        self._written = -1

    def write(self, *, force: bool) -> bool:
        """Write a checkpoint, if anything has changed; called with :attr:`lock` held.

        :param force: True to write one even if nothing has changed.
        :returns: True if one was written. A failure is logged and counted, and the previous checkpoint remains valid.
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
            self._write_live(seen)
        backup_error = self._put(seen.data)
        self._written = seen.changes
        self._ledger.add("checkpoints", 1)
        if backup_error is not None:
            # The older copy still needs all its segments.
            self._ledger.add("checkpoint_backup_errors", 1)
            _log.error("channel %s: the second copy of a checkpoint could not be written: %s", self._name, backup_error)
            return
        while unneeded := self._unneeded(seen):  # some become unneeded only when others are gone
            self._segments.remove(unneeded)

    def _unneeded(self, seen: _Seen) -> list[int]:
        return self._segments.unneeded(seen.events.segments(), seen.mark.position.segment)

    def _write_live(self, seen: _Seen) -> None:
        """Write a Live before segments are deleted whose Takes concern events of other segments."""
        ranges = seen.events.ranges()
        firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
        live = Live(seen.mark.transaction, seen.mark.sequence, firsts, lasts)
        self._journal.commit(Run(live=live, time=self._clock.time()))
        self._journal.sync()

    def _look(self) -> _Seen:
        """Take a snapshot of the queue that is wholly on the disk.

        The sync comes last. So everything in the snapshot is on the disk, including puts and takes committed meanwhile,
        and so is the position. A failed sync moves records, so the snapshot is taken again.
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
        """Write all copies; return why one other than the first could not be written."""
        try:
            backup_error = checkpoints.write_both(self._disk, self._directory, self._copies, data)
        except OSError:
            if not self._space.release_reserve():
                raise
            backup_error = checkpoints.write_both(self._disk, self._directory, self._copies, data)
        if not self._dual:
            checkpoints.remove_backup(self._disk, self._directory)
        return backup_error
