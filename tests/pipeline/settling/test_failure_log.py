"""Failed batches are logged at once, then as sums."""

from __future__ import annotations

import logging

import pytest

from producer import Producer, ProducerConfig, RejectedError
from producer.testing import ManualClock, ScriptedSink


def test_an_outage_writes_a_line_at_once_and_then_sums(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each kind of failure in ten seconds; the next one has the number of unlogged failures."""
    clock = ManualClock()
    sink = ScriptedSink(RejectedError("PostBodyInvalid", "no") for _ in range(6))
    config = ProducerConfig(batch_count_threshold=1)
    with caplog.at_level(logging.WARNING, "producer"), Producer(config=config, sink=sink, clock=clock) as producer:
        for n in range(5):
            producer.send("p", "l", {"n": n}).exception(10)
        assert len(caplog.messages) == 1
        clock.advance(11)
        producer.send("p", "l", {"n": 5}).exception(10)
        assert len(caplog.messages) == 2
    assert "p/l: 1 record failed after 1 attempt: " in caplog.messages[0]
    assert "4 more failed likewise" in caplog.messages[1]
    assert caplog.messages[2].endswith(": in all 6 logs failed (PostBodyInvalid: 6)"), "said once more at the end"


def test_other_logstores_and_codes_have_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    """A failure of another logstore or code is logged at once."""
    script = [RejectedError("A", "no"), RejectedError("A", "no"), RejectedError("B", "no")]
    config = ProducerConfig(batch_count_threshold=1)
    with caplog.at_level(logging.WARNING, "producer"), Producer(config=config, sink=ScriptedSink(script)) as producer:
        for logstore in ("one", "two", "two"):
            producer.send("p", logstore, {"k": "v"}).exception(10)
        assert len(caplog.messages) == 3
