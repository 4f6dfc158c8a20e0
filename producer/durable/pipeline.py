"""DurablePipeline: a pipeline with a durable channel, so that accepted records survive the process.

``send`` puts the record into the channel, and returns when the put is committed by the channel's policy. The feeder
takes the events in order, and feeds them to the pipeline as memory allows. The acks thread acknowledges events that
were delivered, or moved to the dead letters. Other events stay in the channel for the next producer, when this one
closes or dies.
"""

from __future__ import annotations

import dataclasses
import os
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
from ..runtime.locks import RLock
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .acks import Acks
from .channel_owners import claim, release
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
    """Assembles, starts and ends the parts around a durable channel.

    :param channel: the channel, which the pipeline owns and closes.
    :param dead_letter: the channel of undeliverable records, which the pipeline owns and closes.
    :param owner: as in :class:`Pipeline`, as are the others.
    :ivar admission: the entry for records.
    :ivar survives_close: True if the next producer on the channel finds the events that stay in it.
    :ivar sink_error: the error of the sink's ``close``; None if there was none.
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
            dead_letter.stats()  # a broken channel is found here, not with the first record that needs it
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
            instance=instance,
        )
        self._starting = RLock()  # guards the start of the threads, as in Pipeline
        self._started = False
        if self._channel_stats.recovered:
            events = counted(self._channel_stats.recovered, "event")
            _log.info("%s: %s recovered from channel %s", name, events, channel.name)

    def start(self) -> None:
        """Start the threads, once: recovered events are delivered without any ``send``.

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
        self.pipeline.seal_stream(key)

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Return the error that stopped an ordered stream; None if it is not stopped, or is being resumed."""
        error = self.pipeline.stopped(key)
        return None if error is None or self.feeder.is_resuming(key) else error

    def resume(self, key: StreamKey) -> None:
        """Resume a stopped stream with the events that wait in the channel.

        :raises ChannelError: the channel cannot take the events back.
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
        """Wait until every event in the channel is completed and acknowledged, and its callbacks have run.

        :param timeout: seconds; None to wait forever.
        :raises FlushTimeoutError: the timeout has passed; the deliveries continue.
        """
        self.flush_until(Deadline.after(self.clock, timeout), timeout)

    def flush_until(self, deadline: Deadline, timeout: float | None) -> None:
        if not self.running or self._channel_stats.ended:
            return
        try:
            self.pipeline.refuse_callback("flush")
            self.pipeline.refuse_own_threads("flush", self.working_threads)
            fed = self.feeder.wait_fed(self.put, deadline)
            self.pipeline.flush_until(deadline, timeout)
        except FlushTimeoutError as error:
            raise FlushTimeoutError(error.remaining, timeout or 0.0, self.stored) from None
        if not fed or not self.pipeline.passed(self.acks.barrier(), deadline):
            raise FlushTimeoutError(len(self.pipeline.accumulator.incomplete()), timeout or 0.0, self.stored)

    @property
    def working_threads(self) -> tuple[StageThread, ...]:
        """The threads besides the pipeline's own."""
        return self.feeder.thread, self.acks.thread

    @property
    def running(self) -> bool:
        """True if all threads were started."""
        return self.feeder.thread.started

    @property
    def put(self) -> int:
        """The number of events that were in the channel at the beginning or put later."""
        return self._channel_stats.put

    @property
    def stored(self) -> int:
        """The number of events in the channel, including taken ones."""
        return self._channel_stats.stored

    def stats(self) -> Stats:
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
        """Complete every future whose record stays in the channel, also those of later sends."""
        self.registry.leave_all(self._staying)

    def leave(self, futures: Sequence[StoredFuture]) -> None:
        """Complete futures whose records stay in the channel."""
        self.registry.leave(futures, self._staying())

    def _staying(self) -> Result:
        return staying(self.pipeline.settlement.abandoned())

    def give_back(self) -> int:
        """Close the sink, return taken events, and close the channels; return the number of events that stay.

        An error of the sink is kept in :attr:`sink_error`.
        """
        try:
            self.sink.close()
        except Exception as error:  # noqa: BLE001  # a sink may be user code; raised when all else is closed
            self.sink_error = self.sink_error or error
        for taking in self.feeder.takings:
            self._guarded(taking.roll_back)
        self._channel_stats.end()
        self._guarded(self.channel.close)
        if self.dead_letter is not None:
            self._guarded(self.dead_letter.close)
        release(self.channel, self.dead_letter)
        return self.stored

    def _guarded(self, call: Callable[[], object]) -> None:
        """Call a step of the close, and log its error, so that the later steps follow."""
        try:
            call()
        except Exception:  # noqa: BLE001  # a channel may be user code
            _log.exception("%s: an error while the channels were closed", self.name)

    def abandon_in_child(self) -> None:
        release(self.channel, self.dead_letter)
        self.pipeline.abandon_in_child()
        result = staying(self.pipeline.settlement.forked_attempt())
        for future in self.registry.left_in_child():
            if isinstance(future._holder, Waiting):
                future._holder.result = result  # no thread of the child waits for it
