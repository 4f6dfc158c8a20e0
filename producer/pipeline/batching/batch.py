"""ProducerBatch: the records that travel together, their state, and their one result.

A batch has one owner at a time, who alone moves it to its next state::

    OPEN ──► QUEUED ──► SENDING ──► SUCCEEDED
    (accumulator) ▲        │ ├────► FAILED
                  │        │ └────► SPLIT      its records went to two other batches
                  └─ WAITING (retry queue)

``close`` at its deadline, and ``fork`` in the child, fail a batch without owning it; that is why a transition tells
whether it happened: a batch in a final state never changes again.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol, Self

from ...config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES
from ...errors import AttemptError
from ...forks import Stage, call_in_child
from ...interfaces import Payload, Record, SequenceId
from ...records import SEQUENCED, StreamKey
from ...results import (
    Attempt,
    Callback,
    Result,
    SendFuture,
)
from ...wire.shape import Heads, Run
from ..sending.doubt import Doubt
from .memory import MemoryBudget, Reservation
from .stream_state import StreamState

if TYPE_CHECKING:
    from .open_run import OpenRun


class Origin(Protocol):
    """Where a record came from that is kept elsewhere; stands in place of the callback of its send, for a kind of
    batch that knows what to do with it.

    :ivar future: of its send, until a batch takes it over; None for a record that nobody asks about.
    """

    future: SendFuture | None


#: Who is to be told of a send's outcome.
Recipient = Callback | Origin | None

#: Memory accounted for each ``send`` besides its bytes: the objects that carry it. Measured on CPython 3.11.
RECORD_OVERHEAD = 320
#: Memory accounted for each batch besides its records.
BATCH_OVERHEAD = 4096

#: The largest result of :func:`overhead_of_batch` for a stream key that ``Producer.stream`` made.
MAX_BATCH_OVERHEAD = BATCH_OVERHEAD + 4 * 4 * 1024


def overhead_of_batch(key: StreamKey) -> int:
    """Memory accounted for a batch of this stream besides its records: its objects, and the texts that name the
    stream.
    """
    texts = (key.project, key.logstore, key.topic, key.source, *chain.from_iterable(key.tags))
    # A character takes up to four bytes; what is short is in BATCH_OVERHEAD.
    return BATCH_OVERHEAD + 4 * max(0, sum(map(len, texts)) - 256)


class BatchState(enum.Enum):
    """Where a batch is."""

    OPEN = "open"
    QUEUED = "queued"
    SENDING = "sending"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SPLIT = "split"

    @property
    def final(self) -> bool:
        """Whether the batch is settled, or has no records any more."""
        return self in _FINAL


_FINAL = frozenset({BatchState.SUCCEEDED, BatchState.FAILED, BatchState.SPLIT})

#: From each state, where a batch may go next.
TRANSITIONS: dict[BatchState, frozenset[BatchState]] = {
    BatchState.OPEN: frozenset({BatchState.QUEUED, BatchState.FAILED}),
    BatchState.QUEUED: frozenset({BatchState.SENDING, BatchState.FAILED}),
    BatchState.SENDING: _FINAL | {BatchState.WAITING},
    BatchState.WAITING: frozenset({BatchState.QUEUED, BatchState.FAILED}),
    BatchState.SUCCEEDED: frozenset(),
    BatchState.FAILED: frozenset(),
    BatchState.SPLIT: frozenset(),
}


# Guards the birth of a batch's event, so that two threads that wait at the same time share one.
_birth = threading.Lock()


def renew_locks_in_child() -> None:
    """Replace the module's lock, which a thread of the parent may have held."""
    global _birth  # noqa: PLW0603  # a fork is process-wide
    _birth = threading.Lock()


call_in_child(renew_locks_in_child, Stage.LOCKS)


class ProducerBatch:
    """Records of one stream, in the order of their sends.

    :param serial: increasing with the time of creation; the halves of a split batch keep that of the whole.
    :param tail_size: bytes of the LogGroup that are not records.
    """

    __slots__ = (
        "_attempts_kept",
        "_event",
        "_lock",
        "attempt_count",
        "attempts",
        "claimed_by",
        "created_at",
        "doubt",
        "first_attempt_at",
        "forming",
        "futures",
        "heeded",
        "held",
        "key",
        "last_error",
        "log_count",
        "logs_of_send",
        "may_have_been_stored",
        "noted",
        "pack_id",
        "payload",
        "records",
        "result",
        "retry_count",
        "run",
        "same_error_count",
        "sequence",
        "serial",
        "size",
        "state",
        "stream",
        "tail_size",
    )

    def __init__(
        self,
        key: StreamKey,
        *,
        stream: StreamState,
        serial: int,
        pack_id: str | None,
        tail_size: int,
        created_at: float,
        max_reserved_attempts: int,
    ) -> None:
        self.key = key
        self.stream = stream
        self.serial = serial
        self.pack_id = pack_id
        self.created_at = created_at
        self.records: list[Record | Run] = []
        #: Where it takes logs one by one, if it does: the last of the records.
        self.run: OpenRun | None = None
        self.futures: list[SendFuture] = []
        #: Whether somebody may have to be told of the result, besides those who wait.
        self.heeded = False
        #: Logs of the sends that hold more than one, by their position.
        self.logs_of_send: dict[int, int] = {}
        self.tail_size = tail_size
        self.size = tail_size
        self.log_count = 0
        #: Bytes taken from the memory budget and not yet given back.
        self.held = 0
        self.payload: Payload | None = None
        self._lock = threading.Lock()  # guards state and result
        self.state = BatchState.OPEN
        self.claimed_by: int | None = None
        self.result: Result | None = None
        self._event: threading.Event | None = None
        # Touched by the owner only.
        self.attempts: tuple[Attempt, ...] = ()
        self.attempt_count = 0
        #: Attempts that were followed, or are to be followed, by another of the same batch.
        self.retry_count = 0
        self._attempts_kept = max_reserved_attempts
        self.may_have_been_stored = False
        self.first_attempt_at = 0.0
        self.last_error: type[AttemptError] | None = None
        self.same_error_count = 0
        #: Of an idempotent batch; whether the channel knows of it; what requests under it may have been stored.
        self.sequence: SequenceId | None = None
        self.noted = False
        self.doubt: Doubt[Self] | None = None
        #: It is being formed anew after a restart: only the feeder says when it is complete.
        self.forming = False

    def has_room(self, size: int, logs: int) -> bool:
        """Whether a send of ``size`` bytes and ``logs`` logs stays within the limits of a batch."""
        return self.size + size <= MAX_BATCH_SIZE_IN_BYTES and self.log_count + logs <= MAX_BATCH_COUNT

    def add(
        self,
        record: Record,
        logs: int,
        recipient: Recipient,
        charge: int,
        budget: MemoryBudget,
        memory: Reservation | None = None,
    ) -> SendFuture:
        """Append one send, and owe its memory from now on; called by the accumulator under its lock, which is the
        budget's.

        :param record: its encoded logs, joined.
        :param logs: how many logs they are.
        :param recipient: the callback of the send.
        :param charge: the memory that it takes, bytes: from ``memory``, and what that lacks from ``budget``, which has
            it.
        """
        future = self._future_of(recipient)
        if self.run is not None:
            self.end_run()
        count, position, size = len(self.futures), len(self.records), len(record)
        try:
            self.futures.append(future)
            self.records.append(record)
        except BaseException:  # raised by a signal handler, which runs after a call
            del self.futures[count:], self.records[position:]
            raise
        # No calls from here on: all of this happens.
        if logs != 1:
            self.logs_of_send[count] = logs
        if recipient is not None:
            self.heeded = True
        self.size += size
        self.log_count += logs
        self.held += charge
        if memory is None:
            budget.used += charge
        else:
            reserved = charge if charge < memory.held else memory.held
            memory.held -= reserved
            budget.reserved -= reserved
            budget.used += charge - reserved
        return future

    def _future_of(self, recipient: Recipient) -> SendFuture:
        return SendFuture(self, recipient)  # type: ignore[arg-type]  # an origin is for another kind of batch

    def begin_records(self, heads: Heads) -> list[str]:
        """Where the fields of logs with these heads go from now on; called as :meth:`end_run` is."""
        self._drop_empty_records()
        records = Run(heads)
        self.records.append(records)
        return records.fields

    def end_run(self) -> None:
        """Take no more logs by the run; called by the accumulator under its lock."""
        run = self.run
        if run is None:
            return
        # Forgotten only when it is closed: a fork, or an interrupt, may come in between.
        run.close()
        self.run = None
        self._drop_empty_records()

    def _drop_empty_records(self) -> None:
        last = self.records[-1] if self.records else None
        if isinstance(last, Run) and not last.fields:
            self.records.pop()

    def take_over(self, record: Record, future: SendFuture, logs: int) -> None:
        """Append a send that has a future."""
        self.heeded = True  # perhaps
        if logs != 1:
            self.logs_of_send[len(self.futures)] = logs
        self.records.append(record)
        self.futures.append(future)
        self.size += len(record)
        self.log_count += logs

    def move(self, to: BatchState) -> bool:
        """Go to another state; False if somebody settled the batch before.

        :raises RuntimeError: the table has no such transition: a bug.
        """
        with self._lock:
            return self._move(to)

    def claim(self) -> bool:
        """Go from ``OPEN`` to ``QUEUED``; False if another thread did so before.

        A batch that left the accumulator may be found by ``flush`` before its sender hands it on.
        """
        with self._lock:
            if self.state is not BatchState.OPEN:
                return False
            self.claimed_by = threading.get_ident()
            return self._move(BatchState.QUEUED)

    def settle(self, to: BatchState, result: Result) -> bool:
        """Go to a final state with its result; False if somebody settled the batch before."""
        with self._lock:
            if not self._move(to):
                return False
            self.result = result
        self.wake()
        return True

    def _move(self, to: BatchState) -> bool:
        if self.state.final:
            return False
        if to not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a batch cannot go from {self.state.value} to {to.value}")
        self.state = to
        return True

    def wait(self, timeout: float | None) -> None:
        """See :class:`~producer.results.ResultHolder`."""
        with _birth:
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        if not self.state.final:
            event.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        """Let those go on who wait for the result: it is there, or is another batch's to give."""
        event = self._event
        if event is not None:
            event.set()

    def note_attempt(self, attempt: Attempt, error: AttemptError | None) -> None:
        """Remember an attempt, and how often its kind of error came in a row."""
        before = self.attempts[-1] if self.attempts else None
        if before is not None and before.error_message == attempt.error_message:
            # A server that is down says the same each time, to thousands of batches: one text for all attempts.
            attempt = dataclasses.replace(attempt, error_message=before.error_message)
        self.attempts = (*self.attempts, attempt)[-self._attempts_kept :]
        self.attempt_count += 1
        self.may_have_been_stored |= attempt.may_have_been_stored
        self.same_error_count = self.same_error_count + 1 if type(error) is self.last_error else 1
        self.last_error = type(error) if error is not None else None

    def outcome(self, *, successful: bool, last: Attempt | None = None) -> Result:
        """The result that the attempts so far, and ``last`` where it is given, amount to."""
        attempts = self.attempts if last is None else (*self.attempts, last)[-self._attempts_kept :]
        stored = self.may_have_been_stored or (last is not None and last.may_have_been_stored)
        return Result(
            successful=successful,
            attempts=attempts,
            attempt_count=self.attempt_count + (last is not None),
            may_have_been_stored=not successful and stored,
        )

    def abandon_in_child(self, result: Result) -> None:
        """Fail a batch that belongs to the parent of this process, so that nobody here waits for it.

        Takes no lock: the thread that held one may exist only in the parent.
        """
        if self.result is None:
            self.state, self.result = BatchState.FAILED, result
            self._event = None
            self.end_run()

    def take_sends(self) -> list[SendFuture]:
        """The futures, out of the batch; for the handler that settles them."""
        futures, self.futures = self.futures, []
        return futures

    def empty_half(self) -> Self:
        """A batch without records that takes over this one's stream, number and attempts; it is queued at once."""
        half = type(self)(
            self.key,
            stream=self.stream,
            serial=self.serial,
            pack_id=self.pack_id,
            tail_size=self.tail_size,
            created_at=self.created_at,
            max_reserved_attempts=self._attempts_kept,
        )
        half.attempts, half.attempt_count = self.attempts, self.attempt_count
        half.may_have_been_stored = self.may_have_been_stored
        half.retry_count, half.first_attempt_at = self.retry_count, self.first_attempt_at
        return half

    def encoded_records(self) -> list[Record]:
        """The records, each the bytes of one log or more."""
        records: list[Record] = []
        for record in self.records:
            if isinstance(record, Run):
                records += record.encode()
            else:
                records.append(record)
        return records

    def encode(self, payload: Payload) -> None:
        """The body is made: the records live on in it."""
        self.payload = payload
        self.records = []

    def rest(self) -> None:
        """The batch is about to wait for another attempt; called by its owner."""

    def share_with(self, halves: Sequence[ProducerBatch], middle: int) -> None:
        """The batch is cut: hand on what else belongs to its sends.

        :param middle: the sends that the first half took; 0 if the only send is cut itself.
        """

    @property
    def indivisible(self) -> bool:
        """Whether it must never be cut: it holds one piece, whose number was given by its sender."""
        return self.key.order.startswith(SEQUENCED)

    def shares_send(self, other: ProducerBatch) -> bool:  # noqa: ARG002  # behind a channel it matters
        """Whether both carry parts of the same send."""
        return False

    def heed(self, future: SendFuture) -> None:  # noqa: ARG002  # the batch holds all its futures anyway
        """See :class:`~producer.results.ResultHolder`."""
        self.heeded = True

    def drop_bytes(self) -> None:
        """Forget the bytes: they are settled, or other batches carry them."""
        self.payload = None
        self.records = []


def logs_of_sends(batch: ProducerBatch) -> Sequence[int]:
    """For each send in the batch, how many logs it holds."""
    return [batch.logs_of_send.get(position, 1) for position in range(len(batch.futures))]
