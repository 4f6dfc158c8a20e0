"""Memory of interceptors for values that peers choose."""

from __future__ import annotations

import tracemalloc

import pytest

from producer.agent import EventBatch
from producer.agent.interceptors.times import milliseconds_parser
from producer.testing import ManualClock
from tests.agent.components import interceptor


@pytest.mark.parametrize(("kind", "options"), [("dedupe", {}), ("rate_limit", {"events_per_second": 1})])
def test_400_values_of_50_kb_that_differ_at_their_ends_take_little_memory_and_are_distinguished(
    kind: str, options: dict[str, int]
) -> None:
    """400 values of 50 KB that differ at their ends take little memory, and are distinguished."""
    made = interceptor(kind, ManualClock(), by="key", **options)
    tracemalloc.start()
    try:
        for number in range(400):
            kept = made.intercept(EventBatch.of_events([({"key": "x" * 50_000 + str(number)}, b"")] * 2))
            assert kept.count == 1
            if kind == "dedupe":
                made.committed(kept)
            del kept
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
    assert made.intercept(EventBatch.of_events([({"key": "x" * 50_000 + "0"}, b"")])).count == 0


def test_400_texts_of_50_kb_in_place_of_times_leave_nothing_in_memory() -> None:
    """400 texts of 50 KB in place of times leave nothing in memory."""
    read = milliseconds_parser("yyyy-MM-dd", None, ManualClock())
    assert read("2020-01-02") is not None
    tracemalloc.start()
    try:
        for number in range(400):
            assert read(f"{number}" + "x" * 50_000) is None
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
