"""The message about records lost at the end names the reason, their number, and the time they had."""

import gc
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator

import pytest

from producer import Producer
from producer.client import at_exit
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import eventually


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[GatedSink]:
    """Return a sink whose attempts hang, in a process that has not begun to exit."""
    monkeypatch.setattr(at_exit, "_draining", {})
    monkeypatch.setattr(at_exit, "_exited", False)
    sink = GatedSink()
    yield sink
    sink.gate.set()


def said(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = [message for message in caplog.messages if "delivered and is lost" in message]
    return line


def seconds_of(line: str) -> float:
    found = re.search(r"(?:It|They) had (\d+\.\d) s of the (\d+\.\d) s", line)
    assert found is not None
    return float(found[1])


def test_without_a_close_call_the_records_get_drain_timeout_ms_at_the_exit(
    stalled: GatedSink, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a close() call, the records get drain_timeout_ms at the exit."""
    producer = Producer(sink=stalled, config=config(drain_timeout_ms=200))
    producer.send("p", "l", {"k": "v"})
    at_exit.drain_all()
    line = said(caplog)
    assert "1 record could not be delivered and is lost: close() had not been called when the process ended" in line
    assert 0.2 <= seconds_of(line) < 2
    stalled.gate.set()
    producer.close()


def test_an_interrupted_close_is_reported_with_the_time_that_records_had(
    stalled: GatedSink, caplog: pytest.LogCaptureFixture
) -> None:
    """After Ctrl-C in close(), the message says that close() was interrupted, and the time the records really had."""
    producer = Producer(sink=stalled, config=config(drain_timeout_ms=5000))
    producer.send("p", "l", {"k": "v"})

    def press() -> None:
        eventually(lambda: producer._shutdown is not None and producer._shutdown.begun)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt), producer:
        pass
    presser.join()
    shutdown = producer._shutdown
    assert shutdown is not None
    at_exit.drain(shutdown, producer.name, 0.1)
    line = said(caplog)
    assert "close() had been called, and was interrupted" in line
    assert "nobody" not in line
    assert seconds_of(line) < 2
    stalled.gate.set()


def test_the_message_says_that_the_last_reference_was_dropped_not_that_the_process_ended(
    stalled: GatedSink, caplog: pytest.LogCaptureFixture
) -> None:
    """The message says that the last reference was dropped, not that the process ended."""
    Producer(sink=stalled, config=config(drain_timeout_ms=100, linger_ms=100)).send("p", "l", {"k": "v"})
    gc.collect()
    eventually(lambda: any("is lost" in message for message in caplog.messages), "the line")
    assert "close() had not been called when the last reference to it went" in said(caplog)
    stalled.gate.set()


def test_after_an_interrupt_the_message_does_not_claim_the_full_time(
    stalled: GatedSink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupt, the message does not claim the full time."""
    producer = Producer(sink=stalled, config=config(drain_timeout_ms=60_000))
    producer.send("p", "l", {"k": "v"})
    real, interrupted = at_exit._close, []

    def close(shutdown: object, name: str, timeout: float) -> None:
        if not interrupted:
            interrupted.append(name)
            raise KeyboardInterrupt
        real(shutdown, name, timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(at_exit, "_close", close)
    with caplog.at_level(logging.ERROR):
        at_exit.drain_all()
    assert seconds_of(said(caplog)) < 5
    assert said(caplog).endswith("s of the 60.0 s of drain_timeout_ms: an interrupt cut it short")
    stalled.gate.set()
    producer.close()
