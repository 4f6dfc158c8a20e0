"""SinkRunner: takes batches from a channel, lets a sink processor deliver them, and commits the take after that.

What fails goes back to the channel, in its place, and is tried again after a pause, which grows as long as nothing at
all is delivered. Events that a destination refuses permanently go to the sink's dead letters, if it has any with room;
else they wait (:mod:`.held_back`). Events that no destination could take are dropped and counted where the sink has
no dead letters. A sink that fails for an event, and does not say for which, is asked part by part (:mod:`.isolation`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...model.errors import ChannelClosedError, ChannelError, InvalidArgumentError
from ...runtime.clock import Clock, Stop, SystemClock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...text.plural import counted
from ..config.limits import Pace
from ..config.options import words_of
from ..events.batch import EventBatch
from ..events.counters import Counters, timed
from ..events.interfaces import Patience, Refusal, RefusedError, SinkError, SinkProcessor, left_of, tick
from ..recoveries import recoveries
from .channel import BatchChannel, can_never_take
from .delivery import Delivery
from .health import Health
from .held_back import Aside
from .isolation import is_of_event, write_apart
from .letters import REASON, Letter, marked, marks_of
from .refusals import Buried, Known, by_reason, count_of, events_of, known_of

_log = get_logger("loghub.agent.sink")

#: Seconds: a take looks for its end so often.
_LOOK = 0.5
#: Between two tries of what failed, at first and at most: Flume's are 1 and 5.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: A channel that is so full waits for its sink, not the sink for it.
_FILL = 0.5


class SinkRunner:
    """Serves one sink, or one group.

    :param name: of the sink or group, for messages.
    :param channel: where the batches lie.
    :param dead_letters: where refused ones go; None to try them again.
    :param most_events: of one delivery.
    :param most_bytes: likewise.
    :param patience: how long to wait for so much; None not at all.
    :param hurried: whether nothing more will come.
    :param health: is told how each delivery ended.
    :param pace: says how long to wait before the next one.
    """

    def __init__(
        self,
        name: str,
        channel: BatchChannel,
        processor: SinkProcessor,
        counters: Counters,
        *,
        dead_letters: BatchChannel | None,
        most_events: int,
        most_bytes: int,
        patience: Patience | None = None,
        hurried: Callable[[], bool] = bool,
        clock: Clock | None = None,
        health: Health | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._name, self._channel, self._processor = name, channel, processor
        self._counters, self._dead_letters = counters, dead_letters
        self._repeated, self._clock = RateLimitedLog(clock), clock or SystemClock()
        self._aside, self._of_aside = Aside(self._clock), RateLimitedLog(clock)
        self._of_dropped = RateLimitedLog(clock)
        self._alone: _Alone | None = None
        self._patience, self._hurried = patience, hurried
        self._health = health or Health(counters, self._clock)
        self._pace = pace or Pace(None, self._clock)
        self._most_events, self._most_bytes = most_events, most_bytes
        self._pause = _FIRST_PAUSE

    def run(self, stop: Stop) -> None:
        """Deliver until ``stop``; what is on its way then is finished.

        :raises ChannelError: the channel fails.
        """
        try:
            while not stop.is_set():
                if self.deliver(_LOOK, stop):
                    self._pause = _FIRST_PAUSE
                else:
                    stop.wait(self._pause)
                    self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                tick(self._processor)
                self._pace.rest(lambda pause: self._channel.hurried or stop.wait(pause))
        finally:
            self.give_back()

    def give_back(self) -> None:
        """What waits aside goes back to the channel."""
        self._aside.give_back()

    def deliver(self, timeout: float, stop: Stop | None = None) -> bool:
        """Take, deliver and commit once; False if it failed. Nothing to take is no failure.

        :param timeout: seconds to wait for something.
        :param stop: ends the wait, also that for more.
        """
        if self._aside.is_due() or (self._aside and self._channel.hurried):
            self._settle()
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
        self._health.begun()
        try:
            with timed(self._counters, "DeliveryMicroseconds", self._clock):
                self._write(delivery)
        except RefusedError as error:
            return self._bury(delivery, error, stop)
        except Exception as error:  # noqa: BLE001  # a sink of anybody's; nothing is lost, and it is told
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
        """Take for one delivery. Behind an event that failed alone something more: whether that can be written says
        whether the event is to blame.
        """
        if self._alone is None:
            return self._channel.take(self._most_events, self._most_bytes, timeout, stop)
        return self._channel.take(sys.maxsize, self._most_bytes + self._alone.size + 1, timeout, stop)

    def _write(self, delivery: Delivery) -> None:
        """Have the sink write what was taken; without the events for which it fails, if it says of others."""
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
        """Take more, until it is enough or was long enough. What is there already is always taken: so what failed is
        taken again as it was, or with more behind it.
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
            if delivery.more(min(left, _LOOK)):
                last = self._clock.monotonic()

    def _count(self, delivery: Delivery) -> None:
        full = delivery.count >= self._most_events or delivery.size >= self._most_bytes
        self._counters.add(EventDrainAttemptCount=delivery.count)
        self._counters.add(**{"BatchCompleteCount" if full else "BatchUnderflowCount": 1})

    def _bury(self, delivery: Delivery, error: RefusedError, stop: Stop | None) -> bool:
        """Put what was refused into the dead letters, or aside; the rest was delivered."""
        refusals = error.refusals
        if self._dead_letters is None:  # those that are dropped do not wait behind others
            refusals = sorted(refusals, key=lambda refusal: not refusal.undeliverable)
        known = known_of([refusal.batch for refusal in refusals], error.later, delivery.batches)
        may_wait = known is not None and not error.in_order
        try:
            buried = self._put_all_dead(refusals, 0.0 if may_wait else None, stop)
        except BaseException:
            delivery.rollback()
            raise
        done, waiting = refusals[: buried.done], refusals[buried.done :]
        may_end = known is not None and may_wait and self._aside.has_room([refusal.batch for refusal in waiting])
        if buried.why is None or may_end:
            self._end(delivery, error, known, buried, [self._letter(refusal) for refusal in waiting])
        else:
            left = delivery.batches if known is None else known.left(buried.done)
            coming = {batch.sequence for batch in left}
            gone = [refusal for refusal in done if known is not None and refusal.batch.sequence not in coming]
            self._fail(delivery, buried.why, left, events_of(refusal.batch for refusal in gone), count_of(buried.dead))
            self._tell_of(gone, [])
            return False
        self._tell_of(done, buried.dead)
        return True

    def _put_all_dead(self, refusals: Sequence[Refusal], timeout: float | None, stop: Stop | None) -> Buried:
        """Put refusals into the dead letters, as far as these take them. Without any, those that no destination could
        take are done as well.
        """
        dead = list[Refusal]()
        for number, refusal in enumerate(refusals):
            if self._dead_letters is None:
                if not refusal.undeliverable:
                    return Buried(number, dead, RefusedError.of([refusal]))
                continue
            try:
                letter = self._letter(refusal)
                dead += [refusal] * self._put_dead(self._dead_letters, letter, timeout, stop)
            except Exception as full:  # noqa: BLE001  # whatever keeps them from there, nothing is lost, and it is told
                return Buried(number, dead, full)
        return Buried(len(refusals), dead, None)

    def _letter(self, refusal: Refusal) -> Letter:
        return Letter(refusal.batch, marks_of(refusal, self._name, self._clock))

    def _put_dead(self, letters: BatchChannel, letter: Letter, timeout: float | None, stop: Stop | None = None) -> bool:
        """Put refused events into the dead letters; they are dropped if these can never take them. True if they are
        there.

        :raises ChannelError: the dead letters cannot take them now.
        """
        batch, marks = letter
        try:
            letters.put(marked(batch, marks), timeout, stop)
        except (ChannelError, InvalidArgumentError) as error:
            if not can_never_take(error):
                raise
            self._count_dropped(batch.count, f"{marks[REASON]}; {letters.name} can never take them: {words_of(error)}")
            return False
        return True

    def _end(
        self, delivery: Delivery, error: RefusedError, known: Known | None, buried: Buried, waiting: Sequence[Letter]
    ) -> None:
        """End a delivery of which all but what was refused, and what comes behind, was delivered.

        :param waiting: refused events that the dead letters do not have.
        """
        later = error.later if known is None else known.later
        refused = known._replace(later=()).left(buried.done) if known is not None else ()
        done = delivery.count - events_of(error.batches) - events_of(error.later)
        self._aside.add(delivery.commit(later, refused, numbered=error.numbered), waiting)
        self._counters.add(EventDrainSuccessCount=done, EventRefusedCount=count_of(buried.dead))
        if buried.why is not None:
            self._have_waiting(buried.why)
        if buried.why is None or done or buried.done:
            self._health.worked()

    def _tell_of(self, done: Sequence[Refusal], dead: Sequence[Refusal]) -> None:
        """Log what became of refused events, a line for each reason."""
        if self._dead_letters is None:
            for reason, count in by_reason(done).items():
                self._count_dropped(count, f"{reason}; the sink has no dead_letters")
        else:
            for reason, count in by_reason(dead).items():
                self._tell_of_dead(count, self._dead_letters.name, reason)

    def _tell_of_dead(self, dead: int, letters: str, reason: str) -> None:
        _log.error(
            "sink %s: %s refused permanently, and put into %s: %s", self._name, counted(dead, "event"), letters, reason
        )

    def _count_dropped(self, dropped: int, reason: str) -> None:
        self._counters.add(EventDroppedCount=dropped)
        more = self._of_dropped.due_error(SinkError(reason))
        if more is not None:
            _log.error("sink %s: %s dropped: %s%s", self._name, counted(dropped, "event"), reason, more)

    def _have_waiting(self, why: Exception) -> None:
        self._health.failed(why)
        self._counters.add(EventWriteFail=1)
        more = self._of_aside.due_error(why)
        if more is not None:
            _log.warning(
                "sink %s: %s refused permanently, and held back while others are delivered: %s%s",
                *(self._name, counted(len(self._aside), "event"), words_of(why), more),
            )

    def _settle(self) -> None:
        """Try again what waits aside.

        :raises ChannelError: the channel fails.
        """
        failed: list[Exception] = []

        def go(letters: Sequence[Letter]) -> None:
            try:
                self._deliver_refused(letters)
            except Exception as error:
                failed.append(error)
                raise

        try:
            self._aside.settle(go)
        except Exception as error:
            if error not in failed:
                raise
            self._have_waiting(error)
        else:
            self._health.worked()
            if self._of_aside.recovered():
                recoveries.info("sink %s: no refused events are held back any more", self._name)

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
                self._tell_of_dead(letter.batch.count, self._dead_letters.name, letter.marks[REASON])

    def _fail(
        self,
        delivery: Delivery,
        error: Exception,
        later: Sequence[EventBatch] | None = None,
        buried: int = 0,
        dead: int = 0,
    ) -> None:
        """
        :param later: what goes back to the channel; None for what the error says.
        :param buried: so many events of the rest were refused.
        :param dead: so many of these are dead letters.
        """
        if later is None:
            later = left_of(error, delivery.batches)
        self._health.failed(error)
        self._counters.add(EventWriteFail=1)
        more = self._repeated.due_error(error)
        if more is not None:
            _log.warning(
                "sink %s: %d events go back to %s: %s%s",
                *(self._name, events_of(later), self._channel.name, words_of(error), more),
            )
        done = delivery.count - events_of(later)
        try:
            if done:
                delivery.commit(later)
                self._pause = _FIRST_PAUSE
                self._health.worked()
                self._counters.add(EventDrainSuccessCount=done - buried, EventRefusedCount=dead)
            else:
                delivery.rollback()
        except ChannelClosedError:
            _log.info("sink %s: %s was closed meanwhile", self._name, self._channel.name)


class _Alone(NamedTuple):
    """An event that was taken alone, and failed.

    :ivar error: why.
    :ivar size: its bytes.
    """

    error: Exception
    size: int
