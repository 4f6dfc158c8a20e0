"""The cost of a log, counted rather than timed."""

import gc
import sys
from types import FrameType
from typing import Any

import pytest

from producer import Producer, Stream
from producer.pipeline.batching.open_records import OpenRecords
from producer.testing import RecordingSink
from producer.wire.speed import TWIN
from tests.benchmarks.shapes import logs_of
from tests.support.garbage import uncollected
from tests.support.pipelines import config
from tests.support.twins import open_records_twin

__all__ = ["open_records_twin"]


def _warm(stream: Stream, shape: str) -> list[dict[str, str]]:
    logs = logs_of(shape)[:100]
    for log in logs * 2:  # so that all lengths of values have occurred
        stream.send(log)
    return logs


@pytest.mark.usefixtures("without_coverage")
@pytest.mark.parametrize("shape", ["java", "web", "wide", "unicode"])
def test_a_log_into_an_open_batch_runs_no_python(shape: str, open_records_twin: type[OpenRecords]) -> None:
    """The native implementation runs no Python for a log; the pure one makes four calls, the general way over ten."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    # Collected first: the first batch of a producer lingers only briefly.
    with uncollected(), Producer(sink=RecordingSink(), config=config(linger_ms=60_000)) as producer:
        stream = producer.stream("p", "l")
        logs = _warm(stream, shape)
        sys.setprofile(note)
        try:
            stream.send(logs[0])
        finally:
            sys.setprofile(None)
    sending, memory = (["send"], ["take"]) if TWIN == "pure" else ([], [])  # the stream's and the budget's twin
    records = ["add", "moment_of", "encode_log", "_join"] if open_records_twin is OpenRecords else []
    locks = {"__enter__"} if sys.version_info >= (3, 14) else set[str]()  # of producer.runtime.locks
    assert [call for call in calls if call not in locks] == sending + records + memory


@pytest.mark.usefixtures("without_coverage")
def test_a_log_that_is_kept_takes_two_blocks_of_memory(open_records_twin: type[OpenRecords]) -> None:
    """A kept log takes its future and its count; the pure implementation also its record, position and
    attribute room.
    """
    with Producer(sink=RecordingSink(), config=config(linger_ms=60_000)) as producer:
        stream = producer.stream("p", "l")
        logs = _warm(stream, "web")
        left = [stream.send(logs[0]) for _ in range(600)]  # use up the memory of futures left by other tests
        gc.collect()
        gc.disable()
        try:
            before = sys.getallocatedblocks()
            futures = [stream.send(log) for log in logs]
            taken = sys.getallocatedblocks() - before
        finally:
            gc.enable()
    assert (len(left), len(futures)) == (600, len(logs))
    most = 4.4 if open_records_twin is OpenRecords else 2.4
    assert len(logs) <= taken <= most * len(logs)
