"""Admission: the one door through which records enter a pipeline.

Whatever is sent (a log, a list, many logs, a slice of a table, an event out of a channel) comes as pieces. Each is
checked, takes its memory and its place in the batch of its stream in one step, and waits for memory only where that
step finds too little. All waits of one piece, or of one slice, have one deadline. A quota of a stream belongs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES, ProducerConfig
from ..model.errors import LogSizeTooLargeError, MaxBatchCountExceedError, ProducerError, SendTimeoutError
from ..model.futures import SendFuture
from ..model.interfaces import Record, Sink
from ..model.records import StreamKey
from ..model.results import Callback
from ..runtime import send_timeout
from ..runtime.clock import Clock
from ..runtime.gil import give_way
from ..text.plural import counted
from .batching.accumulator import LogAccumulator, Piece
from .batching.batch import (
    BATCH_OVERHEAD,
    MAX_BATCH_OVERHEAD,
    ProducerBatch,
    Recipient,
    overhead_of_batch,
)
from .batching.cut import CutRule
from .batching.memory import MemoryBudget, Reservation
from .batching.open_records import RECORD_OVERHEAD, OpenRecords
from .batching.ready_batches import ReadyBatches
from .batching.unconfirmed import SentBefore


class UnencodedLogs(Protocol):
    """Logs that are encoded when there is memory for them.

    :ivar estimate: their size once they are encoded, about, bytes.
    """

    estimate: int

    def encode(self) -> Sequence[Piece]:
        """Return the pieces, each of them checked by :meth:`Admission.check_size`."""


class Threads(Protocol):
    """What works behind the door.

    :ivar late: the threads could not be started: who sends does their work.
    """

    late: bool

    def start(self) -> None:
        """Begin to work, once; called before the first record is taken."""

    def hurry(self) -> None:
        """Seal and hand on all batches that take records, soon."""

    def watch(self) -> None:
        """Look at once how long the open batches may linger."""

    def may_wait(self) -> bool:
        """Whether the caller's thread may wait for memory: not if it is one that gives memory back."""

    def work(self) -> None:
        """Do on the caller's thread what the threads would be doing now, in their place."""


class Admission:
    """See the module.

    :param sink: knows the size of a batch's body without records.
    :param ready: takes the sealed batches.
    :param threads: what works behind the door.
    :param kept: True if each record has an origin; it is :meth:`feed` then that accepts records.
    :ivar started: whether the threads were told to start.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        sink: Sink,
        ready: ReadyBatches,
        threads: Threads,
        *,
        kept: bool = False,
    ) -> None:
        self._sink = sink
        self._ready = ready
        self._threads = threads
        self._max_block = None if config.max_block_ms < 0 else config.max_block_ms / 1000
        self.cut = CutRule.of(config)
        self.budget = MemoryBudget(config.total_size_in_bytes, clock)
        self.accumulator = LogAccumulator(config, clock, sink, self.budget, self.cut, ready, kept=kept)
        #: What owes no more than this, in logs that a batch may hold, needs no closer look.
        self._surely_fits = min(config.total_size_in_bytes - MAX_BATCH_OVERHEAD, MAX_BATCH_SIZE_IN_BYTES // 2)
        self.started = False

    # The ways in.

    def accept(self, key: StreamKey, record: Record, logs: int, callback: Callback | None) -> SendFuture:
        piece = Piece(key, record, logs)
        if logs > 1 or len(record) + RECORD_OVERHEAD > self._surely_fits:
            self.check_size(piece)
        if not self.started:
            self._threads.start()
        give_way()
        future = self._place(piece, callback)
        self._after()
        return future

    def accept_pieces(self, pieces: Iterable[Piece], callback: Callback | None) -> list[SendFuture]:
        """As :meth:`accept`, for one after the other, each as soon as there is one.

        :raises ProducerError: the error's ``accepted`` and ``accepted_logs`` say how far it came.
        """
        futures: list[SendFuture] = []
        logs = 0
        try:
            for piece in pieces:
                futures.append(self.accept(*piece, callback))
                logs += piece.logs
        except BaseException as error:
            attach_accepted(error, futures, logs)
            raise
        return futures

    def accept_encoded(self, logs: UnencodedLogs, callback: Callback | None) -> list[SendFuture]:
        """Accept logs that are encoded once there is memory for them; all waits for it have one deadline.

        :raises ProducerError: as :meth:`accept_pieces`.
        """
        if not self.started:
            self._threads.start()
        give_way()
        futures: list[SendFuture] = []
        accepted, estimate = 0, logs.estimate
        with Reservation(self.budget, send_timeout.or_else(self._max_block)) as memory:
            self._acquire(
                memory, estimate + estimate // 16 + BATCH_OVERHEAD
            )  # the objects of the sends need memory as well
            pieces = logs.encode()
            try:
                for piece in pieces:
                    futures.append(self._place(piece, callback, memory))
                    accepted += piece.logs
                    self._after()
            except ProducerError as error:
                attach_accepted(error, futures, accepted)
                raise
        return futures

    def feed(
        self, piece: Piece, recipient: Recipient, *, number: int | None = None, before: SentBefore | None = None
    ) -> None:
        """Take over a record of a channel; waits for memory as long as it takes.

        One that was accepted when there was more memory than now gets all that there is.

        :param number: the piece's, if the caller of ``send`` owned the numbers.
        :param before: what the batch was sent under that it was in before a restart, and has to be in again; None if
            it was in none.
        :raises ProducerClosedError: after ``close`` began to leave records in the channel.
        :raises StreamStoppedError: a batch of the ordered stream has failed for good: the record stays there.
        """
        stopped = self.accumulator.stopped(piece.key)
        if stopped is not None:
            raise stopped  # before any memory is waited for
        self._place(piece, recipient, patient=True, number=number, before=before)
        self._ready.wake()
        self._be_watched()

    def open_records(self, future: SendFuture) -> OpenRecords | None:
        """Where the next logs of a send's stream go without a closer look: the batch that took it, while that is open;
        None if there is no such place.
        """
        batch = future._holder
        return batch.open if isinstance(batch, ProducerBatch) and not self._threads.late else None

    # What all of them do.

    def check_size(self, piece: Piece) -> None:
        """Whether a piece could be accepted at all; nothing is taken.

        :raises LogSizeTooLargeError: as :meth:`accept`.
        :raises MaxBatchCountExceedError: as :meth:`accept`.
        """
        key, record, logs = piece
        if logs <= MAX_BATCH_COUNT and len(record) + RECORD_OVERHEAD <= self._surely_fits:
            return
        charge, limit = len(record) + RECORD_OVERHEAD + overhead_of_batch(key), self.budget.limit
        if charge > limit:
            what = f"memory for {counted(len(record), 'byte')} of logs and their overhead, against total_size_in_bytes"
            raise LogSizeTooLargeError(charge, limit, what)
        if logs > MAX_BATCH_COUNT:
            raise MaxBatchCountExceedError(logs, MAX_BATCH_COUNT)
        # A tail is small; it is not worth computing for ordinary records.
        if len(record) > MAX_BATCH_SIZE_IN_BYTES // 2:
            size = len(record) + self._sink.tail_size(key, "F" * 33)
            if size > MAX_BATCH_SIZE_IN_BYTES:
                raise LogSizeTooLargeError(size, MAX_BATCH_SIZE_IN_BYTES, "one batch with this log or list")

    def _place(
        self,
        piece: Piece,
        recipient: Recipient,
        memory: Reservation | None = None,
        *,
        patient: bool = False,
        number: int | None = None,
        before: SentBefore | None = None,
    ) -> SendFuture:
        """Put a piece into a batch of its stream; wait for memory where it is needed.

        :param memory: where its memory comes from, as far as that reaches; None to reserve the piece's own.
        :param patient: wait without a limit for its own.
        :param number: as :meth:`LogAccumulator.add` takes it, as is the next.
        """
        accumulator, own = self.accumulator, None
        draft = None if accumulator.takes(piece.key) else accumulator.draft(piece.key)
        try:
            while True:
                placed = accumulator.add(piece, recipient, draft, memory, number=number, before=before)
                if isinstance(placed, SendFuture):
                    return placed
                if placed:
                    if memory is None:
                        max_block = None if patient else send_timeout.or_else(self._max_block)
                        memory = own = Reservation(self.budget, max_block)
                    self._acquire(memory, placed)
                draft = accumulator.draft(piece.key)
        finally:
            if own is not None:
                own.end()

    def _after(self) -> None:
        self._ready.wake()
        self._be_watched()
        if self._threads.late:
            self._threads.work()

    def _be_watched(self) -> None:
        """A batch may have been opened, and the mover may look for it late."""
        if self.accumulator.unwatched:
            self._threads.watch()

    def _acquire(self, memory: Reservation, amount: int) -> None:
        """Have ``memory`` hold ``amount`` bytes, or all that there are if that is less; wait for them.

        :raises SendTimeoutError: not enough became free before its deadline.
        :raises ProducerClosedError: the producer closes.
        """
        budget = self.budget
        amount = min(amount, budget.limit)
        if memory.reserve(amount):
            return
        self._make_room(amount)
        if not (self._threads.may_wait() and memory.wait(amount)):
            age = self.accumulator.oldest_age()
            raise SendTimeoutError(
                limit=budget.limit, used=budget.used, wanted=amount, oldest_age=age, waited=memory.waited
            )

    def _make_room(self, wanted: int) -> None:
        """Seal the open batches if what they hold is needed, so that many streams need no more memory than a few."""
        if not self.budget.needs_open_batches(wanted):
            return
        all_open = self.accumulator.all_open
        self._threads.hurry()
        if all_open:  # nothing else will ever give memory back
            self.accumulator.abandon_forming()

    def close(self) -> None:
        """Refuse records from now on, and those that wait for memory; submit all batches."""
        self.budget.close()
        self.accumulator.close()


def attach_accepted(error: BaseException, futures: Sequence[SendFuture], logs: int) -> None:
    """Let an error that ended a call of many pieces say what was accepted before it."""
    if isinstance(error, ProducerError):
        error.accepted, error.accepted_logs = futures, logs
    elif futures:
        said = f"{counted(logs, 'log')}, in {counted(len(futures), 'piece')}, had been accepted before"
        error.add_note(f"{said}; {'it is' if logs == 1 else 'they are'} delivered")
