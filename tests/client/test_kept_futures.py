"""Kept futures keep results, not the bytes of logs."""

from collections.abc import Callable, Iterable
from types import MethodType

import pyarrow as pa
import pytest

from producer import Producer, RejectedError, SendFuture, Stream
from producer.pipeline.batching.open_records import OpenRecords
from producer.testing import RecordingSink, ScriptedSink
from tests.support.living import within_reach
from tests.support.pipelines import config
from tests.support.twins import open_records_twin

__all__ = ["open_records_twin"]

TEXT = "x" * 10_000
LOG = {"text": TEXT}

WAYS: dict[str, Callable[[Stream], list[SendFuture]]] = {
    "send": lambda stream: [stream.send(LOG) for _ in range(20)],
    "send, by the general way": lambda stream: [stream.send([LOG, LOG]) for _ in range(20)],
    "send, with callbacks": lambda stream: [stream.send(LOG, callback=lambda _result: None) for _ in range(20)],
    "send_many": lambda stream: stream.send_many([LOG] * 20),
    "send_lines": lambda stream: stream.send_lines(TEXT.encode() + b"\n" + TEXT.encode()),
    "send_arrow": lambda stream: stream.send_arrow(pa.table({"text": [TEXT] * 20})),
}


def bytes_within_reach(things: Iterable[object]) -> int:
    """Return the bytes that ``things`` keep alive, without those in the tests' sinks."""
    found = within_reach(things, beyond=(MethodType, RecordingSink))
    return sum(len(thing) for thing in found if isinstance(thing, bytes | bytearray | memoryview))


@pytest.mark.parametrize("is_delivered", [True, False], ids=["delivered", "failed"])
@pytest.mark.parametrize("way", WAYS)
def test_a_list_of_futures_grows_by_results_alone_on_success_and_failure_for_every_way_to_send(
    way: str, is_delivered: bool, open_records_twin: type[OpenRecords]
) -> None:
    """A list of futures grows by results alone, on success and failure, for every way to send."""
    refusal = RejectedError("PostBodyInvalid", "no", http_status=400)
    sink = RecordingSink() if is_delivered else ScriptedSink([refusal] * 100)
    with Producer(sink=sink, config=config()) as producer:
        stream = producer.stream("p", "l")
        futures = WAYS[way](stream)
        assert bytes_within_reach(futures) > len(TEXT)
        producer.flush()
        assert [future.exception() is None for future in futures] == [is_delivered] * len(futures)
        producer.close()
        assert bytes_within_reach(futures) < 1000
