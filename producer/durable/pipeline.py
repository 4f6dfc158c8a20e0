"""DurablePipeline: a pipeline behind a channel, so that what was accepted survives this process.

``send`` puts the record into the channel and returns when the put is committed by the channel's policy. The feeder
takes the events in order into the pipeline, as memory allows; the acks thread has the channel forget what was
delivered, or moved to the dead letters. What is neither when the producer closes, or dies, stays in the channel for the
next one. The file is long since the parts behind a channel are put together, started and ended in one place.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..clock import Clock, Deadline
from ..config import ProducerConfig
from ..errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    FlushTimeoutError,
    LogSizeTooLargeError,
    ProducerClosedError,
    ProducerError,
    SendTimeoutError,
    StreamStoppedError,
)
from ..interfaces import Channel, ChannelStats, Event, Notes, Record, Sink
from ..metrics import Stats
from ..numbering import Numbering
from ..pipeline.backing import Backing
from ..pipeline.batching.accumulator import Piece
from ..pipeline.batching.batch import ProducerBatch
from ..pipeline.batching.open_records import RECORD_OVERHEAD, OpenRecords
from ..pipeline.pipeline import Pipeline
from ..pipeline.sending.doubt import SentBefore
from ..pipeline.settling.thinned_log import ThinnedLog
from ..pipeline.threads import StageThread
from ..records import StreamKey, plain
from ..results import Callback, SendFuture
from .acks import Acks
from .claims import claim, give_up
from .dead_letters import DeadLetters
from .event_format import INSTANCE_SIZE, StoredRecord, ident_of, numbered, write_event
from .fed_batch import FedBatch
from .feeder import BLOCK_BYTES, Feeder
from .intents import Intents
from .number_turns import NumberTurns
from .recovery import Recovery
from .registry import Registry, StoredFuture, Waiting, staying
from .ticket import Ticket

_log = logging.getLogger("producer.durable")


class DurablePipeline:
    """See the module.

    :param channel: where records wait; it belongs to the pipeline from now on, which closes it.
    :param dead_letter: where those go that cannot be delivered; likewise.
    :param orphaned: as of :class:`Pipeline`, as are the others.
    :raises ChannelClosedError: the channel is closed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        sink: Sink,
        clock: Clock,
        name: str,
        channel: Channel,
        dead_letter: Channel | None = None,
        *,
        orphaned: Callable[[], bool] = lambda: False,
        abandon: Callable[[], None] = lambda: None,
        on_start: Callable[[], bool | None] = lambda: None,
        threadless: bool = False,
    ) -> None:
        self.name, self.clock, self.sink = name, clock, sink
        self.channel, self.dead_letter = channel, dead_letter
        self._max_block = None if config.max_block_ms < 0 else config.max_block_ms / 1000
        self._turns = NumberTurns(clock)
        self._instance = os.urandom(INSTANCE_SIZE)
        self._dead_letters = None if dead_letter is None else DeadLetters(dead_letter, clock, name)
        self.acks = Acks(name, clock, channel.name, self._dead_letters)
        notes: Notes | None = getattr(channel, "notes", None)
        intents = None if notes is None else Intents(notes, self._in_flight)
        self.pipeline = Pipeline(
            config,
            sink,
            clock,
            name,
            orphaned=orphaned,
            abandon=abandon,
            on_start=on_start,
            threadless=threadless,
            backing=Backing(
                listener=self.acks,
                journal=intents,
                batch_type=FedBatch,
                await_mending=dead_letter is None,
                without_threads=_WITHOUT_THREADS,
            ),
        )
        if dead_letter is not None:
            dead_letter.stats()  # one that cannot be used is found now, not with the first record that needs it
        self.registry = Registry(channel, self.pipeline.settlement.failure.tell)
        found = channel.stats()
        self.recovered = found.size
        # What was in the channel before the first take, and what came since, is what has been put in all.
        self._base = found.size - found.put_successes
        block = min(BLOCK_BYTES, max(1, config.total_size_in_bytes // 8))
        self.feeder = Feeder(
            name,
            channel,
            clock,
            self.registry,
            self.acks,
            self._feed,
            self._instance,
            recovery=Recovery(intents, self.pipeline.admission.hand_on_formed),
            settled=self._settled,
            resume=self.pipeline.resume,
            block_bytes=block,
        )
        self.refusing = False
        self._starting = threading.Lock()  # guards the start of the threads
        self._started = False
        self._known_stats = found
        self._last_stats: ChannelStats | None = None
        self._errors = ThinnedLog(clock)
        _log.info("%s: %d events recovered from channel %s", name, self.recovered, channel.name)

    def start(self) -> None:
        """Start the threads, once: what was recovered is on its way without any ``send``.

        :raises ConfigError: a channel belongs to another producer.
        """
        with self._starting:
            if self._started:
                return
            if not self.pipeline.threadless:
                claim(self.channel, self.dead_letter)
            self.pipeline.start()
            if self.pipeline.late:
                self.leave_futures()
            elif not self.pipeline.threadless:
                self._start_threads()
            self._started = True

    def _start_threads(self) -> None:
        try:
            self.acks.thread.start()
            self.feeder.thread.start()
        except RuntimeError as error:
            _log.warning("%s: no threads can be started (%s): %s", self.name, error, _WITHOUT_THREADS)
            self.leave_futures()

    def accept(self, key: StreamKey, record: Record, logs: int, callback: Callback | None) -> SendFuture:
        """Store one send.

        :param record: its encoded logs, joined.
        :param logs: how many they are.
        :raises LogSizeTooLargeError: it cannot fit in a batch, or in the memory.
        :raises MaxBatchCountExceedError: more logs than a batch may hold.
        :raises SendTimeoutError: no room in the channel within ``max_block_ms``.
        :raises ProducerClosedError: after ``close`` began.
        :raises StreamStoppedError: a batch of the ordered stream has failed for good.
        :raises ChannelError: the channel could not store it, for a disk that is full or fails.
        """
        return self._store_all([Piece(key, record, logs)], callback)[0]

    def open_records(self, key: StreamKey) -> OpenRecords | None:  # noqa: ARG002
        """None: every record goes through the channel."""
        return None

    def accept_pieces(self, pieces: Iterable[Piece], callback: Callback | None) -> list[SendFuture]:
        """As :meth:`accept`, for several in one transaction: all of them are stored, or none."""
        return self._store_all(list(self._bounded(pieces)), callback)

    def accept_encoded(
        self,
        estimate: int,  # noqa: ARG002  # the feeder takes the memory, when it takes the records out of the channel
        encode: Callable[[], Sequence[Piece]],
        callback: Callback | None,
    ) -> list[SendFuture]:
        """As :meth:`accept_pieces`, for what is encoded first, of one stream or of several that differ by names."""
        return self._store_all(encode(), callback)

    def _bounded(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, as long as they fit in the memory together: one transaction needs all of them at once.

        :raises LogSizeTooLargeError: they do not.
        """
        size, limit = 0, self.pipeline.budget.limit
        for piece in pieces:
            size += len(piece.record) + RECORD_OVERHEAD
            if size > limit:
                what = (
                    "send_many behind a channel stores all its logs in one transaction, which holds them in memory "
                    "together, against total_size_in_bytes; give it fewer logs at once: these need more than"
                )
                raise LogSizeTooLargeError(size, limit, what)
            yield piece

    def _store_all(self, pieces: Sequence[Piece], callback: Callback | None) -> list[SendFuture]:
        for piece in pieces:
            self.pipeline.check_size(piece)
        if self.refusing:
            raise ProducerClosedError("the producer is closed")
        for key in {piece.key for piece in pieces if piece.key.order}:
            if (stopped := self.stopped(key)) is not None:
                raise stopped
        if not self._started:
            self.start()
        futures = self.registry.open(len(pieces), callback)
        try:
            self._store(pieces, futures)
        except BaseException:
            self.registry.withdraw(futures)
            raise
        self.pipeline.counters.add("accepted", sum(piece.logs for piece in pieces))
        return list(futures)

    def _store(self, pieces: Sequence[Piece], futures: Sequence[StoredFuture]) -> None:
        """Store all of them; of a stream with a ``SequenceKey`` they have one count."""
        numbering = pieces[0].key.order if pieces else ""
        events, deadline = self._events(pieces, futures), self._send_deadline()
        if not isinstance(numbering, Numbering):
            self._put(events, futures, deadline)
            return
        numbering.check()
        started = self.clock.monotonic()
        with self._turns.turn(numbering, deadline) as mine:
            if not mine:
                raise self._no_turn(events, self.clock.monotonic() - started)
            self._put_numbered(numbering, events, futures, deadline)

    def _put_numbered(
        self, numbering: Numbering, events: Sequence[Event], futures: Sequence[StoredFuture], deadline: Deadline
    ) -> None:
        first = numbering.next
        numbering.next += len(events)
        numbers = enumerate(events, first)
        try:
            self._put([Event({**one.headers, **numbered(n)}, one.body) for n, one in numbers], futures, deadline)
        except ProducerError:  # nothing was stored; of another exception nobody knows, and the numbers are spent
            numbering.next = first
            raise

    def _no_turn(self, events: Sequence[Event], waited: float) -> SendTimeoutError:
        channel = self._channel_stats()
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

    def _send_deadline(self) -> Deadline:
        # In a callback it does not wait, for the callbacks after it may be what gives room.
        return Deadline.after(self.clock, 0.0 if self.pipeline.on_handler_thread() else self._max_block)

    def _put(self, events: Sequence[Event], futures: Sequence[StoredFuture], deadline: Deadline) -> None:
        try:
            self._commit(events, futures, deadline)
        except ChannelFullError as error:
            raise self._timed_out(error) from error
        except ChannelClosedError as error:
            if self.refusing:
                raise ProducerClosedError(
                    "the producer was closed while send waited for room in its channel"
                ) from error
            raise

    def _commit(self, events: Sequence[Event], futures: Sequence[StoredFuture], deadline: Deadline) -> None:
        with self.channel.transaction() as transaction:
            transaction.put_many(events)
            left = deadline.remaining(self.clock)
            stored = transaction.commit(math.inf if left is None else left)
        late = self.registry.committed(futures, stored, transaction.last_sequence)
        if late:
            self._leave(late)

    def _timed_out(self, error: ChannelFullError) -> SendTimeoutError:
        return SendTimeoutError(
            limit=error.byte_capacity or 0,
            used=error.used_bytes,
            wanted=error.wanted_bytes,
            oldest_age=self._channel_stats().oldest_event_age,
            waited=error.waited,
            text=_full_text(error),
        )

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Why an ordered stream is stopped; None if it is not, or about to go on."""
        error = self.pipeline.stopped(key)
        return None if error is None or self.feeder.is_resuming(key) else error

    def resume(self, key: StreamKey) -> None:
        """Let a stopped stream go on, with what of it waits in the channel.

        :raises ChannelError: the channel cannot give taken events back.
        """
        if self.pipeline.stopped(key) is None:
            return
        if self.acks.parking.holds(key.line) and not hasattr(self.feeder.takings[-1].transaction, "give_back"):
            message = (
                "its transactions have no give_back, so the stream stays stopped; the next producer on the channel "
                "delivers what waits in it"
            )
            raise ChannelError(self.channel.name, message)
        self.feeder.resume(plain(key))

    def _feed(self, stored: StoredRecord, ticket: Ticket, before: SentBefore | None) -> None:
        """Hand a record of the channel to the pipeline; see :meth:`Admission.feed`."""
        piece = Piece(stored.key, stored.record, stored.logs)
        self.pipeline.admission.feed(piece, ticket, number=stored.number, before=before)

    def _in_flight(self) -> list[ProducerBatch]:
        return self.pipeline.accumulator.incomplete()

    def _settled(self, key: StreamKey) -> bool:
        """Whether nothing of a stream, which is stopped, waits for its end."""
        return not any(batch.key.line == key.line for batch in self._in_flight())

    def check_size(self, piece: Piece) -> None:
        """See :meth:`Admission.check_size`."""
        self.pipeline.check_size(piece)

    @property
    def put(self) -> int:
        """Events that are, or were, in the channel since this producer has it."""
        return self._base + self._channel_stats().put_successes

    def flush(self, timeout: float | None) -> None:
        """Wait until everything in the channel is settled, its callbacks have run, and the channel knows.

        :param timeout: seconds; None waits for ever.
        :raises FlushTimeoutError: it took longer; the deliveries go on.
        """
        deadline = Deadline.after(self.clock, timeout)
        if not self.running or self._last_stats is not None:
            return
        try:
            self.pipeline.must_not_be_a_callback("flush")
            self.pipeline.must_not_work("flush", self.working_threads)
            fed = self.feeder.wait_fed(self.put, deadline)
            self.pipeline.flush(deadline.remaining(self.clock))
        except FlushTimeoutError as error:
            raise FlushTimeoutError(error.remaining, timeout or 0.0, self.stored) from None
        if not fed or not self.pipeline.passed(self.acks.barrier(), deadline):
            raise FlushTimeoutError(len(self._in_flight()), timeout or 0.0, self.stored)

    @property
    def working_threads(self) -> tuple[StageThread, ...]:
        """Those besides the pipeline's own."""
        return self.feeder.thread, self.acks.thread

    @property
    def running(self) -> bool:
        """Whether the threads were started, all of them."""
        return self.feeder.thread.started

    @property
    def stored(self) -> int:
        """Events in the channel, taken ones included."""
        stats = self._channel_stats()
        return stats.size + stats.taken

    def _channel_stats(self) -> ChannelStats:
        if self._last_stats is not None:
            return self._last_stats
        try:
            self._known_stats = self.channel.stats()
        except ChannelClosedError:  # somebody closed it under the producer
            self._known_stats = ChannelStats(name=self.channel.name, open=False)
        except Exception as error:  # noqa: BLE001  # a channel is somebody else's class; without it nothing would close
            if self._errors.due(type(error).__name__, 1) is not None:
                _log.exception("%s: channel %s does not say what it holds", self.name, self.channel.name)
        return self._known_stats

    def stats(self) -> Stats:
        """See :class:`~producer.metrics.Stats`."""
        stats, channel = self.pipeline.stats(), self._channel_stats()
        ages = [age for age in (stats.oldest_record_age, channel.oldest_event_age) if age is not None]
        return dataclasses.replace(
            stats,
            accepted=self.pipeline.counters["accepted"],
            waiting_senders=channel.waiting,
            oldest_record_age=max(ages, default=None),
            stored=channel.size + channel.taken,
            recovered=self.recovered,
            dead_lettered=0 if self._dead_letters is None else self._dead_letters.stored,
            kept_back=self.acks.counters["kept_back"],
            channel=channel,
        )

    def leave_futures(self) -> None:
        """Settle every future whose record is in the channel, where it stays; also those of sends still to come."""
        self._leave(self.registry.close())

    def _leave(self, futures: Sequence[StoredFuture]) -> None:
        self.registry.leave(futures, staying(self.pipeline.abandoned()))

    def give_back(self) -> int:
        """Close the sink, roll back what is taken, and close the channels; how many events stay."""
        self._guarded(self.sink.close)
        for taking in self.feeder.takings:
            self._guarded(taking.roll_back)
        if self._last_stats is None:
            self._last_stats = dataclasses.replace(self._channel_stats(), open=False)
        self._guarded(self.channel.close)
        if self.dead_letter is not None:
            self._guarded(self.dead_letter.close)
        give_up(self.channel, self.dead_letter)
        return self.stored

    def _guarded(self, call: Callable[[], object]) -> None:
        """Whatever a channel, or the sink, raises at its end, the rest of the closing goes on."""
        try:
            call()
        except Exception:  # noqa: BLE001  # a channel is somebody else's class
            _log.exception("%s: a channel or the sink could not be closed in order", self.name)

    def abandon_in_child(self) -> None:
        """After a fork: the records are the parent's, which sends them; nobody in this process shall wait for them."""
        give_up(self.channel, self.dead_letter)
        self.pipeline.abandon_in_child()
        result = staying(self.pipeline.forked_away())
        for future in self.registry.left_in_child():
            if isinstance(future._holder, Waiting):
                future._holder.settle_in_child(result)


_WITHOUT_THREADS = "records stay in the channel, and the next producer on it delivers them"
_SLOW = "Is the server slow or down? Raise the channel's capacity or max_block_ms, or send less."


def _full_text(error: ChannelFullError) -> str:
    limit = "no limit" if error.byte_capacity is None else str(error.byte_capacity)
    advice = "It can never fit: send less at once, or raise the channel's capacity." if error.never else _SLOW
    return (
        f"no room in channel {error.channel} within {error.waited:.3f} s (max_block_ms) for {error.wanted} events of "
        f"{error.wanted_bytes} bytes: it holds {error.size} of {error.capacity} events (capacity) and "
        f"{error.used_bytes} of {limit} bytes (byte_capacity). {advice}"
    )
