"""Admission: the one entry for records into a pipeline.

A log, a list, many logs, a slice of a table, or an event of a channel arrives as pieces. Each piece is checked, and
takes its memory and its place in the batch of its stream in one step. It waits for memory only if that step finds too
little. All waits of one piece share one deadline. A quota for each stream would belong here.
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
from .batching.batch import MAX_BATCH_OVERHEAD, ProducerBatch, Recipient, overhead_of_batch
from .batching.cut import CutRule
from .batching.memory import MemoryBudget, Reservation
from .batching.open_records import RECORD_OVERHEAD, OpenRecords
from .batching.ready_batches import ReadyBatches
from .batching.unconfirmed import SentBefore


class Threads(Protocol):
    """The threads of a pipeline, as far as admission needs them.

    :ivar late: True if the threads could not start; the sending thread then does their work.
    """

    late: bool

    def start(self) -> None:
        """Start the threads, once; called before the first record is accepted."""

    def hurry(self) -> None:
        """Seal and send all open batches soon."""

    def watch(self) -> None:
        """Wake the mover so that it recomputes the next linger deadline."""

    def on_handler_thread(self) -> bool:
        """True if the caller is a callback."""

    def work(self) -> None:
        """Do the threads' work on the caller's thread."""


class Admission:
    """The entry of a pipeline.

    :param sink: gives the size of a batch's body without records.
    :param ready: the queue for sealed batches.
    :param threads: the threads of the pipeline.
    :param kept: True if each record has an origin; records then enter by :meth:`feed`.
    :ivar started: True if the threads were started.
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
        #: A record within this size, and within the logs of a batch, needs no further check.
        self._surely_fits = min(config.total_size_in_bytes - MAX_BATCH_OVERHEAD, MAX_BATCH_SIZE_IN_BYTES // 2)
        self.started = False

    # The entries.

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
        """Accept pieces one after the other, each as soon as it exists.

        :raises ProducerError: the error's ``accepted`` and ``accepted_logs`` say what was accepted.
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

    def feed(
        self, piece: Piece, recipient: Recipient, *, number: int | None = None, before: SentBefore | None = None
    ) -> None:
        """Take a record from a channel; wait for memory without a limit.

        A record that is larger than the whole budget was accepted under a larger one; it gets all of the memory.

        :param number: the piece's sequence number, if the caller of ``send`` chose it.
        :param before: the key and number of its batch before a restart, which is rebuilt; None if it was in none.
        :raises ProducerClosedError: ``close`` has begun to leave records in the channel.
        :raises StreamStoppedError: a batch of the ordered stream failed permanently: the record stays in the channel.
        """
        stopped = self.accumulator.stopped(piece.key)
        if stopped is not None:
            raise stopped  # before any wait for memory
        self._place(piece, recipient, patient=True, number=number, before=before)
        self._ready.wake()
        self._wake_mover()

    def open_records(self, future: SendFuture) -> OpenRecords | None:
        """Return the open batch that took a send, for the next logs of its stream; None if it is not open any more."""
        batch = future._holder
        return batch.open if isinstance(batch, ProducerBatch) and not self._threads.late else None

    # Their common steps.

    def check_size(self, piece: Piece) -> None:
        """Raise if a piece could never be accepted; nothing is taken.

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
        # A tail is small: it is computed only for large records.
        if len(record) > MAX_BATCH_SIZE_IN_BYTES // 2:
            size = len(record) + self._sink.tail_size(key, "F" * 33)
            if size > MAX_BATCH_SIZE_IN_BYTES:
                raise LogSizeTooLargeError(size, MAX_BATCH_SIZE_IN_BYTES, "one batch with this log or list")

    def _place(
        self,
        piece: Piece,
        recipient: Recipient,
        *,
        patient: bool = False,
        number: int | None = None,
        before: SentBefore | None = None,
    ) -> SendFuture:
        """Put a piece into a batch of its stream; wait for memory if needed.

        :param patient: True to wait for memory without a limit.
        :param number: as in :meth:`LogAccumulator.add`, as is ``before``.
        """
        accumulator, memory = self.accumulator, None
        draft = None if accumulator.takes(piece.key) else accumulator.draft(piece.key)
        try:
            while True:
                placed = accumulator.add(piece, recipient, draft, memory, number=number, before=before)
                if isinstance(placed, SendFuture):
                    return placed
                if placed:
                    if memory is None:
                        memory = Reservation(self.budget, None if patient else self.max_block())
                    self._acquire(memory, placed)
                draft = accumulator.draft(piece.key)
        finally:
            if memory is not None:
                memory.end()

    def max_block(self) -> float | None:
        """Return the seconds that this thread's send may wait; None to wait forever."""
        # A callback does not wait: the callbacks after it may be what makes room.
        return 0.0 if self._threads.on_handler_thread() else send_timeout.or_else(self._max_block)

    def _after(self) -> None:
        self._ready.wake()
        self._wake_mover()
        if self._threads.late:
            self._threads.work()

    def _wake_mover(self) -> None:
        """Wake the mover if a batch may have been opened that it would seal too late."""
        if self.accumulator.unwatched:
            self._threads.watch()

    def _acquire(self, memory: Reservation, amount: int) -> None:
        """Make ``memory`` hold ``amount`` bytes, or the whole budget if that is less; wait for them.

        :raises SendTimeoutError: not enough memory became free before the deadline.
        :raises ProducerClosedError: the producer closes.
        """
        budget = self.budget
        amount = min(amount, budget.limit)
        self._make_room(amount)
        if not memory.reserve(amount):
            age = self.accumulator.oldest_age()
            raise SendTimeoutError(
                limit=budget.limit, used=budget.used, wanted=amount, oldest_age=age, waited=memory.waited
            )

    def _make_room(self, wanted: int) -> None:
        """Seal the open batches if their memory is needed, so that many streams need no more memory than a few."""
        if not self.budget.needs_open_batches(wanted):
            return
        all_open = self.accumulator.all_open
        self._threads.hurry()
        if all_open:  # nothing else will ever return memory
            self.accumulator.abandon_forming()

    def close(self) -> None:
        """Refuse further records, also those that wait for memory, and seal all batches."""
        self.budget.close()
        self.accumulator.close()


def attach_accepted(error: BaseException, futures: Sequence[SendFuture], logs: int) -> None:
    """Add to an error what was accepted by the same call before it."""
    if isinstance(error, ProducerError):
        error.accepted, error.accepted_logs = futures, logs
    elif futures:
        accepted = f"{counted(logs, 'log')}, in {counted(len(futures), 'piece')}, had been accepted before"
        error.add_note(f"{accepted}; {'it is' if logs == 1 else 'they are'} delivered")
