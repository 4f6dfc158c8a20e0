"""Every entry takes memory and a place in one step, waits under one deadline, and survives interrupts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from producer import ProducerError, SendTimeoutError
from producer.pipeline.batching.accumulator import Piece
from producer.pipeline.batching.batch import BATCH_OVERHEAD
from producer.pipeline.batching.memory import Reservation
from producer.pipeline.batching.open_records import RECORD_OVERHEAD
from producer.pipeline.pipeline import Pipeline
from producer.testing import ManualClock
from tests.support.garbage import uncollected
from tests.support.pipelines import KEY, record, settle, threadless
from tests.support.short_way import by_hand, known
from tests.support.waiting import Call, eventually

OTHER = KEY._replace(topic="other")


def _held(pipeline: Pipeline) -> int:
    return sum(batch.held for batch in pipeline.accumulator.incomplete())


# One deadline.


def _single(pipeline: Pipeline) -> object:
    return pipeline.admission.accept(KEY, record("x" * 100), 1, None)


def _listed(pipeline: Pipeline) -> object:
    return pipeline.admission.accept(KEY, record("x" * 50, 2), 2, None)


def _many(pipeline: Pipeline) -> object:
    return pipeline.admission.accept_pieces([Piece(KEY, record("x" * 100), 1)], None)


@pytest.mark.parametrize("send", [_single, _listed, _many])
def test_all_waits_of_one_send_have_one_deadline(send: Callable[[Pipeline], object]) -> None:
    """If reserved memory turns out to be too little, the further wait has the same deadline."""
    clock = ManualClock()
    pipeline = threadless(clock=clock, total_size_in_bytes=20_000, max_block_ms=5000, linger_ms=10**6)
    pipeline.admission.accept(KEY, record(), 1, None)
    others = Reservation(pipeline.budget, 0)
    assert others.reserve(20_000 - pipeline.budget.used)
    sender = Call(lambda: send(pipeline))
    eventually(lambda: clock.waiting == 1)
    clock.advance(4.0)
    eventually(lambda: clock.waiting == 1)
    pipeline.accumulator.seal_open()  # it now needs a batch of its own, and memory for it
    wanted = pipeline.budget.waiters[0].wanted
    with pipeline.budget.lock:
        others.hold(-wanted)
        pipeline.budget.serve()
    eventually(lambda: pipeline.budget.waiting == 1 and pipeline.budget.waiters[0].wanted != wanted)
    eventually(lambda: clock.waiting == 1)
    clock.advance(0.9)
    eventually(lambda: clock.waiting == 1)
    assert not sender.done
    clock.advance(0.2)
    with pytest.raises(SendTimeoutError) as caught:
        sender.result()
    assert caught.value.waited == pytest.approx(5.1)
    assert (pipeline.budget.reserved, pipeline.budget.waiting) == (others.held, 0)


# Reserved memory.


def test_at_completion_the_records_bytes_are_returned_their_overhead_follows_before_the_callback_runs() -> None:
    """At completion the records' bytes are returned; their overhead follows before the callback runs."""
    pipeline = threadless()
    seen: list[dict[str, int]] = []
    pipeline.admission.accept(KEY, record("x" * 500), 1, lambda _r: seen.append(dict(pipeline.stats().memory_by_stage)))
    pipeline.accumulator.seal_open()
    pipeline.io_pool.run_next()
    assert pipeline.stats().memory_by_stage["callbacks"] == pipeline.budget.used == BATCH_OVERHEAD + RECORD_OVERHEAD
    settle(pipeline)
    assert [sum(stages.values()) for stages in seen] == [0]


# The cost of a refused send.


class _Steps:
    """Counts the instructions of the package."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if "/producer/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        self.count += event == "opcode"
        return self


def _steps_of(call: Callable[[], object]) -> int:
    steps, before = _Steps(), sys.gettrace()
    with uncollected():
        sys.settrace(steps)
        try:
            call()
        finally:
            sys.settrace(before)
    return steps.count


def test_a_send_without_memory_is_refused_in_as_many_steps_among_a_thousand_open_batches_as_among_ten(
    without_coverage: None,
) -> None:
    """A send without memory is refused in as many steps among a thousand open batches as among ten."""
    steps = []
    for streams in (10, 1000):
        pipeline = threadless(total_size_in_bytes=40_000_000, max_block_ms=0)
        for number in range(streams):
            pipeline.admission.accept(KEY._replace(topic=f"{number}"), record(), 1, None)
        memory = Reservation(pipeline.budget, 0)
        assert memory.reserve(40_000_000 - pipeline.budget.used)
        pipeline.hurry = lambda: None  # type: ignore[method-assign]  # what the mover would do on its own thread

        def refused(pipeline: Pipeline = pipeline) -> None:
            with pytest.raises(SendTimeoutError):
                pipeline.admission.accept(KEY._replace(topic="0"), record("x" * 100), 1, None)

        refused()
        steps.append(_steps_of(refused))
    assert steps[0] == steps[1]


def test_used_sealed_and_reserved_agree_with_the_batches_after_each_step_of_their_lives() -> None:
    """used, sealed and reserved agree with the batches after each step of their lives."""
    pipeline = threadless(batch_count_threshold=3)
    budget = pipeline.budget

    def look() -> None:
        batches = pipeline.accumulator.incomplete()
        taking = {*pipeline.accumulator._open.values(), *pipeline.accumulator._forming.values()}
        assert budget.used == sum(batch.held for batch in batches) + budget.reserved
        assert budget.sealed == sum(batch.held for batch in batches if batch not in taking)

    for number in range(10):
        pipeline.admission.accept(KEY if number % 3 else OTHER, record(), 1, None)
        look()
    pipeline.accumulator.seal_open()
    look()
    settle(pipeline)
    look()
    assert (budget.used, budget.sealed, budget.reserved) == (0, 0, 0)


@pytest.mark.parametrize("call", ["send", "send_list", "send_many", "flush"])
def test_a_finalizer_in_the_middle_of_a_send_is_refused_and_does_not_hang(call: str) -> None:
    """A finalizer that sends while its thread holds the lock gets an error, and nothing is done."""
    producer, pipeline = by_hand()
    stream = producer.stream("p", "l")
    known(stream, {"k": "v"})
    stream._open = None  # the log takes the general way, as one without memory
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: stream.send({"k": "w"}),
        "send_list": lambda: stream.send([{"k": "w"}]),
        "send_many": lambda: stream.send_many([{"k": "w"}] * 3),
        "flush": lambda: producer.flush(1),
    }

    def finalize() -> None:
        with pipeline.budget.lock:  # as the interrupted thread
            calls[call]()

    before = producer.stats().accepted
    with pytest.raises(ProducerError, match="a finalizer or a signal handler"):
        Call(finalize).result()
    assert producer.stats().accepted == before
    stream.send({"k": "x"})
    assert producer.stats().accepted == before + 1
