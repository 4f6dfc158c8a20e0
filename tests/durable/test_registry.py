"""Futures of records that wait for the feeder are found again, and kept only as long as needed."""

from __future__ import annotations

import concurrent.futures
import gc
import threading
import tracemalloc
from collections.abc import Sequence
from functools import partial

import pytest

from producer import Attempt, Result, SendFuture
from producer.channels import MemoryChannel
from producer.durable.registry import Registry, StoredFuture, staying
from producer.model.interfaces import Stored
from producer.pipeline.settling.callbacks import BatchHandler
from producer.testing import RecordingSink
from tests.durable.kit import KeptChannel, by_hand, drive
from tests.support.pipelines import KEY, record
from tests.support.waiting import PATIENCE, Call, eventually

FAILED = Result(successful=False, attempts=(), attempt_count=0)


class Handler(BatchHandler):
    """Records the futures that it is given."""

    def __init__(self, told: list[SendFuture] | None = None) -> None:
        self._told = [] if told is None else told

    def put_futures(self, futures: Sequence[SendFuture], result: Result) -> None:
        self._told.extend(futures)


def _registry() -> Registry:
    return Registry(MemoryChannel(), Handler())


def test_a_future_is_found_again_once() -> None:
    """The number of a record leads to its future, once."""
    registry = _registry()
    futures = registry.open(3, None)
    assert [future.number for future in futures] == [0, 1, 2]
    assert registry.claim(1) is futures[1]
    assert registry.claim(1) is None
    assert registry.claim(77) is None


def test_a_future_without_references_or_listeners_costs_nothing() -> None:
    """Ten thousand futures without references leave nothing in the registry, nor in memory."""
    registry = _registry()
    registry.open(1, None)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10_000):
            registry.open(1, None)
        assert len(registry) == 0
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


def test_a_kept_future_takes_about_the_memory_that_the_module_documents() -> None:
    """A kept future takes about the memory that the module documents."""
    registry = _registry()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [registry.open(1, None)[0] for _ in range(2000)]
        each = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
    finally:
        tracemalloc.stop()
    assert 250 < each < 500


@pytest.mark.parametrize("listener", ["callback", "done callback", "waiter", "as_completed"])
def test_a_future_with_a_listener_is_kept(listener: str) -> None:
    """A future with a callback, a done-callback or a waiter is kept without other references."""
    registry = _registry()
    future = registry.open(1, (lambda _result: None) if listener == "callback" else None)[0]
    if listener == "done callback":
        future.add_done_callback(lambda _future: None)
    elif listener == "waiter":
        concurrent.futures.wait([future], 0)
    elif listener == "as_completed":
        with pytest.raises(TimeoutError):
            next(concurrent.futures.as_completed([future], 0))
    del future
    gc.collect()
    assert len(registry) == 1
    assert isinstance(registry.claim(0), StoredFuture)


def test_a_thread_in_result_follows_the_future_to_its_next_holder_without_polling() -> None:
    """A thread in result() follows the future to its next holder, without polling."""
    registry = _registry()
    future = registry.open(1, None)[0]
    waiting = future._holder
    holder = _Holder()
    call = Call(lambda: future.exception(PATIENCE))
    eventually(lambda: waiting._event is not None)  # type: ignore[attr-defined]
    assert registry.claim(0) is future
    future._holder = holder
    waiting.wake()  # type: ignore[attr-defined]
    eventually(holder.asked.is_set)
    holder.result = FAILED
    holder.done.set()
    assert call.result().result is FAILED


def test_a_thread_that_waits_for_another_record_is_not_woken_the_registry_has_dropped_the_claimed_one() -> None:
    """A thread that waits for another record is not woken; the registry has dropped the claimed one."""
    registry = _registry()
    taken, other = registry.open(2, None)
    calls = [Call(partial(future.exception, PATIENCE)) for future in (taken, other)]
    waiting, still = taken._holder, other._holder
    eventually(lambda: waiting._event and still._event)  # type: ignore[attr-defined]
    assert registry.claim(0) is taken
    holder = taken._holder = _Holder()
    registry.adopted(waiting)  # type: ignore[arg-type]
    eventually(holder.asked.is_set)
    assert not still._event.is_set()  # type: ignore[attr-defined]
    assert registry.left_in_child() == [other]
    holder.result = FAILED
    holder.done.set()
    still.settle(FAILED)  # type: ignore[attr-defined]
    assert [call.result().result for call in calls] == [FAILED, FAILED]


def test_a_thread_that_waited_before_the_record_was_fed_gets_the_result_of_its_batch() -> None:
    """A thread that waited before the record was fed gets the result of its batch."""
    one = by_hand(RecordingSink(), KeptChannel(), batch_count_threshold=1)
    future = one.admission.accept(KEY, record(), 1, None)
    call, waiting = Call(lambda: future.result(PATIENCE)), future._holder
    eventually(lambda: waiting._event)  # type: ignore[attr-defined]
    drive(one)
    assert call.result().successful


def test_a_wakeup_before_the_wait_is_not_lost() -> None:
    """A wait that begins just after a batch took over does not block."""
    registry = _registry()
    waiting = registry.open(1, None)[0]._holder
    waiting.wake()  # type: ignore[attr-defined]
    Call(lambda: waiting.wait(None)).result()


class _Holder:
    """A holder like a batch."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self.asked, self.done = threading.Event(), threading.Event()

    def wait(self, timeout: float | None) -> None:
        self.asked.set()
        self.done.wait(timeout)

    def follow(self, position: int) -> None:
        pass

    def keep_future(self, position: int, future: object) -> None:
        pass


def test_close_returns_the_committed_and_their_senders_settle_the_others() -> None:
    """A put that is committed after close began is completed by its sender; each future completes once."""
    told = list[SendFuture]()
    registry = Registry(KeptChannel(), Handler(told))
    early, late, never = registry.open(3, print)
    assert registry.committed([early], Stored.DISK, 1) == []
    for _ in range(2):
        registry.leave_all(lambda: staying(Attempt(success=False)))
    assert told == [early]
    assert registry.committed([late], Stored.DISK, 2) == [late]
    registry.withdraw([never])
    assert len(registry) == 0


@pytest.mark.parametrize(("stored", "synced", "expected"), [(Stored.DISK, -1, True), (Stored.MEMORY, 99, False)])
def test_stored_is_true_at_once_or_stays_false(stored: Stored, synced: int, expected: bool) -> None:
    """stored is True at once, or stays False."""
    future = Registry(_Synced(synced), Handler()).open(1, None)[0]  # type: ignore[arg-type]
    assert future.stored is False
    future.committed(stored, 5)
    assert future.stored is expected


def test_stored_becomes_true_when_the_channel_has_synced_it() -> None:
    """stored of a record in the page cache becomes True, and stays so, when the channel has synced it."""
    channel = _Synced(4)
    future = Registry(channel, Handler()).open(1, None)[0]  # type: ignore[arg-type]
    future.committed(Stored.CACHE, 5)
    assert future.stored is False
    channel.synced_sequence = 5
    assert future.stored is True
    channel.synced_sequence = -1
    assert future.stored is True


class _Synced:
    def __init__(self, synced: int) -> None:
        self.synced_sequence = synced
