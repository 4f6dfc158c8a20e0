"""With any channel, limits, options and destination, accepted records are delivered when ``flush`` returns, and
``close`` leaves nothing, also while threads keep sending.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from producer import NetworkError, Producer, ProducerConfig, SendTimeoutError, TransactionFullError
from producer.channels import FileChannel, MemoryChannel, ProcessFileChannel, SpillableChannel
from producer.model.interfaces import Channel, Delivery, Receipt
from producer.testing import RecordingSink
from tests.support.log_group_schema import contents_of
from tests.support.waiting import PATIENCE, Call

Value = tuple[str, int]
_KINDS = ("memory", "file", "process", "spillable")


class _Destination(RecordingSink):
    """A destination that is slow or unreachable now and then."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice, self._slow, self._broken = dice, dice.random() < 0.5, dice.choice([0.0, 0.2])

    def write(self, delivery: Delivery) -> Receipt:
        """Fail at random."""
        if self._slow:
            threading.Event().wait(self._dice.random() * 0.01)
        if self._dice.random() < self._broken:
            raise NetworkError("RequestError", "no route to host")
        return super().write(delivery)

    def values(self) -> list[Value]:
        """Return topic and number of each log, in the order of delivery."""
        with self._lock:
            found = list(self.deliveries)
        return [(each.key.topic, int(log[0][1])) for each in found for log in contents_of(each.payload.body)]


def _channel(kind: str, dice: random.Random, directory: Path) -> Channel:
    most = dice.choice([1, 2, 3, 7, 50])
    limits = {"transaction_capacity": most, "capacity": max(most, dice.choice([5, 20, 200, 5000]))}
    if kind == "memory":
        return MemoryChannel(**limits)
    fsync = dice.choice(["commit", "os", 0.05])
    if kind == "process":
        return ProcessFileChannel(directory, fsync=fsync, minimum_free_space=0, **limits)
    file = FileChannel(directory, fsync=fsync, minimum_free_space=0, segment_size=8192, **limits)
    return (
        file if kind == "file" else SpillableChannel(MemoryChannel(capacity=5, transaction_capacity=min(5, most)), file)
    )


def _options(dice: random.Random) -> ProducerConfig:
    return ProducerConfig(
        linger_ms=dice.choice([1, 20]),
        base_retry_backoff_ms=1,
        max_retry_backoff_ms=5,
        io_thread_count=dice.choice([1, 3]),
        batch_count_threshold=dice.choice([1, 5, 100]),
        total_size_in_bytes=dice.choice([20_000, 200_000]),
        drain_timeout_ms=60_000,
        max_block_ms=dice.choice([0, 100, 10_000]),
    )


def _send(producer: Producer, sink: _Destination, topic: str, dice: random.Random) -> list[Value]:
    """Send, flush now and then, and check the deliveries; return the accepted values."""
    order = dice.choice([{}, {"ordered": True}, {"idempotent": True}])
    stream, taken = producer.stream("p", "l", topic=topic, **order), list[Value]()
    for first in range(0, 120, 2):
        try:
            if dice.random() < 0.5:
                stream.send_many([{"n": first}, {"n": first + 1}])
            else:
                stream.send([{"n": first}, {"n": first + 1}])
        except (SendTimeoutError, TransactionFullError):
            continue
        taken += [(topic, first), (topic, first + 1)]
        if dice.random() < 0.03:
            producer.flush(PATIENCE)
            assert not set(taken) - set(sink.values()), "flush returned too early"
    return taken


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_every_accepted_record_is_delivered_once_in_the_order_of_its_stream_with_all_options(
    kind: str, seed: int, tmp_path: Path
) -> None:
    """Every accepted record is delivered once, in the order of its stream, with all options."""
    dice = random.Random(f"{kind} {seed}")
    sink = _Destination(random.Random(dice.random()))
    channel = _channel(kind, dice, tmp_path / "d")
    with Producer(sink=sink, channel=channel, config=_options(dice)) as producer:
        seeds = [random.Random(dice.random()) for _ in range(2)]
        calls = [Call(lambda i=i: _send(producer, sink, str(i), seeds[i])) for i in range(2)]
        taken = [value for call in calls for value in call.result()]
    arrived = sink.values()
    assert sorted(arrived) == sorted(taken)
    assert sorted(arrived, key=lambda value: value[0]) == sorted(arrived)
