"""DurablePipeline: a pipeline behind a channel, so that what was accepted survives this process.

``send`` puts the record into the channel and returns when the put is committed by the channel's policy. The feeder
takes the events in order into the pipeline, as memory allows; the acks thread has the channel forget what was
delivered, or moved to the dead letters. What is neither when the producer closes, or dies, stays in the channel for the
next one.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Sequence

from ..model.config import ProducerConfig
from ..model.errors import ChannelError, FlushTimeoutError, StreamStoppedError
from ..model.interfaces import Channel, Notes, Sink
from ..model.metrics import Counters, Stats
from ..model.records import StreamKey, plain
from ..model.results import Result
from ..pipeline.owner import Owner
from ..pipeline.pipeline import Pipeline
from ..pipeline.threads import StageThread
from ..runtime.clock import Clock, Deadline
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .acks import Acks
from .channel_owners import claim, give_up
from .dead_letters import DeadLetters
from .event_format import INSTANCE_SIZE
from .feeder import BLOCK_BYTES, GATHERING, GATHERING_SHARE, Feeder
from .intake import Intake
from .known_stats import KnownStats
from .recovery import Recovery
from .registry import Registry, StoredFuture, Waiting, staying
from .send_journal import Intents

_log = get_logger("loghub.durable")


class DurablePipeline:
    """Puts the parts behind a channel together, starts and ends them.

    :param channel: where records wait; it belongs to the pipeline from now on, which closes it.
    :param dead_letter: where those go that cannot be delivered; likewise.
    :param owner: as of :class:`Pipeline`, as are the others.
    :ivar admission: where records enter.
    :ivar survives_close: whether the next producer on the channel finds what stays in it.
    :ivar sink_error: what the sink raised when it was closed; None if nothing.
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
        owner: Owner | None = None,
        threadless: bool = False,
        counters: Counters | None = None,
    ) -> None:
        self.name, self.clock, self.sink = name, clock, sink
        self.channel, self.dead_letter = channel, dead_letter
        self.sink_error: Exception | None = None
        instance = os.urandom(INSTANCE_SIZE)
        self._dead_letters = None if dead_letter is None else DeadLetters(dead_letter, clock, name)
        self.survives_close = bool(getattr(channel, "survives_close", True))
        notes: Notes | None = getattr(channel, "notes", None)
        intents = None if notes is None else Intents(notes)
        self.acks = Acks(name, clock, channel.name, self._dead_letters, lasts=self.survives_close, journal=intents)
        self.pipeline = Pipeline(
            config,
            sink,
            clock,
            name,
            owner=owner,
            threadless=threadless,
            counters=counters,
            backing=self.acks,
        )
        if intents is not None:
            intents.accumulator = self.pipeline.accumulator
        if dead_letter is not None:
            dead_letter.stats()  # one that cannot be used is found now, not with the first record that needs it
        self.registry = Registry(channel, self.pipeline.settlement.failure)
        self._channel_stats = KnownStats(channel, clock, name)
        block = min(BLOCK_BYTES, max(1, config.total_size_in_bytes // 8))
        self.feeder = Feeder(
            name,
            channel,
            clock,
            self.registry,
            self.acks,
            self.pipeline,
            instance,
            recovery=Recovery(intents, self.pipeline.accumulator),
            block_bytes=block,
            gathering=min(GATHERING, GATHERING_SHARE * config.linger_ms / 1000),
        )
        self.admission = Intake(
            channel,
            self.registry,
            self,
            self._channel_stats,
            clock,
            max_block=None if config.max_block_ms < 0 else config.max_block_ms / 1000,
            instance=instance,
        )
        self._starting = threading.RLock()  # guards the start of the threads; as the pipeline's
        self._started = False
        events = counted(self._channel_stats.recovered, "event")
        _log.info("%s: %s recovered from channel %s", name, events, channel.name)

    def start(self) -> None:
        """Start the threads, once: what was recovered is on its way without any ``send``.

        :raises ConfigError: a channel belongs to another producer.
        """
        if self._started:
            return
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
            _log.warning("%s: no threads can be started (%s): %s", self.name, error, self.acks.without_threads)
            self.leave_futures()

    def seal_stream(self, key: StreamKey) -> None:
        """What was fed of the stream goes at once; what is still in the channel lingers when it comes."""
        self.pipeline.seal_stream(key)

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

    def flush(self, timeout: float | None) -> None:
        """Wait until everything in the channel is settled, its callbacks have run, and the channel knows.

        :param timeout: seconds; None waits for ever.
        :raises FlushTimeoutError: it took longer; the deliveries go on.
        """
        self.flush_until(Deadline.after(self.clock, timeout), timeout)

    def flush_until(self, deadline: Deadline, timeout: float | None) -> None:
        """As :meth:`flush`, until ``deadline``; ``timeout`` is what is said then."""
        if not self.running or self._channel_stats.ended:
            return
        try:
            self.pipeline.must_not_be_a_callback("flush")
            self.pipeline.must_not_work("flush", self.working_threads)
            fed = self.feeder.wait_fed(self.put, deadline)
            self.pipeline.flush_until(deadline, timeout)
        except FlushTimeoutError as error:
            raise FlushTimeoutError(error.remaining, timeout or 0.0, self.stored) from None
        if not fed or not self.pipeline.passed(self.acks.barrier(), deadline):
            raise FlushTimeoutError(len(self.pipeline.accumulator.incomplete()), timeout or 0.0, self.stored)

    @property
    def working_threads(self) -> tuple[StageThread, ...]:
        """Those besides the pipeline's own."""
        return self.feeder.thread, self.acks.thread

    @property
    def running(self) -> bool:
        """Whether the threads were started, all of them."""
        return self.feeder.thread.started

    @property
    def put(self) -> int:
        """Events that are, or were, in the channel since this producer has it."""
        return self._channel_stats.put

    @property
    def stored(self) -> int:
        """Events in the channel, taken ones included."""
        return self._channel_stats.stored

    def stats(self) -> Stats:
        """See :class:`~producer.model.metrics.Stats`."""
        stats, channel = self.pipeline.stats(), self._channel_stats.now()
        ages = [age for age in (stats.oldest_record_age, channel.oldest_event_age) if age is not None]
        return dataclasses.replace(
            stats,
            accepted=self.pipeline.counters["accepted"],
            waiting_senders=channel.waiting,
            oldest_record_age=max(ages, default=None),
            stored=channel.size + channel.taken,
            recovered=self._channel_stats.recovered,
            dead_lettered=0 if self._dead_letters is None else self._dead_letters.stored,
            kept_back=self.acks.counters["kept_back"],
            channel=channel,
        )

    def leave_futures(self) -> None:
        """Settle every future whose record is in the channel, where it stays; also those of sends still to come."""
        self.registry.leave_all(self._staying)

    def leave(self, futures: Sequence[StoredFuture]) -> None:
        """Settle futures whose records stay in the channel."""
        self.registry.leave(futures, self._staying())

    def _staying(self) -> Result:
        return staying(self.pipeline.settlement.abandoned())

    def give_back(self) -> int:
        """Close the sink, roll back what is taken, and close the channels; how many events stay.

        What the sink raises is :attr:`sink_error` then.
        """
        try:
            self.sink.close()
        except Exception as error:  # noqa: BLE001  # a sink is somebody else's class; raised when all else is closed
            self.sink_error = self.sink_error or error
        for taking in self.feeder.takings:
            self._guarded(taking.roll_back)
        self._channel_stats.end()
        self._guarded(self.channel.close)
        if self.dead_letter is not None:
            self._guarded(self.dead_letter.close)
        give_up(self.channel, self.dead_letter)
        return self.stored

    def _guarded(self, call: Callable[[], object]) -> None:
        """Whatever a channel raises at its end, the rest of the closing goes on."""
        try:
            call()
        except Exception:  # noqa: BLE001  # a channel is somebody else's class
            _log.exception("%s: a channel could not be closed in order", self.name)

    def abandon_in_child(self) -> None:
        """After a fork: the records are the parent's, which sends them; nobody in this process shall wait for them."""
        give_up(self.channel, self.dead_letter)
        self.pipeline.abandon_in_child()
        result = staying(self.pipeline.settlement.forked_away())
        for future in self.registry.left_in_child():
            if isinstance(future._holder, Waiting):
                future._holder.settle_in_child(result)
