"""MemoryChannel with many threads: each committed event is taken once, and all threads end."""

import math
import random
import threading
from collections import Counter

import pytest

from producer.channels import Event, MemoryChannel
from producer.model.errors import ChannelFullError, ProducerError, TransactionStateError
from producer.model.interfaces import Stored
from tests.support.waiting import Call, eventually, passed

from .helpers import bodies, drained, events, opened, put


def test_of_two_threads_only_the_committed_events_are_seen() -> None:
    """Of two concurrent transactions only the committed one is visible."""
    channel = MemoryChannel(keep_alive=0)
    both = threading.Barrier(2)

    def work(body: str, end: str) -> None:
        with channel.transaction() as transaction:
            transaction.put(Event({}, body.encode()))
            both.wait()
            getattr(transaction, end)()

    for call in [Call(lambda: work("lost", "rollback")), Call(lambda: work("kept", "commit"))]:
        call.result()
    assert drained(channel) == ["kept"]


def test_a_hundred_threads_that_commit_or_roll_back() -> None:
    """After a hundred threads commit or roll back, the channel holds what was committed."""
    channel = MemoryChannel(capacity=100_000, keep_alive=0)
    barrier = threading.Barrier(100)

    def work(name: int) -> list[str]:
        chance, committed = random.Random(name), []
        barrier.wait()
        for number in range(10):
            texts = [f"{name}-{number}-{i}" for i in range(chance.randint(1, 5))]
            transaction = opened(channel)
            transaction.put_many(events(texts))
            if chance.random() < 0.5:
                transaction.commit()
                committed += texts
            else:
                transaction.rollback()
            transaction.close()
        return committed

    calls = [Call(lambda name=name: work(name)) for name in range(100)]
    committed = [text for call in calls for text in call.result()]
    left = drained(channel)
    assert Counter(left) == Counter(committed)
    assert len(left) > 500
    for name in range(100):
        own = [text for text in left if text.startswith(f"{name}-")]
        assert own == [text for text in committed if text.startswith(f"{name}-")]


@pytest.mark.parametrize("size", [None, 700])
def test_fifty_sources_and_fifty_sinks(size: int | None) -> None:
    """Fifty sources and fifty sinks with rollbacks deliver each event once."""
    channel = MemoryChannel(100, 20, size, 0, math.inf)
    each, sources, sinks = 60, 50, 50
    remaining = threading.Semaphore(each * sources)
    full = threading.Event()

    def source(name: int) -> None:
        chance, number = random.Random(name), 0
        while number < each:
            count = min(each - number, chance.randint(1, 10))
            transaction = opened(channel)
            transaction.put_many(events(f"{name}-{number + i:02}" for i in range(count)))
            if chance.random() < 0.3:
                transaction.rollback()
                continue
            try:
                transaction.commit(0)
            except ChannelFullError:
                full.set()
                transaction.commit()
            number += count

    def sink(name: int) -> list[str]:
        chance, seen = random.Random(-name), []
        while remaining.acquire(blocking=False):
            transaction = opened(channel)
            got = transaction.take(1 if chance.random() < 0.5 else 20)
            if chance.random() < 0.3:
                transaction.rollback()
                remaining.release()
                continue
            extra = sum(remaining.acquire(blocking=False) for _ in got[1:])
            transaction.acknowledge(got[: extra + 1])
            transaction.rollback()
            seen += bodies(got[: extra + 1])
        return seen

    calls = [Call(lambda name=name: sink(name)) for name in range(sinks)]
    putting = [Call(lambda name=name: source(name)) for name in range(sources)]
    for call in putting:
        call.result()
    taken = [text for call in calls for text in call.result()] + drained(channel)
    assert Counter(taken) == Counter(f"{name}-{i:02}" for name in range(sources) for i in range(each))
    stats = channel.stats()
    assert (stats.size, stats.taken, stats.bytes, stats.waiting) == (0, 0, 0, 0)
    assert stats.put_successes == stats.take_successes == each * sources
    passed(full, "a full channel")


def test_order_is_kept_per_source_with_one_sink() -> None:
    """One sink gets each source's events in order."""
    channel = MemoryChannel(50, 10, keep_alive=math.inf)

    def source(name: int) -> None:
        for number in range(0, 200, 5):
            put(channel, *[f"{name}-{number + i:03}" for i in range(5)])

    calls = [Call(lambda name=name: source(name)) for name in range(8)]
    seen: list[str] = []
    while len(seen) < 1600:
        with channel.transaction() as transaction:
            seen += bodies(transaction.take(10))
    for call in calls:
        call.result()
    for name in range(8):
        own = [text for text in seen if text.startswith(f"{name}-")]
        assert own == [f"{name}-{i:03}" for i in range(200)]


def test_resizing_up_and_down_under_load_loses_nothing() -> None:
    """Resizing under load loses nothing."""
    channel = MemoryChannel(100, 5, keep_alive=math.inf)
    done, took = threading.Event(), Counter[str]()
    lock = threading.Lock()  # guards took

    def source(name: int) -> None:
        for number in range(0, 500, 5):
            put(channel, *[f"{name}-{number + i}" for i in range(5)])

    def sink() -> None:
        while True:
            with channel.transaction() as transaction:
                got = bodies(transaction.take(5, timeout=0.05 if done.is_set() else 0.5))
            with lock:
                took.update(got)
            if done.is_set() and not got:
                return

    def resize() -> int:
        changed = 0
        while not done.is_set():
            changed += sum(channel.resize(capacity=capacity, keep_alive=math.inf) for capacity in (5, 200, 20))
        return changed

    sinks, resizing = [Call(sink) for _ in range(4)], Call(resize)
    for call in [Call(lambda name=name: source(name)) for name in range(4)]:
        call.result()
    done.set()
    for call in sinks:
        call.result()
    assert resizing.result() > 3
    assert took == Counter(f"{name}-{i}" for name in range(4) for i in range(500))


class _Held:
    """A method that blocks before or after its call until released."""

    def __init__(self, channel: MemoryChannel, method: str, patch: pytest.MonkeyPatch, *, before: bool = False) -> None:
        self.here, self.go = threading.Event(), threading.Event()
        called = getattr(channel, method)

        def hold(*arguments: object) -> object:
            result = None if before else called(*arguments)
            self.here.set()
            passed(self.go)
            return called(*arguments) if before else result

        patch.setattr(channel, method, hold)


@pytest.mark.parametrize("way", ["_commit_at_once", "_commit"])
def test_a_rollback_that_comes_after_a_commit_is_refused_and_the_commit_returns(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback just after a commit is refused, and the commit returns."""
    channel = MemoryChannel()
    if way == "_commit":
        monkeypatch.setattr(channel, "_commit_at_once", lambda *_: False)
    held, transaction = _Held(channel, way, monkeypatch), opened(channel)
    transaction.put(Event({}, b"kept"))
    commit = Call(transaction.commit)
    passed(held.here)
    with pytest.raises(TransactionStateError, match="it was committed"):
        transaction.rollback()
    held.go.set()
    assert commit.result() is Stored.MEMORY
    transaction.close()
    assert drained(channel) == ["kept"]


def test_a_commit_that_comes_after_a_rollback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit just after a rollback is refused, and stores nothing."""
    channel = MemoryChannel(1)
    put(channel, "first")
    held, transaction = _Held(channel, "_rollback", monkeypatch, before=True), opened(channel)
    transaction.put(Event({}, b"lost"))
    commit = Call(lambda: transaction.commit(math.inf))
    eventually(lambda: channel.stats().waiting, "the commit waits")
    rollback = Call(transaction.rollback)
    passed(held.here)
    assert drained(channel) == ["first"]
    with pytest.raises(TransactionStateError, match="rolled back"):
        commit.result()
    held.go.set()
    rollback.result()
    assert drained(channel) == []


def test_a_finalizer_that_interrupts_a_call_of_the_channel_is_refused() -> None:
    """A finalizer that re-enters the channel gets ProducerError instead of a deadlock."""

    class Asking(dict[str, str | None]):
        def __del__(self) -> None:
            with pytest.raises(ProducerError, match="make that call on another thread"):
                channel.stats()
            refused.append(True)

    refused: list[bool] = []
    channel = MemoryChannel(keep_alive=0)
    transaction = opened(channel)
    transaction.put(Event(Asking(), b"a"))
    transaction.rollback()
    assert refused == [True]
    put(channel, "b")
    assert drained(channel) == ["b"]
