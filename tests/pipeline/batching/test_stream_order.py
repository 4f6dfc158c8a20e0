"""Each stream keeps its order, whatever the server does to its batches."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from producer import (
    BodyTooLargeError,
    NetworkError,
    QuotaExceededError,
    RejectedError,
    ServerError,
    UnauthorizedError,
)
from producer.durable.event_format import read_event
from producer.durable.pipeline import DurablePipeline
from producer.durable.shutdown import DurableCloser
from producer.model.interfaces import Delivery, Receipt
from producer.model.records import StreamKey
from producer.pipeline.batching.stream_order import StreamOrder
from producer.runtime.clock import Deadline
from producer.testing import RecordingSink
from producer.wire.log_group import split_records
from tests.durable.kit import KeptChannel, by_hand, drive
from tests.pipeline.sending.test_retry_queue import batch
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, record

FAULTS: dict[str, Any] = {
    "network": lambda: NetworkError("RequestError", "x"),
    "stored": lambda: NetworkError("RequestError", "x", may_have_been_stored=True),
    "busy": lambda: ServerError("ServerBusy", "x"),
    "quota": lambda: QuotaExceededError("WriteQuotaExceed", "x"),
    "unauthorized": lambda: UnauthorizedError("Unauthorized", "x"),
    "rejected": lambda: RejectedError("ParameterInvalid", "x"),
    "too large": lambda: BodyTooLargeError("PostBodyTooLarge", "x"),
}


def test_only_the_first_of_a_line_may_go_and_the_next_goes_when_it_is_gone() -> None:
    """A batch behind another one of its stream is sent once that one is completed; other streams are not affected."""
    order, first, second, other = StreamOrder(), batch(), batch(), batch()
    other.key = KEY._replace(topic="other")
    for one in (first, second, other):
        order.opened(one)
    assert not order.ready(second)
    assert order.ready(other)
    assert order.ready(first)
    assert order.gone(first) is second
    assert order.gone(second) is None


def test_a_batch_that_still_takes_records_is_not_sent_because_it_is_first() -> None:
    """A batch behind a completed one waits until it is sealed itself."""
    order, first, second = StreamOrder(), batch(), batch()
    order.opened(first)
    order.opened(second)
    order.ready(first)
    assert order.gone(first) is None
    assert order.ready(second)


def test_the_first_half_is_sent_then_the_second_then_the_batches_behind_the_whole() -> None:
    """The first half is sent, then the second, then the batches behind the whole."""
    order, whole, after, left, right = StreamOrder(), batch(), batch(), batch(), batch()
    order.opened(whole)
    order.opened(after)
    order.ready(whole)
    order.ready(after)
    order.cut(whole, (left, right))
    assert not order.ready(right)
    assert order.ready(left)
    assert order.gone(left) is right
    assert order.gone(right) is after


def test_no_batch_is_sent_after_a_freeze() -> None:
    """After a freeze, neither the next batch of a line nor a new one is sent."""
    order, first, second = StreamOrder(), batch(), batch()
    order.opened(first)
    order.opened(second)
    order.ready(first)
    order.ready(second)
    order.freeze()
    assert order.gone(first) is None
    assert not order.ready(second)


class _Server(RecordingSink):
    """Meets the planned faults first, and keeps the stored records of each stream in order.

    :ivar open: attempts in flight, by stream: two at a time would be out of order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.stored: dict[str, list[bytes]] = defaultdict(list)
        self.refused: Counter[bytes] = Counter()

    def write(self, delivery: Delivery) -> Receipt:
        fault = self.faults.pop(0) if self.faults else None
        records = self.decode(delivery.payload)
        if fault in (None, "stored"):
            self.stored[delivery.key.topic] += records
        if fault == "rejected" or (fault == "too large" and len(records) == 1):
            self.refused.update(records)
        if fault is None:
            return super().write(delivery)
        error = FAULTS[fault]()
        raise error


def _first_times(records: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(records))


def _restarted(one: DurablePipeline, how: str, *parts: Any) -> DurablePipeline:
    """Return another pipeline on the same channels, after a close or a crash of the first one."""
    if how == "close":
        DurableCloser(one).close(Deadline.after(one.clock, 0))
    else:  # as a process that died, without notifications
        for taking in one.feeder.takings:
            taking.roll_back()
    return by_hand(*parts, batch_count_threshold=4)


_STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 5)),
    st.tuples(st.just("fault"), st.sampled_from(sorted(FAULTS)), st.integers(1, 3)),
    st.tuples(st.sampled_from(["close", "crash"]), st.just(0), st.just(1)),
    st.tuples(
        st.sampled_from(["feed", "feed", "attempt", "move", "attempt", "acks", "flush", "time"]),
        st.just(0),
        st.integers(1, 3),
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_STEPS, min_size=1, max_size=80))
def test_each_stream_arrives_in_order_and_every_record_arrives_or_is_a_dead_letter(steps: list[Any]) -> None:
    """Through retries, quotas, splits, permanent failures, closes and crashes, streams stay in order, and nothing is
    lost.
    """
    clock, server = JumpingClock(), _Server()
    channel, dead = KeptChannel(clock=clock), KeptChannel(clock=clock)
    one = by_hand(server, channel, dead, clock, batch_count_threshold=4)
    sent: dict[str, list[bytes]] = defaultdict(list)
    number = 0
    for action, what, times in steps:
        if action == "send":
            logs = [record(f"{number + i}") for i in range(times)]
            number += times
            key = StreamKey("p", f"l{what % 2}", str(what), "here")
            one.admission.accept(key, b"".join(logs), len(logs), None)
            sent[str(what)] += logs
        elif action == "fault":
            server.faults += [what] * times
        elif action == "time":
            clock.advance(0.05 * times)
        elif action in {"close", "crash"}:
            one = _restarted(one, action, server, channel, dead, clock)
        for _ in range(times):
            if action == "feed":
                one.feeder.run_once(0)
            elif action == "move":
                one.pipeline.mover.run_once()
            elif action == "attempt":
                one.pipeline.io_pool.run_next()
            elif action == "acks":
                one.acks.run_once()
            elif action == "flush":
                one.pipeline.accumulator.seal_open()
    for _ in range(200):
        drive(one)
        if not one.stored:
            break
        clock.advance(60)
    buried = {log for event in dead.events() for log in split_records(read_event(event).record)}
    for topic, logs in sent.items():
        arrived = _first_times(server.stored[topic])
        # A refused record that is retried after a crash has lost its place.
        in_order = [log for log in arrived if log not in server.refused]
        assert in_order == [log for log in logs if log in set(in_order)]
        assert set(logs) == set(arrived) | (buried & set(logs))
        assert set(logs) - set(server.refused) <= set(arrived)
    assert buried <= set(server.refused)
    assert (one.stored, one.pipeline.budget.used, one.stats().kept_back) == (0, 0, 0)
