"""The sources ``sequence`` and ``stress`` and the sink ``logger``: parts to try an agent with."""

import logging
from typing import Any

import pytest

from producer.agent import EventBatch, Stop
from producer.agent.config.options import from_flume
from producer.agent.config.registry import class_of
from producer.agent.testing import RecordingOutlet
from producer.testing import ManualClock
from tests.agent.components import bodies, made


class _Outlet:
    """Takes what is put, but for the first try of each second batch: then it has to be put again."""

    def __init__(self, most: int) -> None:
        self._most, self._tries = most, 0
        self.batches: list[list[bytes]] = []

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        self._tries += 1
        if self._tries % 2 == 0:
            return False
        self.batches.append(batch.bodies())
        if len(self.batches) == self._most:
            stop.set()
        return True


def _run(name: str, most: int = 0, **options: Any) -> list[list[bytes]]:
    outlet = _Outlet(most)
    made("sources", name, **options).run(outlet, Stop())
    return outlet.batches


def test_a_sequence_counts_and_leaves_out_no_number() -> None:
    """Flume's ``testSingleEvents`` and ``testBatch``: also where a put is made again; the last one is short."""
    assert _run("sequence", batch_size=3, total_events=5) == [[b"0", b"1", b"2"], [b"3", b"4"]]
    assert _run("sequence", total_events=2) == [[b"0"], [b"1"]]


def test_stress_puts_as_many_events_as_it_shall() -> None:
    """Flume's ``testMaxTotalEvents``, ``testBatchEvents``: of one size, in batches; without an end until its stop."""
    assert _run("stress", size=3, batch_size=4, max_total_events=6) == [[b"xxx"] * 4, [b"xxx"] * 2]
    assert list(map(len, _run("stress", most=7, batch_size=2))) == [2] * 7


@pytest.mark.parametrize(("most", "shown"), [(256, "'PPPP1'"), (3, "'PPP' … (5 bytes)")])
def test_the_logger_shows_headers_and_the_beginning_of_bodies(
    most: int, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Flume's ``testAppend`` and ``testAppendWithCustomSize``."""
    with caplog.at_level(logging.INFO):
        made("sinks", "logger", max_bytes_to_log=most).write([bodies("PPPP1", host="h")])
    assert "{'host': 'h'}" in caplog.text
    assert shown in caplog.text


def test_stress_keeps_to_a_rate_if_it_shall() -> None:
    """``max_events_per_second``: behind each batch it waits as long as that needs at this rate."""
    clock, outlet = ManualClock(), RecordingOutlet()
    stop, waited = Stop(clock), list[float]()

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        clock.advance(seconds)
        return False

    stop.wait = wait  # type: ignore[method-assign,assignment]
    source = made("sources", "stress", clock=clock, batch_size=10, max_total_events=30, max_events_per_second=20)
    source.run(outlet, stop)
    assert waited == [0.5, 0.5, 0.5]
    assert len(outlet.bodies) == 30


@pytest.mark.parametrize(
    ("texts", "most"),
    [
        ({"maxTotalEvents": "7", "maxSuccessfulEvents": "5"}, "5"),
        ({"maxSuccessfulEvents": "5"}, "5"),
        ({"maxTotalEvents": "${env:MOST}", "maxSuccessfulEvents": "-1"}, "${env:MOST}"),
    ],
)
def test_flumes_two_ends_of_stress_are_one(texts: dict[str, str], most: str) -> None:
    """Each event is put until it is in the channel, so all are successful: the smaller number counts."""
    assert from_flume(class_of("sources", "stress").Options, texts) == {"max_total_events": most}
