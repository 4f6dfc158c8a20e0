"""A pipeline without threads, driven through random histories, and checked after every step.

The machine plays all the threads. It lets the mover, the IO pool and the handlers do one thing at a time, in any order,
while sends, faults, jumps of time, flushes and closes come in between. The file is long because the machine is one
class with all its rules.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from producer import (
    BodyTooLargeError,
    ClockSkewError,
    CloseTimeoutError,
    CredentialsError,
    FlushTimeoutError,
    LogSizeTooLargeError,
    NetworkError,
    ProducerClosedError,
    ProjectNotConfiguredError,
    QuotaExceededError,
    RejectedError,
    Result,
    SendFuture,
    SendTimeoutError,
    ServerError,
    StreamKey,
    UnauthorizedError,
)
from producer.model.interfaces import Delivery, Receipt
from producer.pipeline.batching.batch import BatchState, ProducerBatch
from producer.pipeline.shutdown import Shutdown
from producer.testing import RecordingSink
from tests.support.clocks import JumpingClock
from tests.support.pipelines import queued, record, result_of, step, threadless

S = BatchState
#: A copy of the table, so that a mistake in the code's own table shows.
ALLOWED = {
    (S.OPEN, S.QUEUED),
    (S.OPEN, S.FAILED),
    (S.QUEUED, S.SENDING),
    (S.QUEUED, S.FAILED),
    (S.SENDING, S.SUCCEEDED),
    (S.SENDING, S.FAILED),
    (S.SENDING, S.SPLIT),
    (S.SENDING, S.WAITING),
    (S.WAITING, S.QUEUED),
    (S.WAITING, S.FAILED),
}
FINAL = {S.SUCCEEDED, S.FAILED, S.SPLIT}

FAULTS: dict[str, Callable[[], BaseException]] = {
    "network": lambda: NetworkError("RequestError", "refused"),
    "server": lambda: ServerError("InternalServerError", "x", http_status=500),
    "credentials": lambda: CredentialsError("CredentialsError", "x"),
    "unauthorized": lambda: UnauthorizedError("Unauthorized", "x", http_status=401),
    "skew": lambda: ClockSkewError("RequestTimeExpired", "x", http_status=400),
    "quota": lambda: QuotaExceededError("WriteQuotaExceed", "x", http_status=403),
    "rejected": lambda: RejectedError("ParameterInvalid", "x", http_status=400),
    "too large": lambda: BodyTooLargeError("PostBodyTooLarge", "x", http_status=400),
    "not configured": lambda: ProjectNotConfiguredError("ProjectConfigNotExist", "x"),
    "bug": lambda: RuntimeError("a bug before the request"),
    "bug, stored": lambda: RuntimeError("a bug after the request"),
    "ambiguous": lambda: NetworkError("RequestError", "timeout", may_have_been_stored=True),
    "ambiguous, stored": lambda: NetworkError("RequestError", "timeout", may_have_been_stored=True),
}


class FaultySink(RecordingSink):
    """A sink whose next attempts meet the planned faults, some of them after it stored the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.met: Counter[str] = Counter()
        self.stored: Counter[bytes] = Counter()
        self.extra: Counter[bytes] = Counter()

    def write(self, delivery: Delivery) -> Receipt:
        """Meet the next fault, or store."""
        fault = self.faults.pop(0) if self.faults else None
        self.met[fault or "none"] += 1
        records = self.decode(delivery.payload)
        if fault is None or fault.endswith("stored"):
            self.stored.update(records)
        if fault is None:
            return super().write(delivery)
        if fault.endswith("stored"):
            self.extra.update(records)
        error = FAULTS[fault]()
        raise error


class Sent:
    """The model of one accepted send."""

    def __init__(self, logs: list[bytes]) -> None:
        self.logs = logs
        self.future: SendFuture | None = None
        self.results: list[Result] = []
        self.done_calls = 0


class PipelineMachine(RuleBasedStateMachine):
    """The machine, whose rules are the steps of all threads."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = JumpingClock()
        self.sink = FaultySink()
        self.pipeline = threadless(
            self.sink,
            self.clock,
            total_size_in_bytes=40_000,
            max_block_ms=0,
            batch_count_threshold=6,
            batch_size_threshold_in_bytes=3000,
            linger_ms=1000,
            retries=3,
        )
        self.shutdown = Shutdown(self.pipeline)
        self.closing = False
        self.sent: list[Sent] = []
        self.logs = 0
        self.seen: Counter[str] = Counter()
        self.finals: dict[ProducerBatch, tuple[BatchState, Result | None]] = {}
        self._watch_states()

    def _watch_states(self) -> None:
        original = self._original = ProducerBatch._move
        machine = self

        def _move(batch: ProducerBatch, to: BatchState) -> bool:
            before = batch.state
            moved = original(batch, to)
            if moved:
                assert (before, to) in ALLOWED, (before, to)
                machine.seen[to.value] += 1
            return moved

        ProducerBatch._move = _move  # type: ignore[method-assign]

    # Events of a pipeline.

    def _key(self, stream: int) -> StreamKey:
        return StreamKey(f"project-{stream % 2}", f"logstore-{stream % 3}", f"topic-{stream}", "here")

    def _accept(self, stream: int, sizes: list[int], reaction: str) -> None:
        logs = []
        for size in sizes:
            self.logs += 1
            logs.append(record(f"{self.logs}:" + "x" * size))
        sent = Sent(logs)

        def callback(result: Result) -> None:
            sent.results.append(result)
            if reaction == "raises":
                raise ValueError("a callback of a user")
            if reaction == "exits":
                raise SystemExit(1)
            if reaction == "sends" and len(self.sent) < 300:
                self.seen["sent in a callback"] += 1
                self._accept(stream, [5], "counts")
            if reaction == "closes":
                self._close(None)

        try:
            future = self.pipeline.admission.accept(
                self._key(stream), b"".join(logs), len(logs), None if reaction == "none" else callback
            )
        except SendTimeoutError as error:
            assert error.used + error.wanted > error.limit  # noqa: PT017
            self.seen["refused for memory"] += 1
            return
        except LogSizeTooLargeError:
            self.seen["refused for size"] += 1
            return
        except ProducerClosedError:
            assert self.closing
            self.seen["refused, closed"] += 1
            return
        sent.future = future
        if reaction == "none":
            sent.results = []
        self.sent.append(sent)
        future.add_done_callback(lambda _future: setattr(sent, "done_calls", sent.done_calls + 1))

    @rule(
        stream=st.integers(0, 5),
        size=st.integers(0, 4000),
        reaction=st.sampled_from(["counts", "counts", "none", "raises", "exits", "sends"]),
    )
    def send(self, stream: int, size: int, reaction: str) -> None:
        """Send one log."""
        self._accept(stream, [size], reaction)

    @rule(
        stream=st.integers(0, 5),
        sizes=st.lists(st.integers(0, 900), min_size=1, max_size=9),
        reaction=st.sampled_from(["counts", "none", "raises", "sends"]),
    )
    def send_list(self, stream: int, sizes: list[int], reaction: str) -> None:
        """Send a list of logs."""
        self._accept(stream, sizes, reaction)

    @rule(stream=st.integers(0, 5))
    def send_what_can_never_fit(self, stream: int) -> None:
        """Send a log larger than the memory."""
        self._accept(stream, [50_000], "counts")

    @rule(faults=st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=5))
    def order_faults(self, faults: list[str]) -> None:
        """Plan faults of the next attempts."""
        self.sink.faults += faults

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.2, 1.0, 1.001, 60.0]))
    def time_passes(self, seconds: float) -> None:
        """Let time jump."""
        self.clock.advance(seconds)

    @rule()
    def move(self) -> None:
        """Run the mover once."""
        self.pipeline.mover.run_once()

    @rule(times=st.integers(1, 4))
    def attempt(self, times: int) -> None:
        """Make attempts as IO threads do."""
        for _ in range(times):
            self.pipeline.io_pool.run_next()

    @rule(which=st.integers(0, 1))
    def handle(self, which: int) -> None:
        """Let one handler handle one batch."""
        self.pipeline.settlement.handlers[which].run_next()

    @rule()
    def seal_open(self) -> None:
        """Begin a flush, without the wait."""
        self.pipeline.accumulator.seal_open()

    @rule(timeout=st.sampled_from([0.0, 0.3, 30.0, None]))
    def flush(self, timeout: float | None) -> None:
        """Flush, possibly with a timeout."""
        before = list(self.sent)
        try:
            self.pipeline.flush(timeout)
        except FlushTimeoutError:
            self.seen["flush timed out"] += 1
            return
        self.seen["flushed"] += 1
        for sent in before:
            assert sent.future is not None
            assert sent.future.done()
            assert sent.done_calls == 1

    @precondition(lambda self: len(self.sent) > 3)
    @rule(timeout=st.sampled_from([0.0, 0.1, 5.0, None]))
    def close(self, timeout: float | None) -> None:
        """Close, possibly with a timeout; afterwards nothing is accepted, and nothing is left."""
        self._close(timeout)
        self._finish()

    @precondition(lambda self: len(self.sent) > 3)
    @rule(stream=st.integers(0, 5))
    def send_what_closes(self, stream: int) -> None:
        """Send a record whose callback closes the producer."""
        self._accept(stream, [3], "closes")

    def _close(self, timeout: float | None) -> None:
        self.closing = True
        try:
            self.shutdown.close(timeout)
        except CloseTimeoutError as error:
            self.seen["close timed out"] += 1
            if error.failed_records:
                self.seen["abandoned"] += 1
        self.seen["closed"] += 1

    # Invariants after every step.

    def _queued_in_handlers(self) -> Iterator[ProducerBatch]:
        for handler in self.pipeline.settlement.handlers:
            items: list[Any] = []
            while not handler._queue.empty():
                items.append(handler._queue.get())
            for item in items:
                handler._queue.put(item)
                if isinstance(item, ProducerBatch):
                    yield item

    @invariant()
    def memory_is_what_batches_hold(self) -> None:
        """Bytes used = bytes held by batches that are alive or wait for their callbacks."""
        alive = self.pipeline.accumulator.incomplete()
        told_soon = list(self._queued_in_handlers())
        assert not {*alive} & {*told_soon}
        assert self.pipeline.budget.used == sum(batch.held for batch in [*alive, *told_soon])
        assert all(batch.held >= 0 for batch in [*alive, *told_soon])
        assert self.pipeline.budget.used <= self.pipeline.budget.limit

    @invariant()
    def final_states_stay(self) -> None:
        """A completed batch never changes, and never counts as alive."""
        for batch in self.pipeline.accumulator.incomplete():
            assert not batch.state.final
            assert batch.result is None
            self.finals.setdefault(batch, (batch.state, None))
        for batch, (state, result) in list(self.finals.items()):
            if state in FINAL:
                assert (batch.state, batch.result) == (state, result)
            else:
                self.finals[batch] = (batch.state, batch.result)

    @invariant()
    def sums_agree(self) -> None:
        """accepted = delivered + failed + pending; the stages' memory sums to what is used."""
        stats = self.pipeline.stats()
        assert stats.accepted == sum(len(sent.logs) for sent in self.sent)
        assert stats.accepted == stats.delivered + stats.failed + stats.pending
        assert stats.memory_used == sum(stats.memory_by_stage.values())
        assert stats.attempts <= sum(self.sink.met.values())
        for known in stats.streams:
            assert known.accepted == known.delivered + known.failed + known.pending

    @invariant()
    def each_send_settles_once(self) -> None:
        """A callback and a done-callback run at most once, with the future's own result, which never changes."""
        for sent in self.sent:
            assert len(sent.results) <= 1
            assert sent.done_calls <= 1
            future = sent.future
            assert future is not None
            if sent.results or sent.done_calls:
                assert future.done()
            if sent.results:
                assert result_of(future) == sent.results[0]

    @invariant()
    def results_tell_the_truth(self) -> None:
        """A successful record is on the server unchanged; a failed one that cannot have been stored is not.

        Nothing arrives twice without an attempt whose outcome was unknown.
        """
        stored = self.sink.stored
        for sent in self.sent:
            result = None if sent.future is None else result_of(sent.future)
            for log in sent.logs:
                assert stored[log] <= 1 + self.sink.extra[log]
            if result is not None and result.successful:
                assert all(stored[log] for log in sent.logs)
            elif result is not None and not result.may_have_been_stored:
                assert not any(stored[log] for log in sent.logs)

    def _finish(self) -> None:
        """Check that everything is completed and notified after a close, and all memory is returned."""
        while step(self.pipeline):
            pass
        self.check()
        assert self.pipeline.accumulator.incomplete() == []
        assert self.pipeline.budget.used == 0
        for sent in self.sent:
            assert sent.future is not None
            assert sent.future.done()
            assert sent.done_calls == 1

    def check(self) -> None:
        """Check every invariant."""
        self.memory_is_what_batches_hold()
        self.final_states_stay()
        self.sums_agree()
        self.each_send_settles_once()
        self.results_tell_the_truth()

    def teardown(self) -> None:
        """Close without a deadline, and check that nothing is left."""
        try:
            self._close(None)
            self._finish()
        finally:
            ProducerBatch._move = self._original  # type: ignore[method-assign]


#: ``make soak`` runs many more, different ones each time.
SOAK = bool(os.environ.get("PRODUCER_SOAK"))
PipelineMachine.TestCase.settings = settings(
    max_examples=2000 if SOAK else 120, derandomize=not SOAK, stateful_step_count=50
)


class TestPipeline(PipelineMachine.TestCase):  # type: ignore[name-defined,misc]
    """Random histories keep every invariant."""


@pytest.fixture
def machine() -> Iterator[PipelineMachine]:
    machine = PipelineMachine()
    yield machine
    machine.check()
    machine.teardown()


def _drain(machine: PipelineMachine, seconds: float = 60.0) -> None:
    for _ in range(20):
        while step(machine.pipeline):
            machine.check()
        machine.time_passes(seconds)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_machine_reaches_every_fault(machine: PipelineMachine, fault: str) -> None:
    """Each fault, planned once and then forever, is met, and the machine's checks hold."""
    machine.order_faults([fault])
    machine.send_list(0, [10, 10, 10], "counts")
    machine.send(0, 5, "raises")
    machine.seal_open()
    _drain(machine)
    machine.order_faults([fault] * 40)
    machine.send_list(1, [10, 10, 10], "sends")
    machine.send(1, 5, "counts")
    machine.seal_open()
    _drain(machine)
    assert machine.sink.met[fault] >= 2
    assert machine.seen["failed"]
    assert all(sent.done_calls == 1 for sent in machine.sent)


def test_the_machine_reaches_splits_inside_and_between_sends(machine: PipelineMachine) -> None:
    """Splits happen between sends, and inside a list that is alone."""
    machine.order_faults(["too large"] * 2)
    machine.send_list(0, [10, 10], "counts")
    machine.send_list(0, [10, 10], "counts")
    machine.seal_open()
    _drain(machine)
    assert machine.seen["split"] == 2
    assert machine.seen["succeeded"] == 3


def test_the_machine_reaches_quota_holds(machine: PipelineMachine) -> None:
    """A batch of a throttled logstore waits without an attempt."""
    machine.order_faults(["quota"])
    machine.send(0, 10, "counts")
    machine.seal_open()
    machine.attempt(1)
    machine.send(0, 10, "counts")
    machine.seal_open()
    machine.attempt(1)
    machine.check()
    assert machine.seen["waiting"] == 1
    assert queued(machine.pipeline.io_pool) == 1
    assert sum(machine.sink.met.values()) == 1
    _drain(machine)
    assert machine.seen["succeeded"] == 2


def test_the_machine_reaches_refusals_and_timeouts(machine: PipelineMachine) -> None:
    """Full memory, giant logs, timeouts of flush and close, abandoned records, and sends after close all happen."""
    for _ in range(15):
        machine.send(0, 4000, "counts")
    machine.send_what_can_never_fit(0)
    machine.flush(0.0)
    machine.order_faults(["network"] * 3)
    machine.attempt(3)
    machine.check()
    machine.send(1, 10, "counts")
    machine.close(0.0)
    machine.send(1, 10, "counts")
    reached = {
        "refused for memory",
        "refused for size",
        "flush timed out",
        "close timed out",
        "abandoned",
        "refused, closed",
        "waiting",
    }
    assert reached <= set(machine.seen)


def test_the_machine_reaches_callbacks_that_send_and_close(machine: PipelineMachine) -> None:
    """Callbacks send, exit and close, also during a flush."""
    for reaction in ("sends", "exits", "raises", "counts"):
        machine.send(0, 10, reaction)
    machine.send_what_closes(1)
    machine.flush(None)
    assert {"sent in a callback", "closed"} <= set(machine.seen)


def test_the_machine_sees_an_error_of_accounting(machine: PipelineMachine) -> None:
    """The machine detects a byte too few, a changed batch, and a lost record."""
    machine.send(0, 10, "counts")
    machine.pipeline.budget.release(1)
    with pytest.raises(AssertionError):
        machine.check()
    machine.pipeline.budget.release(-1)
    machine.check()
    machine.flush(None)
    machine.check()
    batch = next(iter(machine.finals))
    result, batch.result = batch.result, None
    with pytest.raises(AssertionError):
        machine.check()
    batch.result = result
    stored, machine.sink.stored = machine.sink.stored, Counter()
    with pytest.raises(AssertionError):
        machine.check()
    machine.sink.stored = stored
