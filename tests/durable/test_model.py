"""A model of a process with a channel: random sends, faults, refusals, stops, resumes and deaths, in steps of one
thread.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from producer import BodyTooLargeError, NetworkError, RejectedError, Result, SendFuture, ServerError, StreamStoppedError
from producer.durable.event_format import read_event
from producer.durable.pipeline import DurablePipeline
from producer.model.errors import AttemptError
from producer.model.interfaces import Delivery, Event, Receipt
from producer.model.records import StreamKey
from producer.testing import RecordingSink
from tests.durable.kit import KeptChannel, by_hand, drive
from tests.support.log_group_schema import contents_of
from tests.support.pipelines import KEY, record, step

ORDERED = [KEY._replace(topic=f"ordered-{n}", order="ordered") for n in range(2)]
PLAIN = [KEY._replace(topic=f"plain-{n}") for n in range(2)]


#: Histories that once lost a record.
_FOUND = [122, 173, 319]


class _Server(RecordingSink):
    """A server with random faults; it refuses a batch with a bad log, whose text ends in "!", permanently.

    :ivar healthy: True to answer every valid request.
    :ivar stored: the values that arrived, by topic.
    :ivar refused: the values of refused batches.
    """

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self.healthy = False
        self.stored: dict[str, list[str]] = {}
        self.refused: set[str] = set()

    def write(self, delivery: Delivery) -> Receipt:
        """Answer one attempt."""
        texts = [log[0][1].decode() for log in contents_of(delivery.payload.body)]
        fault = None if self.healthy else self._fault(len(texts))
        if fault is not None and not fault.may_have_been_stored:
            raise fault
        if any(text.endswith("!") for text in texts):
            self.refused.update(texts)
            raise RejectedError("ParameterInvalid", "bad", http_status=400)
        self.stored.setdefault(delivery.key.topic, []).extend(texts)
        if fault is not None:
            raise fault
        return super().write(delivery)

    def _fault(self, logs: int) -> AttemptError | None:
        faults: list[AttemptError | None] = [
            None,
            None,
            NetworkError("RequestError", "no answer", may_have_been_stored=True),
            NetworkError("RequestError", "no route"),
            ServerError("ServerBusy", "later"),
        ]
        if logs > 1:
            faults.append(BodyTooLargeError("PostBodyTooLarge", "too large"))
        return self._dice.choice(faults)


class _Letters(KeptChannel):
    """Dead letters that refuse at random, until they are healthy."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(keep_alive=0)
        self._dice = dice
        self.healthy = False

    def transaction(self):  # type: ignore[no-untyped-def]  # as of the base
        """Refuse, or begin."""
        if not self.healthy and self._dice.random() < 0.3:
            raise OSError("no disk today")
        return super().transaction()


class _History:
    """Several producers, one after the other, on one channel."""

    def __init__(self, seed: int, *, dead_letters: bool) -> None:
        self.dice = random.Random(seed)
        self.server, self.channel = _Server(self.dice), KeptChannel(transaction_capacity=self.dice.choice([5, 1000]))
        self.letters = _Letters(self.dice) if dead_letters else None
        self.sent: dict[StreamKey, list[str]] = {key: [] for key in (*ORDERED, *PLAIN)}
        self.life: list[tuple[SendFuture, list[str], list[Result]]] = []
        self.lists: list[list[str]] = []
        self.one = self._begin()
        self._numbers = itertools.count()

    def _begin(self) -> DurablePipeline:
        threshold = self.dice.choice([1, 3])
        return by_hand(
            self.server, self.channel, self.letters, batch_count_threshold=threshold, base_retry_backoff_ms=1
        )

    def send(self) -> None:
        """Send a log, or a list, on any stream that is not stopped."""
        key = self.dice.choice([*ORDERED, *PLAIN])
        texts = [self._text() for _ in range(self.dice.choice([1, 1, 1, 2, 5]))]
        told: list[Result] = []
        body = b"".join(map(record, texts))
        try:
            future = self.one.admission.accept(key, body, len(texts), told.append)
        except StreamStoppedError:
            return
        self.sent[key] += texts
        self.life.append((future, texts, told))
        self.lists.append(texts)

    def _text(self) -> str:
        return f"{next(self._numbers)}{'!' if self.dice.random() < 0.05 else ''}"

    def resume(self) -> None:
        """Resume a stopped stream."""
        self.one.resume(self.dice.choice(ORDERED))

    def die(self) -> None:
        """Simulate SIGKILL: taken events that were not acknowledged are in the channel again."""
        for taking in self.one.feeder.takings:
            taking.roll_back()
        self.life.clear()
        self.one = self._begin()

    def pass_time(self) -> None:
        """Advance the clock, so that retries are due and the linger of open batches ends."""
        self.one.clock.advance(self.dice.choice([0.01, 1.0]))  # type: ignore[attr-defined]
        self.one.pipeline.mover.run_once()

    def attempt(self) -> None:
        """Make one attempt, without an acknowledgement."""
        self.one.pipeline.io_pool.run_next()

    def acknowledge(self) -> None:
        """Acknowledge completed events to the channel."""
        self.one.acks.run_once()

    def run(self, steps: int) -> None:
        """Run this many steps."""
        one_each: list[Callable[[], object]] = [
            self.send,
            self.send,
            self.resume,
            self.pass_time,
            lambda: self.one.feeder.run_once(0),
            self.attempt,
            self.attempt,
            lambda: step(self.one.pipeline),
            self.acknowledge,
            lambda: drive(self.one),
        ]
        for _ in range(steps):
            if self.dice.random() < 0.02:
                self.die()
            self.dice.choice(one_each)()

    def heal(self) -> None:
        """End all faults except bad logs, and deliver everything."""
        self.server.healthy = True
        if self.letters is not None:
            self.letters.healthy = True
        for _ in range(200):
            drive(self.one)
            self.one.pipeline.accumulator.seal_open()
            for key in ORDERED:
                self.one.resume(key)
            self.one.clock.advance(1)  # type: ignore[attr-defined]
        drive(self.one)

    def buried(self) -> set[str]:
        """Return the logs of the dead letters."""
        events: list[Event] = [] if self.letters is None else self.letters.events()
        return {log[0][1].decode() for event in events for log in contents_of(read_event(event).record)}

    def refused(self) -> set[str]:
        """Return the refused logs; if a split list is refused, all of its logs."""
        refused = self.server.refused
        return set(itertools.chain.from_iterable(texts for texts in self.lists if not refused.isdisjoint(texts)))


@pytest.mark.parametrize("dead_letters", [True, False])
@pytest.mark.parametrize("seed", [*range(40), *_FOUND])
def test_no_history_of_sends_faults_and_deaths_loses_or_reorders_a_record(seed: int, dead_letters: bool) -> None:
    """Each accepted log is delivered, a dead letter, or reported as refused; ordered streams keep their order.

    Each future of the last life ends once, with the true outcome. All memory and the whole channel are free in the end.
    """
    history = _History(seed, dead_letters=dead_letters)
    history.run(400)
    history.heal()
    life = list(history.life)
    if history.one.stats().kept_back:  # events of streams without order that the dead letters refused
        history.die()
        history.heal()
    one, server = history.one, history.server
    gone = history.buried() if dead_letters else history.refused()
    for key, sent in history.sent.items():
        arrived = server.stored.get(key.topic, [])
        assert set(sent) <= {*arrived, *gone}, "lost"
        assert set(arrived) <= set(sent)
        if key.order:
            firsts = list(dict.fromkeys(arrived))
            assert firsts == sorted(firsts, key=int), "overtaken"
    everything = set(itertools.chain.from_iterable(server.stored.values()))
    for future, texts, told in life:
        assert [result.successful for result in told] == [future.exception(0) is None]
        assert set(texts) <= everything or not told[0].successful
    assert (one.stored, one.stats().kept_back, one.pipeline.budget.used) == (0, 0, 0)
    assert all(not taking._outstanding for taking in one.feeder.takings)
