"""Intake: the entry to a pipeline with a durable channel: each call commits all of its records to the channel, or none.

A send waits for room in the channel, not for memory. The feeder takes the memory when it takes the records out again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..model.errors import (
    ChannelClosedError,
    ChannelFullError,
    LogSizeTooLargeError,
    ProducerClosedError,
    ProducerError,
    SendTimeoutError,
    StreamStoppedError,
)
from ..model.futures import SendFuture
from ..model.interfaces import Channel, Event, Record, Stored
from ..model.records import StreamKey, plain
from ..model.results import Callback
from ..model.sequence import Numbering
from ..pipeline.batching.accumulator import Piece
from ..pipeline.batching.open_records import RECORD_OVERHEAD, OpenRecords
from ..pipeline.pipeline import Pipeline
from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, WaitingRoom
from ..text.plural import counted
from .event_format import ident_of, numbered, write_event
from .known_stats import KnownStats
from .number_turns import NumberTurns
from .registry import Registry, StoredFuture

#: A channel's optional method that puts and commits events in one call.
_PutAtOnce = Callable[[Sequence[Event], float], tuple[Stored, int | None]]


class Durable(Protocol):
    """The pipeline with a durable channel, as far as its intake needs it."""

    pipeline: Pipeline

    def start(self) -> None:
        """Start the threads, once."""

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Return the error that stopped an ordered stream; None if it is not stopped."""

    def leave(self, futures: Sequence[StoredFuture]) -> None:
        """Complete futures whose records stay in the channel."""


class Intake:
    """Stores sent records in the channel, and opens their futures.

    :param durable: the pipeline: started before a record is stored, knows stopped streams, retains records.
    :param instance: the id of this producer, by which its futures are found again.
    :ivar refusing: True if nothing more is stored.
    """

    def __init__(
        self,
        channel: Channel,
        registry: Registry,
        durable: Durable,
        stats: KnownStats,
        clock: Clock,
        *,
        instance: bytes,
    ) -> None:
        self._channel, self._registry, self._durable = channel, registry, durable
        self._pipeline = durable.pipeline
        self._stats, self._clock, self._instance = stats, clock, instance
        self._put_at_once: _PutAtOnce | None = getattr(channel, "_put_at_once", None)
        self._turns = NumberTurns(clock)
        self._ends = WaitingRoom(clock, LOOK_AGAIN)  # for the close, which waits for sends to end
        self._storing: set[object] = set()  # a token of each send that stores; each step is atomic
        self.refusing = False

    def _bounded(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Return the pieces if they fit in memory together, since one transaction needs all of them at once.

        :raises LogSizeTooLargeError: they do not fit.
        """
        size, limit, all_of_them = 0, self._pipeline.budget.limit, list[Piece]()
        for piece in pieces:
            size += len(piece.record) + RECORD_OVERHEAD
            if size > limit:
                what = (
                    "send_many with a durable channel stores its logs in one transaction within total_size_in_bytes; "
                    "send fewer logs at once. Their memory"
                )
                raise LogSizeTooLargeError(size, limit, what)
            all_of_them.append(piece)
        return all_of_them

    def accept(self, key: StreamKey, record: Record, logs: int, callback: Callback | None) -> SendFuture:
        return self.store([Piece(key, record, logs)], callback)[0]

    def accept_pieces(self, pieces: Iterable[Piece], callback: Callback | None) -> list[SendFuture]:
        """Accept several pieces in one transaction: all of them are stored, or none."""
        return self.store(pieces if isinstance(pieces, list) else self._bounded(pieces), callback)

    def check_size(self, piece: Piece) -> None:
        self._pipeline.admission.check_size(piece)

    def open_records(self, future: SendFuture) -> OpenRecords | None:  # noqa: ARG002  # the protocol's
        """Return None: every record goes through the channel."""
        return None

    def store(self, pieces: Sequence[Piece], callback: Callback | None) -> list[SendFuture]:
        """Store all of these pieces, or none; return their futures.

        :raises ProducerClosedError: :attr:`refusing` was set.
        :raises StreamStoppedError: a batch of the ordered stream failed permanently.
        """
        logs, ordered = 0, set[StreamKey]()
        for piece in pieces:
            self.check_size(piece)
            logs += piece.logs
            if piece.key.order:
                ordered.add(piece.key)
        if self.refusing:
            raise ProducerClosedError("the producer is closed")
        for key in ordered:
            if (stopped := self._durable.stopped(key)) is not None:
                raise stopped
        self._durable.start()
        futures, token = self._registry.open(len(pieces), callback), object()
        try:
            self._storing.add(token)
            if self.refusing:  # a close that began meanwhile did not see this send
                raise ProducerClosedError("the producer is closed")
            self._store(pieces, futures)
        except BaseException:
            self._registry.withdraw(futures)
            raise
        finally:
            self._storing.discard(token)
            if self.refusing:
                self._ends.wake_all()
        self._pipeline.counters.add("accepted", logs)
        return list(futures)

    def wait_ended(self, deadline: Deadline) -> None:
        """Wait until every send that began before :attr:`refusing` was set has stored its records, or failed."""
        self._ends.wait_until(lambda: not self._storing, deadline)

    def _store(self, pieces: Sequence[Piece], futures: Sequence[StoredFuture]) -> None:
        """Store all of the pieces; those of a stream with a ``SequenceKey`` share one count."""
        numbering = pieces[0].key.order if pieces else ""
        events, timeout = self._events(pieces, futures), self._patience()
        if not isinstance(numbering, Numbering):
            self._put(events, futures, timeout)
            return
        numbering.check()
        started = self._clock.monotonic()
        deadline = Deadline(None if timeout == math.inf else started + timeout)
        with self._turns.turn(numbering, deadline) as mine:
            waited = self._clock.monotonic() - started
            if not mine:
                raise self._no_turn(events, waited)
            self._put_numbered(numbering, events, futures, max(0.0, timeout - waited))

    def _put_numbered(
        self, numbering: Numbering, events: Sequence[Event], futures: Sequence[StoredFuture], timeout: float
    ) -> None:
        first = numbering.next
        numbering.next += len(events)
        numbers = enumerate(events, first)
        try:
            self._put([Event({**one.headers, **numbered(n)}, one.body) for n, one in numbers], futures, timeout)
        # nothing was stored; after any other exception that is unknown, and the numbers are used up
        except ProducerError:
            numbering.next = first
            raise

    def _no_turn(self, events: Sequence[Event], waited: float) -> SendTimeoutError:
        channel = self._stats.now()
        return SendTimeoutError(
            limit=channel.byte_capacity or 0,
            used=channel.bytes,
            wanted=sum(len(event.body) for event in events),
            oldest_age=channel.oldest_event_age,
            waited=waited,
            text=f"another send on this stream, whose pieces are numbered (SequenceKey), waited for channel "
            f"{channel.name} all of the {waited:.3f} s (max_block_ms). {_SLOW}",
        )

    def _events(self, pieces: Sequence[Piece], futures: Sequence[StoredFuture]) -> list[Event]:
        instance, first = self._instance, futures[0].number if futures else 0
        return [
            write_event(plain(key) if key.order else key, ident_of(instance, number), logs, record)
            for number, (key, record, logs) in enumerate(pieces, first)
        ]

    def _patience(self) -> float:
        """Return how long this send may wait for room, seconds."""
        seconds = self._pipeline.admission.max_block()
        return math.inf if seconds is None else seconds

    def _put(self, events: Sequence[Event], futures: Sequence[StoredFuture], timeout: float) -> None:
        put = self._put_at_once if self._put_at_once is not None and events else self._put_in_transaction
        try:
            stored, last = put(events, timeout)
        except ChannelFullError as error:
            raise self._timed_out(error) from error
        except ChannelClosedError as error:
            if self.refusing:
                raise ProducerClosedError(
                    "the producer was closed while send waited for room in its channel"
                ) from error
            raise
        late = self._registry.committed(futures, stored, last)
        if late:
            self._durable.leave(late)

    def _put_in_transaction(self, events: Sequence[Event], timeout: float) -> tuple[Stored, int | None]:
        with self._channel.transaction() as transaction:
            transaction.put_many(events)
            stored = transaction.commit(timeout)
        return stored, transaction.last_sequence

    def _timed_out(self, error: ChannelFullError) -> SendTimeoutError:
        return SendTimeoutError(
            limit=error.byte_capacity or 0,
            used=error.used_bytes,
            wanted=error.wanted_bytes,
            oldest_age=self._stats.now().oldest_event_age,
            waited=error.waited,
            text=_full_text(error),
        )


_SLOW = "Is the server slow or down? Raise the channel's capacity or max_block_ms, or send less."


def _full_text(error: ChannelFullError) -> str:
    limit = "no limit" if error.byte_capacity is None else counted(error.byte_capacity, "byte")
    advice = "It can never fit: send less at once, or raise the channel's capacity." if error.never else _SLOW
    return (
        f"no room in channel {error.channel} within {error.waited:.3f} s (max_block_ms) for "
        f"{counted(error.wanted, 'event')} of {counted(error.wanted_bytes, 'byte')}: it holds {error.size} of "
        f"{counted(error.capacity, 'event')} (capacity) and "
        f"{error.used_bytes} of {limit} (byte_capacity). {advice}"
    )
