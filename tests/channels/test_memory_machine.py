"""Random histories of a memory channel, compared with a list after every step."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from producer.channels import Event, MemoryChannel
from producer.model.errors import ChannelError, ChannelFullError, TransactionFullError
from producer.model.interfaces import Transaction
from tests.support.clocks import JumpingClock

from .helpers import bodies

#: Counts of situations in all histories; a test checks that all occurred.
SEEN: Counter[str] = Counter()


@dataclass
class Model:
    """Expected content of one transaction."""

    transaction: Transaction
    puts: list[str] = field(default_factory=list)
    taken: dict[int, str] = field(default_factory=dict)


class MemoryChannelMachine(RuleBasedStateMachine):
    """State machine of several transactions on one thread; no other thread can end a wait, so waits time out."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = JumpingClock()
        self.limits = {"capacity": 12, "transaction_capacity": 5, "byte_capacity": 60}
        self.channel = MemoryChannel(
            **self.limits,  # type: ignore[arg-type]
            byte_capacity_buffer_percentage=0,
            keep_alive=1.0,
            clock=self.clock,
        )
        self.queue: dict[int, str] = {}  # by number
        self.numbers = self.bodies = 0
        self.put_successes = self.take_successes = 0
        self.open: list[Model] = []

    def _some(self, which: int) -> Model:
        """Return one of up to four open transactions."""
        while which >= len(self.open):
            transaction = self.channel.transaction()
            transaction.begin()
            self.open.append(Model(transaction))
        return self.open[which]

    @property
    def _taken(self) -> dict[int, str]:
        return {number: body for model in self.open for number, body in model.taken.items()}

    def _bytes(self) -> int:
        return sum(map(len, [*self.queue.values(), *self._taken.values()]))

    @rule(which=st.integers(0, 3), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5))
    def put(self, which: int, sizes: list[int]) -> None:
        """Put some events, if the transaction can hold them."""
        model, texts = self._some(which), []
        for size in sizes:
            self.bodies += 1
            texts.append(f"{self.bodies:x}".rjust(size, "."))
        new = [Event({}, text.encode()) for text in texts]
        if len(model.puts) + len(texts) > self.limits["transaction_capacity"]:
            with pytest.raises(TransactionFullError):
                model.transaction.put_many(new)
            SEEN["too many puts"] += 1
            return
        model.transaction.put_many(new)
        model.puts += texts

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def put_and_commit(self, sizes: list[int]) -> None:
        """Put and commit, so that there is something to take."""
        self.open = [Model(self.channel.transaction()), *self.open]
        self.open[0].transaction.begin()
        self.put(0, sizes)
        self.commit(0, 0.0)
        if len(self.open) > 4:  # the channel was full
            self.roll_back(0, False)

    @rule(which=st.integers(0, 3), count=st.integers(1, 7), max_bytes=st.none() | st.integers(1, 30))
    def take(self, which: int, count: int, max_bytes: int | None) -> None:
        model = self._some(which)
        room = self.limits["transaction_capacity"] - len(model.taken)
        if room <= 0:
            with pytest.raises(TransactionFullError):
                model.transaction.take(count, timeout=0)
            SEEN["too many takes"] += 1
            return
        expected: list[tuple[int, str]] = []
        for number in sorted(self.queue)[: min(count, room)]:
            total = sum(len(body) for _, body in expected) + len(self.queue[number])
            if max_bytes is not None and expected and total > max_bytes:
                break
            expected.append((number, self.queue[number]))
        got = model.transaction.take(count, max_bytes=max_bytes, timeout=None if not expected else 0)
        assert [(event.sequence, event.body.decode()) for event in got] == expected
        for number, body in expected:
            model.taken[number] = body
            del self.queue[number]
        SEEN["took" if expected else "took nothing"] += 1

    @precondition(lambda self: any(model.taken for model in self.open))
    @rule(which=st.integers(0, 3), choice=st.integers(0, 31), strange=st.booleans())
    def acknowledge(self, which: int, choice: int, strange: bool) -> None:
        """Acknowledge some takes; none with an invalid one among them."""
        model = self._some(which)
        chosen = [number for index, number in enumerate(model.taken) if choice >> index & 1]
        named = [Event({}, model.taken[number].encode(), number) for number in chosen]
        if strange:
            with pytest.raises(ChannelError):
                model.transaction.acknowledge([*named, Event({}, b"?", 10**9)])
            SEEN["a strange one"] += 1
            return
        model.transaction.acknowledge(named)
        self.take_successes += len(chosen)
        for number in chosen:
            del model.taken[number]
        SEEN["acknowledged"] += 1

    @rule(which=st.integers(0, 3), timeout=st.sampled_from([None, 0.0, 2.0]))
    def commit(self, which: int, timeout: float | None) -> None:
        """Commit; it succeeds exactly if the balance fits."""
        model = self._some(which)
        more = len(model.puts) - len(model.taken)
        size = sum(map(len, model.puts)) - sum(map(len, model.taken.values()))
        used = len(self.queue) + len(self._taken)
        limit = self.limits["byte_capacity"] or 10**9
        fits = (more <= 0 or used + more <= self.limits["capacity"]) and (size <= 0 or self._bytes() + size <= limit)
        if not fits:
            with pytest.raises(ChannelFullError):
                model.transaction.commit(timeout)
            SEEN["full"] += 1
            return
        model.transaction.commit(timeout)
        model.transaction.close()
        for body in model.puts:
            self.queue[self.numbers] = body
            self.numbers += 1
        if model.puts and model.taken:
            SEEN["both in one"] += 1
        assert model.transaction.last_sequence == (self.numbers - 1 if model.puts else None)
        self.put_successes += len(model.puts)
        self.take_successes += len(model.taken)
        self.open.remove(model)
        SEEN["committed"] += 1

    @precondition(lambda self: self._taken)
    @rule(which=st.integers(0, 3), drop=st.booleans())
    def roll_back(self, which: int, drop: bool) -> None:
        """Roll back, by a call or by dropping the transaction."""
        model = self._some(which)
        self.open.remove(model)
        self.queue |= model.taken
        if model.taken:
            SEEN["came back"] += 1
        if not drop:
            model.transaction.rollback()
            model.transaction.close()
        del model

    @precondition(lambda self: self.queue)
    @rule(
        capacity=st.none() | st.integers(3, 20),
        transaction_capacity=st.none() | st.integers(3, 8),
        byte_capacity=st.none() | st.just(0) | st.integers(20, 100),
    )
    def resize(self, capacity: int | None, transaction_capacity: int | None, byte_capacity: int | None) -> None:
        wanted = {"capacity": capacity, "transaction_capacity": transaction_capacity, "byte_capacity": byte_capacity}
        limits = self.limits | {name: value for name, value in wanted.items() if value is not None}
        if limits["transaction_capacity"] > limits["capacity"]:
            limits["transaction_capacity"] = wanted["transaction_capacity"] = limits["capacity"]
        used = len(self.queue) + len(self._taken)
        fits = used <= limits["capacity"] and (not limits["byte_capacity"] or self._bytes() <= limits["byte_capacity"])
        assert self.channel.resize(**wanted) is fits
        SEEN["resized" if fits else "not resized"] += 1
        if fits:
            self.limits = limits

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        """Advance the clock, which only changes rates and ages."""
        self.clock.advance(seconds)

    @invariant()
    def the_statistics_agree(self) -> None:
        """Compare size, takes, bytes, capacity and sums with the model."""
        stats = self.channel.stats()
        assert (stats.size, stats.taken, stats.bytes) == (len(self.queue), len(self._taken), self._bytes())
        assert (stats.capacity, stats.byte_capacity) == (self.limits["capacity"], self.limits["byte_capacity"] or None)
        assert (stats.put_successes, stats.take_successes) == (self.put_successes, self.take_successes)
        assert stats.put_successes == stats.take_successes + stats.size + stats.taken
        assert stats.put_attempts >= stats.put_successes
        assert stats.take_attempts >= stats.take_successes
        assert (stats.oldest_event_age is None) == (not self.queue)
        assert stats.waiting == 0
        assert not self.channel._lock._is_owned()

    @invariant()
    def the_queue_agrees(self) -> None:
        self.channel.stats()  # a use, at which dropped takes come back
        queue = self.channel._queue[self.channel._head :]
        assert [(entry[0], entry[2].body.decode()) for entry in queue] == sorted(self.queue.items())

    def teardown(self) -> None:
        """Roll everything back, and compare the content with the list."""
        for model in self.open:
            model.transaction.rollback()
            self.queue |= model.taken
        left = []
        while self.queue and len(left) < len(self.queue):
            with self.channel.transaction() as transaction:
                left += bodies(transaction.take(3, timeout=0))
        assert left == [self.queue[number] for number in sorted(self.queue)]
        stats = self.channel.stats()
        assert (stats.size, stats.taken, stats.bytes) == (0, 0, 0)


MemoryChannelMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


class TestMemoryChannel(MemoryChannelMachine.TestCase):  # type: ignore[name-defined,misc]
    """Random histories agree with the list."""


def test_the_histories_were_worth_it() -> None:
    """The histories filled the channel and dropped transactions."""
    if not SEEN:  # run alone
        TestMemoryChannel("runTest").runTest()
    often = {"took", "took nothing", "a strange one", "acknowledged", "full", "committed", "came back", "resized"}
    assert often | {"too many puts", "not resized"} <= set(SEEN)
