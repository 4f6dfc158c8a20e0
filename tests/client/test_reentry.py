"""A handler of a signal that flushes, wherever it interrupts its thread, neither hangs nor breaks the call below it."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer import FlushTimeoutError, Producer, ProducerError
from producer.channels import MemoryChannel
from producer.model.interfaces import Channel
from producer.testing import RecordingSink
from tests.channels.interrupts import interrupted_everywhere
from tests.durable.kit import LOG, file_channel
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, Call, eventually

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
    assert ends_of_flushes(CALLS[call], CHANNELS[channel](tmp_path)).keys() == {"", "let another thread do it"}


def ends_of_flushes(call: Callable[[Producer], Any], channel: Channel | None) -> Counter[str]:
    """How flushes end by a handler that interrupts a call at each place."""
    ends: Counter[str] = Counter()
    options = {"linger_ms": 1, "batch_count_threshold": 2}
    with Producer(sink=RecordingSink(), channel=channel, config=config(**options)) as producer:
        producer.send("p", "l", LOG).result(PATIENCE)

        def flush() -> None:
            try:
                producer.flush(PATIENCE)
                ends[""] += 1
            except ProducerError as error:
                ends[str(error).rpartition("; ")[2]] += 1

        # Within these a thread would hold a lock that those need for whom the flush waits.
        beside = ("Event.wait", "Condition.wait", "Condition.__enter__", "Condition.__exit__")
        calls = (lambda: call(producer), lambda _: None)
        interrupted_everywhere(lambda: calls, 10, handler=flush, beside=beside)
        producer.flush(PATIENCE)
        assert producer.stats().pending == 0
    return ends


def test_a_handler_may_flush_that_interrupts_a_send_which_waits_for_room(request: pytest.FixtureRequest) -> None:
    """Nothing is held meanwhile: who waits for a server that is slow can be told to deliver what is there."""
    sink, ends, asked = GatedSink(), list[str](), list[int]()
    main = threading.get_ident()

    def flush(*_: object) -> None:
        try:
            producer.flush(0)
        except FlushTimeoutError:  # it was not refused
            ends.append("waited")
        except ProducerError:  # a moment before the send waits, or between two looks
            ends.append("refused")

    def has_waited() -> bool:
        if len(ends) == len(asked) and "waited" not in ends:
            asked.append(main)
            signal.pthread_kill(main, signal.SIGUSR1)
        return "waited" in ends

    def ask() -> None:
        try:
            eventually(lambda: producer.stats().waiting_senders)
            eventually(has_waited)
        finally:
            sink.gate.set()

    before = signal.signal(signal.SIGUSR1, flush)
    request.addfinalizer(lambda: signal.signal(signal.SIGUSR1, before))
    with Producer(sink=sink, channel=MemoryChannel(capacity=1), config=config(linger_ms=1)) as producer:
        producer.send("p", "l", LOG)
        asking = Call(ask)
        assert producer.send("p", "l", LOG).result(PATIENCE).successful
        asking.result()
