"""The sources ``sequence`` and ``stress`` and the sink ``logger``, for trials."""

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
    """An outlet that fails the first put of each second batch."""

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
    """The sequence has no gaps, even if puts are repeated, and its last batch is short, as in Flume's tests."""
    assert _run("sequence", batch_size=3, total_events=5) == [[b"0", b"1", b"2"], [b"3", b"4"]]
    assert _run("sequence", total_events=2) == [[b"0"], [b"1"]]


def test_stress_puts_its_number_of_events_of_one_size_in_batches_or_runs_until_its_stop() -> None:
    """Stress puts its number of events of one size in batches, or runs until its stop, as in Flume's tests."""
    assert _run("stress", size=3, batch_size=4, max_total_events=6) == [[b"xxx"] * 4, [b"xxx"] * 2]
    assert list(map(len, _run("stress", most=7, batch_size=2))) == [2] * 7


@pytest.mark.parametrize(("most", "shown"), [(256, "'PPPP1'"), (3, "'PPP' … (5 bytes)")])
def test_the_logger_shows_headers_and_the_beginning_of_bodies(
    most: int, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The logger shows headers and the start of bodies, as in Flume's ``testAppend``."""
    with caplog.at_level(logging.INFO):
        made("sinks", "logger", max_bytes_to_log=most).write([bodies("PPPP1", host="h")])
    assert "{'host': 'h'}" in caplog.text
    assert shown in caplog.text


def test_with_max_events_per_second_stress_waits_after_each_batch() -> None:
    """With ``max_events_per_second`` stress waits after each batch."""
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
def test_the_smaller_one_of_flumes_two_limits_of_stress_counts(texts: dict[str, str], most: str) -> None:
    """Of Flume's two limits of stress the smaller one counts, since each event is put until it succeeds."""
    assert from_flume(class_of("sources", "stress").Options, texts) == {"max_total_events": most}
