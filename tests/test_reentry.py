"""A handler of a signal that flushes, wherever it interrupts its thread, neither hangs nor breaks the call below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer import Producer, ProducerError
from producer.interfaces import Channel
from producer.testing import RecordingSink
from tests.channels.interrupts import interrupted_everywhere
from tests.durable.kit import LOG, file_channel
from tests.support.pipelines import config
from tests.support.waiting import PATIENCE

#: What a main thread does with a producer.
CALLS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send("p", "l", LOG),
    "send_many": lambda producer: producer.stream("p", "l").send_many([LOG] * 3),
    "stats": lambda producer: producer.stats(),
    "add_done_callback": lambda producer: producer.send("p", "l", LOG).add_done_callback(lambda _future: None),
    "result": lambda producer: producer.send("p", "l", LOG).result(PATIENCE),
    "flush": lambda producer: producer.flush(PATIENCE),
}
CHANNELS: dict[str, Callable[[Path], Channel | None]] = {"plain": lambda _: None, "file": file_channel}


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("call", CALLS)
def test_a_handler_that_flushes_ends_wherever_it_interrupts(
    call: str, channel: str, tmp_path: Path, without_coverage: None
) -> None:
    """It is refused where its thread may hold what it would wait for; elsewhere all that was accepted is delivered."""
    ends: Counter[str] = Counter()
    options = {"linger_ms": 1, "batch_count_threshold": 2}
    with Producer(sink=RecordingSink(), channel=CHANNELS[channel](tmp_path), config=config(**options)) as producer:
        producer.send("p", "l", LOG).result(PATIENCE)

        def flush() -> None:
            try:
                producer.flush(PATIENCE)
                ends[""] += 1
            except ProducerError as error:
                ends[str(error).rpartition("; ")[2]] += 1

        interrupted_everywhere(lambda: (lambda: CALLS[call](producer), lambda _: None), 10, handler=flush)
        producer.flush(PATIENCE)
        assert producer.stats().pending == 0
    assert ends.keys() == {"", "let another thread do it"}
