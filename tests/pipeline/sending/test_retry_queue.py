"""The retry queue returns batches in the order of their times, until it is closed."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from producer.pipeline.batching.attempt_history import AttemptHistory
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.batching.stream_state import StreamState
from producer.pipeline.sending.retry_queue import RetryQueue
from producer.testing import ManualClock
from tests.support.pipelines import KEY
from tests.support.waiting import Call, eventually


def batch() -> ProducerBatch:
    """Return a batch without records."""
    return ProducerBatch(
        KEY, stream=StreamState("C"), serial=0, pack_id=None, tail_size=0, created_at=0.0, history=AttemptHistory(1)
    )


@given(st.lists(st.floats(0, 100), max_size=20), st.floats(0, 100))
def test_take_due_returns_exactly_the_batches_that_are_due_earliest_first(dues: list[float], now: float) -> None:
    """take_due returns exactly the batches that are due, earliest first, equal ones in the order of arrival."""
    queue = RetryQueue(ManualClock())
    batches = {id(b): (due, n) for n, due in enumerate(dues) for b in [batch()] if queue.put(b, due)}
    taken = [batches[id(b)] for b in queue.take_due(now)]
    expected = sorted((due, n) for n, due in enumerate(dues) if due <= now)
    assert [due for due, _ in taken] == [due for due, _ in expected]
    assert len(queue) == len(dues) - len(taken)


def test_equal_times_keep_their_order() -> None:
    """Batches due at the same time come out in the order of arrival."""
    queue, batches = RetryQueue(ManualClock()), [batch() for _ in range(10)]
    for one in batches:
        queue.put(one, 1.0)
    assert queue.take_due(1.0) == batches


def test_a_wait_ends_when_the_earliest_is_due() -> None:
    """A waiting thread sleeps until the earliest batch is due, also if an earlier one arrives meanwhile."""
    clock = ManualClock()
    queue = RetryQueue(clock)
    queue.put(batch(), 50.0)
    waiter = Call(lambda: queue.wait(100.0))
    eventually(lambda: clock.waiting == 1)
    queue.put(batch(), 10.0)
    eventually(lambda: clock.waiting == 1)
    clock.advance(9.0)
    eventually(lambda: clock.waiting == 1)
    assert not waiter.done
    clock.advance(1.0)
    waiter.result()


def test_a_retry_or_alarm_after_the_end_of_a_wait_wakes_no_thread() -> None:
    """A retry or alarm after the end of a wait wakes no thread."""
    clock = ManualClock()
    queue = RetryQueue(clock)
    told: list[int] = []
    wake_all = queue._room.wake_all
    queue._room.wake_all = lambda: (told.append(1), wake_all())[1]  # type: ignore[method-assign]
    queue.put(batch(), 50.0)  # no thread waits
    assert told == []
    for due, wakes in ((6.0, 0), (5.0, 0), (4.0, 1)):
        waiter = Call(lambda: queue.wait(5.0))
        eventually(lambda: clock.waiting == 1)
        told.clear()
        if due == 5.0:
            queue.set_alarm(due)
        else:
            queue.put(batch(), due)
        assert len(told) == wakes
        queue.wake()
        waiter.result()


def test_wake_ends_the_current_or_the_next_wait() -> None:
    """A wake before the wait is not lost."""
    clock = ManualClock()
    queue = RetryQueue(clock)
    queue.wake()
    queue.wait(1000.0)
    waiter = Call(lambda: queue.wait(1000.0))
    eventually(lambda: clock.waiting == 1)
    queue.wake()
    waiter.result()


def test_a_closed_queue_is_empty_and_refuses_batches() -> None:
    """A closed queue is empty and refuses batches."""
    queue = RetryQueue(ManualClock())
    for due in (3.0, 1.0, 2.0):
        queue.put(batch(), due)
    queue.close()
    assert not queue.put(batch(), 0.0)
    assert queue.take_due(10.0) == []


def test_many_threads_put_and_take_each_batch_once() -> None:
    """Batches that four threads put come out once each, on any thread."""
    queue, barrier = RetryQueue(ManualClock()), threading.Barrier(6)
    taken: list[ProducerBatch] = []

    def put() -> None:
        barrier.wait()
        for i in range(200):
            queue.put(batch(), float(i % 7))

    def take() -> None:
        barrier.wait()
        for _ in range(400):
            taken.extend(queue.take_due(7.0))

    for call in [*[Call(put) for _ in range(4)], *[Call(take) for _ in range(2)]]:
        call.result()
    taken.extend(queue.take_due(7.0))
    assert len(taken) == len(set(taken)) == 800
