"""Take batches from a channel, have a sink processor deliver them, and then commit the take.

Batches that fail go back to their place in the channel, and are retried after a pause. The pause grows while nothing is
delivered. Events that the destination refuses permanently go to the sink's dead letters, if it has any with room, or
are held back (:mod:`.held_back`). Events that no destination could take are dropped and counted if the sink has no dead
letters. If a sink fails for an event without naming it, the delivery is written in parts (:mod:`.isolation`).

The file is long because taking, delivering, refusing and returning change the state of the same batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...model.errors import ChannelClosedError, ChannelError, InvalidArgumentError
from ...runtime.backoff import Backoff
from ...runtime.clock import Stop
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...text.plural import counted
from ..config.limits import Pace
from ..config.options import words_of
from ..events.batch import EventBatch
from ..events.counters import timed
from ..events.interfaces import Patience, Refusal, RefusedError, SinkError, SinkProcessor, left_of, tick
from ..recoveries import recoveries
from .channel import BatchChannel, can_never_take
from .delivery import Delivery
from .health import Health
from .held_back import HeldBack
from .isolation import is_of_event, write_apart
from .letters import REASON, Letter, marked, marks_of
from .refusals import Known, Progress, by_reason, count_of, events_of, known_of

_log = get_logger("loghub.agent.sink")

#: Seconds between two checks for the stop, while a take waits.
_POLL_SECONDS = 0.5
#: Seconds between two attempts, at first and at most. Flume's are 1 and 5.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: The fill level of a channel from which its sink no longer waits for larger deliveries.
_FILL = 0.5
_NOWHERE = "the sink has no dead_letters"


class SinkRunner:
    """The delivery loop of one sink or one group.

    :param name: the name of the sink or group, for messages.
    :param channel: the channel to take from.
    :param health: records counts, the outcome of each delivery and refused events, and shows the batches.
    :param dead_letters: the channel for refused events; None to retry them.
    :param most_events: the maximum number of events in one delivery.
    :param most_bytes: the maximum bytes in one delivery.
    :param patience: how long to wait for a full delivery; None not to wait.
    :param hurried: returns True if no more events will come.
    :param pace: the limit of CPU.
    """

    def __init__(
        self,
        name: str,
        channel: BatchChannel,
        processor: SinkProcessor,
        health: Health,
        *,
        dead_letters: BatchChannel | None,
        most_events: int,
        most_bytes: int,
        patience: Patience | None = None,
        hurried: Callable[[], bool] = bool,
        pace: Pace | None = None,
    ) -> None:
        self._name, self._channel, self._processor = name, channel, processor
        self._health, self._counters, self._clock = health, health.counters, health.clock
        self._dead_letters, self._held_back = dead_letters, HeldBack(self._clock)
        self._repeated, self._of_held, self._of_dropped = (RateLimitedLog(self._clock) for _ in range(3))
        self._alone: _Alone | None = None
        self._patience, self._hurried = patience, hurried
        self._pace = pace or Pace(None, self._clock)
        self._most_events, self._most_bytes = most_events, most_bytes
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)

    def run(self, stop: Stop) -> None:
        """Deliver until ``stop``, and finish the delivery in flight.

        :raises ChannelError: if the channel fails.
        """
        try:
            while not stop.is_set():
                if self.deliver(_POLL_SECONDS, stop):
                    self._backoff.reset()
                else:
                    stop.wait(self._backoff.next_pause())
                tick(self._processor)
                self._pace.rest(lambda pause: self._channel.hurried or stop.wait(pause))
        finally:
            self.give_back()

    def give_back(self) -> None:
        """Return held-back batches to the channel."""
        self._held_back.give_back()

    def deliver(self, timeout: float, stop: Stop | None = None) -> bool:
        """Take, deliver and commit once. Return False if it failed; an empty channel is not a failure.

        :param timeout: seconds to wait for batches.
        :param stop: ends all waits.
        """
        if self._held_back.is_due() or (self._held_back and self._channel.hurried):
            self._retry_held_back()
        delivery = self._take(timeout, stop)
        if delivery is None:
            self._counters.add(BatchEmptyCount=1)
            self._channel.flush()
            return True
        try:
            self._collect(delivery, stop)
        except BaseException:
            delivery.rollback()
            raise
        self._count(delivery)
        if self._health.tap.viewers:
            self._health.tap.show(*delivery.batches)
        self._health.begun()
        try:
            with timed(self._counters, "DeliveryMicroseconds", self._clock):
                self._write(delivery)
        except RefusedError as error:
            return self._handle_refusals(delivery, error, stop)
        except Exception as error:  # noqa: BLE001  # a plugin's sink may raise anything; logged and retried
            self._fail(delivery, error)
            return False
        except BaseException:
            delivery.rollback()
            raise
        delivery.commit()
        self._health.worked()
        self._counters.add(EventDrainSuccessCount=delivery.count)
        if self._repeated.recovered():
            recoveries.info("sink %s delivers again", self._name)
        return True

    def _take(self, timeout: float, stop: Stop | None) -> Delivery | None:
        """Take batches for one delivery.

        After an event that failed alone, take a larger delivery. Its outcome shows whether the event is to blame.
        """
        if self._alone is None:
            return self._channel.take(self._most_events, self._most_bytes, timeout, stop)
        return self._channel.take(sys.maxsize, self._most_bytes + self._alone.size + 1, timeout, stop)

    def _write(self, delivery: Delivery) -> None:
        """Have the sink write the delivery, in parts if an event makes it fail."""
        before, self._alone = self._alone, None
        try:
            if before is not None and delivery.count > 1:
                raise before.error
            self._processor.write(delivery.batches)
        except Exception as error:
            if not is_of_event(error):
                raise
            if delivery.count == 1:
                self._alone = _Alone(error, delivery.size)
                raise
            write_apart(self._processor.write, delivery.batches, error)

    def _collect(self, delivery: Delivery, stop: Stop | None) -> None:
        """Take more until the delivery is full, or its patience ends.

        Batches that are already there are always taken. So a failed delivery is taken again as it was, or with more
        after it.
        """
        if self._patience is None:
            return
        begun = last = self._clock.monotonic()
        while not delivery.full:
            if delivery.more(0):
                last = self._clock.monotonic()
                continue
            now = self._clock.monotonic()
            left = min(begun + self._patience.seconds, last + self._patience.idle) - now
            ended = stop is not None and stop.is_set()
            if left <= 0 or ended or self._hurried() or self._channel.hurried or self._channel.fill >= _FILL:
                return
            if delivery.more(min(left, _POLL_SECONDS)):
                last = self._clock.monotonic()

    def _count(self, delivery: Delivery) -> None:
        full = delivery.count >= self._most_events or delivery.size >= self._most_bytes
        self._counters.add(EventDrainAttemptCount=delivery.count)
        self._counters.add(**{"BatchCompleteCount" if full else "BatchUnderflowCount": 1})

    def _handle_refusals(self, delivery: Delivery, error: RefusedError, stop: Stop | None) -> bool:
        """Put refused events into the dead letters, or hold them back. The rest was delivered."""
        refusals = error.refusals
        if self._dead_letters is None:  # dropped events do not wait after others
            refusals = sorted(refusals, key=lambda refusal: not refusal.undeliverable)
        known = known_of([refusal.batch for refusal in refusals], error.later, delivery.batches)
        may_wait = known is not None and not error.in_order
        try:
            progress = self._put_all_dead(refusals, 0.0 if may_wait else None, stop)
        except BaseException:
            delivery.rollback()
            raise
        done, waiting = refusals[: progress.done], refusals[progress.done :]
        may_end = known is not None and may_wait and self._held_back.has_room([refusal.batch for refusal in waiting])
        if progress.error is None or may_end:
            self._end(delivery, error, known, progress, [self._letter(refusal) for refusal in waiting])
        else:
            left = delivery.batches if known is None else known.left(progress.done)
            coming = {batch.sequence for batch in left}
            gone = [refusal for refusal in done if known is not None and refusal.batch.sequence not in coming]
            refused = events_of(refusal.batch for refusal in gone)
            self._fail(delivery, progress.error, left, refused, count_of(progress.dead))
            self._log_refusals(gone, [])
            return False
        self._log_refusals(done, progress.dead)
        return True

    def _put_all_dead(self, refusals: Sequence[Refusal], timeout: float | None, stop: Stop | None) -> Progress:
        """Put refusals into the dead letters, as far as these take them.

        Without dead letters, events that no destination could take count as done.
        """
        dead = list[Refusal]()
        for number, refusal in enumerate(refusals):
            if self._dead_letters is None:
                if not refusal.undeliverable:
                    return Progress(number, dead, RefusedError.of([refusal]))
                continue
            try:
                letter = self._letter(refusal)
                dead += [refusal] * self._put_dead(self._dead_letters, letter, timeout, stop)
            except Exception as full:  # noqa: BLE001  # whatever failed, the events are held back and logged
                return Progress(number, dead, full)
        return Progress(len(refusals), dead, None)

    def _letter(self, refusal: Refusal) -> Letter:
        return Letter(refusal.batch, marks_of(refusal, self._name, self._clock))

    def _put_dead(self, letters: BatchChannel, letter: Letter, timeout: float | None, stop: Stop | None = None) -> bool:
        """Put refused events into the dead letters.

        Return False if they were dropped because the dead letters can never take them.

        :raises ChannelError: if the dead letters cannot take them now.
        """
        batch, marks = letter
        try:
            letters.put(marked(batch, marks), timeout, stop)
        except (ChannelError, InvalidArgumentError) as error:
            if not can_never_take(error):
                raise
            self._drop(batch, f"{marks[REASON]}; {letters.name} can never take them: {words_of(error)}")
            return False
        self._health.refused.add(batch, marks[REASON], self._clock)
        return True

    def _drop(self, batch: EventBatch, reason: str) -> None:
        self._health.refused.add(batch, reason, self._clock)
        self._count_dropped(batch.count, reason)

    def _end(
        self,
        delivery: Delivery,
        error: RefusedError,
        known: Known | None,
        progress: Progress,
        waiting: Sequence[Letter],
    ) -> None:
        """End a delivery of which all was delivered except refused events and those after them.

        :param waiting: refused events that are held back.
        """
        later = error.later if known is None else known.later
        refused = known._replace(later=()).left(progress.done) if known is not None else ()
        done = delivery.count - events_of(error.batches) - events_of(error.later)
        self._held_back.add(delivery.commit(later, refused, numbered=error.numbered), waiting)
        self._counters.add(EventDrainSuccessCount=done, EventRefusedCount=count_of(progress.dead))
        if progress.error is not None:
            self._log_held_back(progress.error)
        if progress.error is None or done or progress.done:
            self._health.worked()

    def _log_refusals(self, done: Sequence[Refusal], dead: Sequence[Refusal]) -> None:
        """Log the outcome of refused events, one line for each reason."""
        if self._dead_letters is None:
            for refusal in done:
                self._health.refused.add(refusal.batch, f"{refusal.reason}; {_NOWHERE}", self._clock)
            for reason, count in by_reason(done).items():
                self._count_dropped(count, f"{reason}; {_NOWHERE}")
        else:
            for reason, count in by_reason(dead).items():
                self._log_dead(count, self._dead_letters.name, reason)

    def _log_dead(self, dead: int, letters: str, reason: str) -> None:
        _log.error(
            "sink %s: %s refused permanently, and put into channel %s: %s",
            self._name,
            counted(dead, "event"),
            letters,
            reason,
        )

    def _count_dropped(self, dropped: int, reason: str) -> None:
        self._counters.add(EventDroppedCount=dropped)
        more = self._of_dropped.due_error(SinkError(reason))
        if more is not None:
            _log.error("sink %s: %s dropped: %s%s", self._name, counted(dropped, "event"), reason, more)

    def _log_held_back(self, why: Exception) -> None:
        self._health.failed(why)
        self._counters.add(EventWriteFail=1)
        more = self._of_held.due_error(why)
        if more is not None:
            _log.warning(
                "sink %s: %s refused permanently; held back while others are delivered: %s%s",
                *(self._name, counted(len(self._held_back), "event"), words_of(why), more),
            )

    def _retry_held_back(self) -> None:
        """Retry the events that are held back.

        :raises ChannelError: if the channel fails.
        """
        failed: list[Exception] = []

        def deliver(letters: Sequence[Letter]) -> None:
            try:
                self._deliver_refused(letters)
            except Exception as error:
                failed.append(error)
                raise

        try:
            self._held_back.retry(deliver)
        except Exception as error:
            if error not in failed:
                raise
            self._log_held_back(error)
        else:
            self._health.worked()
            if self._of_held.recovered():
                recoveries.info("sink %s: no held-back events remain", self._name)

    def _deliver_refused(self, letters: Sequence[Letter]) -> None:
        parts = [letter.batch for letter in letters]
        if self._dead_letters is None:
            with timed(self._counters, "DeliveryMicroseconds", self._clock):
                self._processor.write(parts)
            self._counters.add(EventDrainSuccessCount=events_of(parts))
            return
        for number, letter in enumerate(letters):
            try:
                is_dead = self._put_dead(self._dead_letters, letter, 0.0)
            except Exception as error:
                raise SinkError(words_of(error), parts[number:]) from error
            if is_dead:
                self._counters.add(EventRefusedCount=letter.batch.count)
                self._log_dead(letter.batch.count, self._dead_letters.name, letter.marks[REASON])

    def _fail(
        self,
        delivery: Delivery,
        error: Exception,
        later: Sequence[EventBatch] | None = None,
        refused: int = 0,
        dead: int = 0,
    ) -> None:
        """Return failed batches to the channel, and log the failure.

        :param later: the batches to return; None for those that the error names.
        :param refused: the number of the other events that were refused.
        :param dead: the number of these that are dead letters.
        """
        if later is None:
            later = left_of(error, delivery.batches)
        self._health.failed(error)
        self._counters.add(EventWriteFail=1)
        more = self._repeated.due_error(error)
        if more is not None:
            _log.warning(
                "sink %s: %s returned to channel %s: %s%s",
                *(self._name, counted(events_of(later), "event"), self._channel.name, words_of(error), more),
            )
        done = delivery.count - events_of(later)
        try:
            if done:
                delivery.commit(later)
                self._backoff.reset()
                self._health.worked()
                self._counters.add(EventDrainSuccessCount=done - refused, EventRefusedCount=dead)
            else:
                delivery.rollback()
        except ChannelClosedError:
            _log.info("sink %s: channel %s was closed meanwhile", self._name, self._channel.name)


class _Alone(NamedTuple):
    """An event that was taken alone, and failed.

    :ivar error: its error.
    :ivar size: its bytes.
    """

    error: Exception
    size: int
