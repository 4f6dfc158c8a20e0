"""ProducerBatch: records that are sent together, their state, and their one result.

A batch has one owner at a time, and only the owner moves it to its next state::

    OPEN ──► QUEUED ──► SENDING ──► SUCCEEDED
    (accumulator) ▲        │ ├────► FAILED
                  │        │ └────► SPLIT      its records went to two other batches
                  └─ WAITING (retry queue)

``close`` at its deadline, and a fork in the child, fail a batch without owning it. So a transition reports whether it
happened, and a batch in a final state never changes again. The file is long because it holds everything that one lock
guards.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import chain
from typing import Protocol, Self

from ...model.futures import ResultHolder, SendFuture
from ...model.interfaces import Payload, Record, SequenceId
from ...model.records import IDEMPOTENT, SEQUENCED, StreamKey
from ...model.results import Callback, Result
from ...runtime.clock import Latch
from ...runtime.locks import Lock
from .attempt_history import NO_ATTEMPTS, AttemptHistory
from .open_records import ONE_LOG_EACH, OpenRecords, Sealed
from .stream_state import StreamState
from .unconfirmed import Unconfirmed


class Origin(Protocol):
    """The place, such as a channel, where the record of one send is kept until its batch is completed.

    It takes the place of the send's callback. A batch with origins keeps its records apart, since they may have to go
    to the dead letters. It drops the body made of them whenever it waits, so that memory holds them once.

    :ivar future: the future of the send, until a batch takes it over; None for a record without a future.
    """

    future: SendFuture | None

    def cut(self) -> None:
        """Count one more batch that carries a part of the record."""


#: The recipient of a send's outcome.
Recipient = Callback | Origin | None

#: Memory accounted for each batch besides its records, bytes.
BATCH_OVERHEAD = 4096

#: The largest result of :func:`overhead_of_batch` for a stream key that ``Producer.stream`` made.
MAX_BATCH_OVERHEAD = BATCH_OVERHEAD + 4 * 4 * 1024


def overhead_of_batch(key: StreamKey) -> int:
    """Return the memory accounted for a batch of this stream besides its records, bytes: its objects and the stream's
    names.
    """
    characters = len(key.project) + len(key.logstore) + len(key.topic) + len(key.source)
    if key.tags:
        characters += sum(map(len, chain.from_iterable(key.tags)))
    # A character takes up to four bytes; short names are included in BATCH_OVERHEAD.
    return BATCH_OVERHEAD if characters <= 256 else BATCH_OVERHEAD + 4 * (characters - 256)


class Parts(Protocol):
    """Where each send of a split batch is now.

    :ivar halves: the batches that it was split into.
    """

    @property
    def halves(self) -> Sequence[ProducerBatch]: ...

    def find(self, position: int) -> tuple[ResultHolder, int]:
        """Return the batch that holds the send at ``position``, and the position there."""


class BatchState(enum.Enum):
    """The state of a batch."""

    OPEN = "open"
    QUEUED = "queued"
    SENDING = "sending"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SPLIT = "split"

    __hash__ = object.__hash__  # the hash of an enum is a Python function, too slow here

    @property
    def final(self) -> bool:
        """True if the batch is completed, or has passed its records to its halves."""
        return self in _FINAL


_FINAL = frozenset({BatchState.SUCCEEDED, BatchState.FAILED, BatchState.SPLIT})

#: The states that may follow each state.
TRANSITIONS: dict[BatchState, frozenset[BatchState]] = {
    BatchState.OPEN: frozenset({BatchState.QUEUED, BatchState.FAILED}),
    BatchState.QUEUED: frozenset({BatchState.SENDING, BatchState.FAILED}),
    BatchState.SENDING: _FINAL | {BatchState.WAITING},
    BatchState.WAITING: frozenset({BatchState.QUEUED, BatchState.FAILED}),
    BatchState.SUCCEEDED: frozenset(),
    BatchState.FAILED: frozenset(),
    BatchState.SPLIT: frozenset(),
}


class ProducerBatch:
    """Records of one stream, in the order of their sends.

    :param serial: a number that increases with the time of creation; the halves of a split batch keep it.
    :param tail_size: bytes of the LogGroup that are not records.
    :param origins: the origins of its sends, in order; None for records that exist only in memory.
    """

    __slots__ = (
        "_held",
        "_lock",
        "_sealed",
        "_settled",
        "_watched",
        "callbacks",
        "created_at",
        "forming",
        "history",
        "key",
        "noted",
        "open",
        "origins",
        "pack_id",
        "part",
        "parts",
        "payload",
        "records",
        "result",
        "sequence",
        "serial",
        "state",
        "stream",
        "tail_size",
        "unconfirmed",
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
        history: AttemptHistory = NO_ATTEMPTS,
        origins: list[Origin] | None = None,
    ) -> None:
        self.key = key
        self.stream = stream
        self.serial = serial
        #: The path to a half of a split batch: 0 for the first half, 1 for the second, at each split.
        self.part: tuple[int, ...] = ()
        self.pack_id = pack_id
        self.created_at = created_at
        self.tail_size = tail_size
        self.origins = origins
        #: The records of an open batch. Sealing moves them to the attributes below, and sets this to None.
        self.open: OpenRecords | None = None
        self.records: Sequence[Record] = ()
        #: The callbacks by position of the send; shorter than the sends if the last ones have no callback.
        self.callbacks: Sequence[Callback | None] = ()
        self._sealed: Sealed | None = None
        self._held = 0
        self.payload: Payload | None = None
        self._lock = Lock()  # guards state, result, parts and the watched futures
        self.state = BatchState.OPEN
        self.result: Result | None = None
        #: The parts that hold the sends of a split batch; None for other batches.
        self.parts: Parts | None = None
        self._watched: dict[int, SendFuture] | None = None
        self._settled: Latch | None = None  # made for the first thread that waits
        # Used by the owner only.
        self.history = history  # shared until the seal: each object of each open batch costs the garbage collector time
        #: For an idempotent batch: its hash key and sequence number; whether the channel has stored these; and the
        #: requests that may have been stored.
        self.sequence: SequenceId | None = None
        self.noted = False
        self.unconfirmed: Unconfirmed[Self] | None = None
        #: True while a recovered batch is rebuilt: only the channel reader knows when it is complete.
        self.forming = False

    @property
    def size(self) -> int:
        """The size of the body, bytes."""
        counts = self.open or self._sealed
        return self.tail_size if counts is None else counts.size

    @property
    def log_count(self) -> int:
        """The number of logs."""
        counts = self.open or self._sealed
        return 0 if counts is None else counts.logs

    @property
    def sends(self) -> int:
        """The number of sends."""
        counts = self.open or self._sealed
        return 0 if counts is None else counts.sends

    @property
    def held(self) -> int:
        """Bytes taken from the memory budget and not yet returned."""
        records = self.open
        return self._held if records is None else records.spent

    @held.setter
    def held(self, amount: int) -> None:
        self._held = amount

    def has_room(self, size: int, logs: int) -> bool:
        """True if a send of ``size`` bytes and ``logs`` logs fits."""
        return self.open is not None and self.open.has_room(size, logs)

    def add(self, record: Record, logs: int, recipient: Recipient, charge: int) -> SendFuture | None:
        """Append one send, as :meth:`OpenRecords.append` does.

        :param recipient: the callback of the send, or its origin, whose future then belongs to this batch.
        """
        records, origins = self.open, self.origins
        if records is None:
            return None
        if origins is None:
            return records.append(record, logs, recipient, charge)  # type: ignore[arg-type]  # no origin
        if recipient is None or callable(recipient):
            raise TypeError("a record of a channel was added without its origin")  # a bug
        del origins[records.sends :]  # left by a record that was not added
        origins.append(recipient)
        added = records.append(record, logs, None, charge)
        if added is None:
            return None
        future, recipient.future = recipient.future, None
        if future is None:
            return added
        self.keep_future(added._position, future)
        future._position = added._position
        future._holder = self
        return future

    def seal(self) -> None:
        """Accept no more records; a second call changes nothing.

        Only the owner of an open batch calls this, and no other thread completes such a batch.
        """
        records = self.open
        if records is None:
            return
        self.fill(records.seal())
        self.state = BatchState.QUEUED
        self.open = None
        if self.origins is not None:
            del self.origins[self.sends :]
        records.forget()

    def fill(self, sealed: Sealed) -> None:
        """Take the contents of a sealed batch."""
        # Copy the counts without the records: a future that the user keeps refers to this batch long after its bytes
        # are dropped.
        counts = Sealed((), sealed.size, sealed.logs, sealed.sends, sealed.spent, (), sealed.logs_of_send)
        self.records, self.callbacks = sealed.records, sealed.callbacks
        self._sealed, self._held = counts, sealed.spent

    @property
    def logs_of_sends(self) -> list[int]:
        """The number of logs of each send of a sealed batch."""
        logs_of_send = ONE_LOG_EACH if self._sealed is None else self._sealed.logs_of_send
        return [logs_of_send.get(position, 1) for position in range(self.sends)]

    def move(self, to: BatchState) -> bool:
        """Go to another state; return False if the batch was completed before.

        :raises RuntimeError: no such transition exists: a bug.
        """
        with self._lock:
            return self._move(to)

    def settle(self, to: BatchState, result: Result, *, unless: BatchState | None = None) -> bool:
        """Go to a final state with its result; return False if the batch was completed before.

        :param unless: a state in which nothing is done, and False returned.
        """
        with self._lock:
            if self.state is unless or not self._move(to):
                return False
            self.result = result
        self.wake()
        return True

    def cut(self, parts: Parts) -> bool:
        """Go to ``SPLIT``, and pass the sends and their watched futures to ``parts``; False if completed before."""
        with self._lock:
            if not self._move(BatchState.SPLIT):
                return False
            self.parts = parts
            watched, self._watched = self._watched or {}, None
        self.callbacks = ()
        for position, future in watched.items():
            self.keep_future(position, future)
        return True

    def follow(self, position: int) -> tuple[ResultHolder, int] | None:
        return None if self.parts is None else self.parts.find(position)

    def keep_future(self, position: int, future: SendFuture) -> None:
        if self.result is not None:  # after a fork, a thread of the parent may hold the lock
            return
        if self.parts is None:
            with self._lock:
                if self.result is not None:
                    return
                if self.parts is None:
                    if self._watched is None:
                        self._watched = {}
                    self._watched[position] = future
                    return
        holder, position = self.parts.find(position)
        holder.keep_future(position, future)

    def _move(self, to: BatchState) -> bool:
        if self.state in _FINAL:
            return False
        if to not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a batch cannot go from {self.state.value} to {to.value}")
        self.state = to
        return True

    def wait(self, timeout: float | None) -> None:
        with self._lock:
            settled = self._settled = self._settled or Latch()
        if not self.state.final:
            settled.wait(timeout)

    def wake(self) -> None:
        """Wake the threads that wait for the result. It is set, or the halves of the batch will have it."""
        if self._settled is not None:
            self._settled.set()

    def abandon_in_child(self, result: Result) -> None:
        """Fail a batch of the parent process, so that no thread of the child waits for it.

        Takes no lock: the thread that holds it may exist only in the parent.
        """
        if self.result is None:
            self.state, self.result = BatchState.FAILED, result
            self._settled = None
            if self.open is not None:
                self.open.forget()
            # The batch may have been split just before the fork, when its halves were registered nowhere else.
            for half in () if self.parts is None else self.parts.halves:
                half.abandon_in_child(result)

    @property
    def has_listeners(self) -> bool:
        """True if callbacks or watched futures need the result; final once the result is there."""
        return bool(self._watched or self.callbacks)

    @property
    def is_watched(self) -> bool:
        """True if a thread or task waits for one of its futures through the future's own callbacks, as
        ``await`` does.
        """
        return bool(self._watched)

    def take_listeners(self) -> tuple[dict[int, SendFuture], Sequence[Callback | None]]:
        """Remove and return the watched futures and the callbacks, both by position, for the handler."""
        with self._lock:
            watched, self._watched = self._watched or {}, None
        callbacks, self.callbacks = self.callbacks, ()
        return watched, callbacks

    def empty_half(self) -> ProducerBatch:
        """Return a batch without records that has the stream, the number and the attempts of this one."""
        return ProducerBatch(
            self.key,
            stream=self.stream,
            serial=self.serial,
            pack_id=self.pack_id,
            tail_size=self.tail_size,
            created_at=self.created_at,
            history=self.history.for_half(),
        )

    def encode(self, payload: Payload) -> None:
        """Store the encoded body, and drop the records unless they have origins."""
        self.payload = payload
        if self.origins is None:
            self.records = ()

    def rest(self) -> None:
        """Drop the body before waiting for another attempt, if the channel has the records. Called by the owner."""
        if self.origins is not None:
            self.payload = None

    @property
    def indivisible(self) -> bool:
        """True if the batch must never be split.

        Either the sender chose the sequence number of this piece. Or the batch is one event of an idempotent stream,
        which has one position in its channel. That position could not tell which half was sent.
        """
        order = self.key.order
        kept = self.origins is not None and self.sends == 1 and order.startswith(IDEMPOTENT)
        return kept or order.startswith(SEQUENCED)

    def shares_send(self, other: ProducerBatch) -> bool:
        """Return True if both have parts of the same event of a channel."""
        mine, others = self.origins, other.origins
        return mine is not None and others is not None and mine[0] is others[-1]

    def drop_bytes(self) -> None:
        """Drop the bytes of a batch that is completed or split."""
        self.payload = None
        self.records = ()
