"""ProducerBatch: the records that travel together, their state, and their one result.

A batch has one owner at a time, who alone moves it to its next state::

    OPEN ──► QUEUED ──► SENDING ──► SUCCEEDED
    (accumulator) ▲        │ ├────► FAILED
                  │        │ └────► SPLIT      its records went to two other batches
                  └─ WAITING (retry queue)

``close`` at its deadline, and ``fork`` in the child, fail a batch without owning it; that is why a transition tells
whether it happened: a batch in a final state never changes again. The file is long because all that one lock guards
stands in it.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Protocol, Self

from ...model.futures import ResultHolder, SendFuture
from ...model.interfaces import Payload, Record, SequenceId
from ...model.records import IDEMPOTENT, SEQUENCED, StreamKey
from ...model.results import Callback, Result
from ...runtime.clock import Latch
from .attempt_history import NO_ATTEMPTS, AttemptHistory
from .open_records import ONE_LOG_EACH, OpenRecords, Sealed
from .origins import Origin, Origins
from .stream_state import StreamState
from .unconfirmed import Doubt

#: Who is to be told of a send's outcome.
Recipient = Callback | Origin | None

#: Memory accounted for each batch besides its records.
BATCH_OVERHEAD = 4096

#: The largest result of :func:`overhead_of_batch` for a stream key that ``Producer.stream`` made.
MAX_BATCH_OVERHEAD = BATCH_OVERHEAD + 4 * 4 * 1024


def overhead_of_batch(key: StreamKey) -> int:
    """Memory accounted for a batch of this stream besides its records: its objects, and the texts that name the
    stream.
    """
    characters = len(key.project) + len(key.logstore) + len(key.topic) + len(key.source)
    if key.tags:
        characters += sum(map(len, chain.from_iterable(key.tags)))
    # A character takes up to four bytes; what is short is in BATCH_OVERHEAD.
    return BATCH_OVERHEAD if characters <= 256 else BATCH_OVERHEAD + 4 * (characters - 256)


class Parts(Protocol):
    """Where the sends of a batch went that was cut.

    :ivar halves: the batches that it was cut into.
    """

    @property
    def halves(self) -> Sequence[ProducerBatch]: ...

    def find(self, position: int) -> tuple[ResultHolder, int]:
        """Who holds the send at ``position`` now, and its position there."""


class BatchState(enum.Enum):
    """Where a batch is."""

    OPEN = "open"
    QUEUED = "queued"
    SENDING = "sending"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SPLIT = "split"

    __hash__ = object.__hash__  # that of an enum is a function in Python, and states are looked up all the time

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


class ProducerBatch:
    """Records of one stream, in the order of their sends.

    :param serial: increasing with the time of creation; the halves of a split batch keep that of the whole.
    :param tail_size: bytes of the LogGroup that are not records.
    :param origins: None for records that exist only here.
    """

    __slots__ = (
        "_held",
        "_lock",
        "_sealed",
        "_settled",
        "_watched",
        "callbacks",
        "created_at",
        "doubt",
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
        origins: Origins | None = None,
    ) -> None:
        self.key = key
        self.stream = stream
        self.serial = serial
        #: Of a batch that was cut: 0 for the first half, 1 for the second one, at each cut.
        self.part: tuple[int, ...] = ()
        self.pack_id = pack_id
        self.created_at = created_at
        self.tail_size = tail_size
        self.origins = origins
        #: What it holds as long as it takes records; then it is None, and what follows holds it.
        self.open: OpenRecords | None = None
        self.records: Sequence[Record] = ()
        #: Of its sends, by position; shorter where the last ones have none.
        self.callbacks: Sequence[Callback | None] = ()
        self._sealed: Sealed | None = None
        self._held = 0
        self.payload: Payload | None = None
        self._lock = threading.Lock()  # guards state, result, parts and the futures that are watched
        self.state = BatchState.OPEN
        self.result: Result | None = None
        #: Who holds its sends once it was cut.
        self.parts: Parts | None = None
        self._watched: dict[int, SendFuture] | None = None
        self._settled: Latch | None = None  # made for the first who waits
        # Touched by the owner only.
        self.history = history  # its own from the seal on: of many streams each has an open batch
        #: Of an idempotent batch; whether the channel knows of it; what requests under it may have been stored.
        self.sequence: SequenceId | None = None
        self.noted = False
        self.doubt: Doubt[Self] | None = None
        #: It is being formed anew after a restart: only the feeder says when it is complete.
        self.forming = False

    @property
    def size(self) -> int:
        """Of its body, bytes."""
        counts = self.open or self._sealed
        return self.tail_size if counts is None else counts.size

    @property
    def log_count(self) -> int:
        """How many logs it holds."""
        counts = self.open or self._sealed
        return 0 if counts is None else counts.logs

    @property
    def sends(self) -> int:
        """How many sends it holds."""
        counts = self.open or self._sealed
        return 0 if counts is None else counts.sends

    @property
    def held(self) -> int:
        """Bytes taken from the memory budget and not yet given back."""
        records = self.open
        return self._held if records is None else records.spent

    @held.setter
    def held(self, amount: int) -> None:
        self._held = amount

    def has_room(self, size: int, logs: int) -> bool:
        """Whether it takes a send of ``size`` bytes and ``logs`` logs."""
        return self.open is not None and self.open.has_room(size, logs)

    def add(self, record: Record, logs: int, recipient: Recipient, charge: int) -> SendFuture | None:
        """Append one send; see :meth:`OpenRecords.append`.

        :param recipient: the callback of the send, or its origin, whose future becomes this batch's.
        """
        records, origins = self.open, self.origins
        if records is None:
            return None
        if origins is None:
            return records.append(record, logs, recipient, charge)  # type: ignore[arg-type]  # no origin
        if recipient is None or callable(recipient):
            raise TypeError("a record that is kept elsewhere came without its origin")  # a bug
        del origins.all[records.sends :]  # of a record that was not added
        origins.all.append(recipient)
        added = records.append(record, logs, None, charge)
        if added is None:
            return None
        future, recipient.future = recipient.future, None
        if future is None:
            return added
        self.heed(added._position, future)
        future._position = added._position
        future._holder = self
        return future

    def seal(self) -> None:
        """Take no more records; a second time changes nothing.

        Called by the owner of an open batch, which nobody settles.
        """
        records = self.open
        if records is None:
            return
        self.fill(records.seal())
        self.state = BatchState.QUEUED
        self.open = None
        if self.origins is not None:
            del self.origins.all[self.sends :]
        records.forget()

    def fill(self, sealed: Sealed) -> None:
        """Hold what takes no more records."""
        # Of the counts alone: who keeps a future keeps its batch, long after it has let go of the bytes.
        counts = Sealed((), sealed.size, sealed.logs, sealed.sends, sealed.spent, (), sealed.logs_of_send)
        self.records, self.callbacks = sealed.records, sealed.callbacks
        self._sealed, self._held = counts, sealed.spent

    @property
    def logs_of_sends(self) -> list[int]:
        """For each send, how many logs it holds; once it takes no more records."""
        logs_of_send = ONE_LOG_EACH if self._sealed is None else self._sealed.logs_of_send
        return [logs_of_send.get(position, 1) for position in range(self.sends)]

    def move(self, to: BatchState) -> bool:
        """Go to another state; False if somebody settled the batch before.

        :raises RuntimeError: the table has no such transition: a bug.
        """
        with self._lock:
            return self._move(to)

    def settle(self, to: BatchState, result: Result, *, unless: BatchState | None = None) -> bool:
        """Go to a final state with its result; False if somebody settled the batch before.

        :param unless: not from this state: False as well.
        """
        with self._lock:
            if self.state is unless or not self._move(to):
                return False
            self.result = result
        self.wake()
        return True

    def cut(self, parts: Parts) -> bool:
        """Go to ``SPLIT``: its sends are found in ``parts`` from now on, and so are those who wait for their results;
        False if somebody settled the batch before.
        """
        with self._lock:
            if not self._move(BatchState.SPLIT):
                return False
            self.parts = parts
            watched, self._watched = self._watched or {}, None
        self.callbacks = ()
        for position, future in watched.items():
            self.heed(position, future)
        return True

    def follow(self, position: int) -> tuple[ResultHolder, int] | None:
        """See :class:`~producer.model.futures.ResultHolder`."""
        return None if self.parts is None else self.parts.find(position)

    def heed(self, position: int, future: SendFuture) -> None:
        """See :class:`~producer.model.futures.ResultHolder`."""
        if self.result is not None:  # after a fork there may be nobody left to give the lock back
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
        holder.heed(position, future)

    def _move(self, to: BatchState) -> bool:
        if self.state in _FINAL:
            return False
        if to not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a batch cannot go from {self.state.value} to {to.value}")
        self.state = to
        return True

    def wait(self, timeout: float | None) -> None:
        """See :class:`~producer.model.futures.ResultHolder`."""
        with self._lock:
            settled = self._settled = self._settled or Latch()
        if not self.state.final:
            settled.wait(timeout)

    def wake(self) -> None:
        """Let those go on who wait for the result: it is there, or is another batch's to give."""
        if self._settled is not None:
            self._settled.set()

    def abandon_in_child(self, result: Result) -> None:
        """Fail a batch that belongs to the parent of this process, so that nobody here waits for it.

        Takes no lock: the thread that held one may exist only in the parent.
        """
        if self.result is None:
            self.state, self.result = BatchState.FAILED, result
            self._settled = None
            if self.open is not None:
                self.open.forget()
            # It may have been cut a moment before the fork, and nobody else know of its halves yet.
            for half in () if self.parts is None else self.parts.halves:
                half.abandon_in_child(result)

    @property
    def concerns_somebody(self) -> bool:
        """Whether there is anybody to be told of the result; once it is there nobody comes any more."""
        return bool(self._watched or self.callbacks)

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for a future of it by what was added to the future, as ``await`` does."""
        return bool(self._watched)

    def take_told(self) -> tuple[dict[int, SendFuture], Sequence[Callback | None]]:
        """Who is to be told of the result, out of the batch, for the handler: futures that are watched, and callbacks,
        both by their positions.
        """
        with self._lock:
            watched, self._watched = self._watched or {}, None
        callbacks, self.callbacks = self.callbacks, ()
        return watched, callbacks

    def empty_half(self) -> ProducerBatch:
        """Return a batch without records that takes over the stream, the number and the attempts of this one."""
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
        """Hold the body; the records live on in it, unless they have origins."""
        self.payload = payload
        if self.origins is None:
            self.records = ()

    def rest(self) -> None:
        """Prepare to wait for another attempt; called by the owner."""
        if self.origins is not None:
            self.payload = None

    @property
    def indivisible(self) -> bool:
        """True if it must never be cut: its sender gave its piece a number, or it is one event of an idempotent stream,
        which has one position in its channel, by which the part that was sent could not be told.
        """
        order = self.key.order
        kept = self.origins is not None and self.sends == 1 and order.startswith(IDEMPOTENT)
        return kept or order.startswith(SEQUENCED)

    def shares_send(self, other: ProducerBatch) -> bool:
        """Return True if both carry parts of the same record that is kept elsewhere."""
        mine, others = self.origins, other.origins
        return mine is not None and others is not None and mine.all[0] is others.all[-1]

    def drop_bytes(self) -> None:
        """Forget the bytes: they are settled, or other batches carry them."""
        self.payload = None
        self.records = ()
