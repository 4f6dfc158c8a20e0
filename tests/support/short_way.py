"""Build producers without threads, and streams whose next log takes the short path into the open batch."""

from collections.abc import Mapping
from typing import Any

from producer import Producer, SendFuture, Stream
from producer.model.interfaces import Record, Sink
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.batching.open_records import OpenRecords
from producer.pipeline.pipeline import Pipeline
from producer.runtime.clock import Clock
from tests.support.pipelines import config, threadless

#: More sends than are needed before the short path is taken.
ENOUGH = 12


class CountingProducer(Producer):
    """A producer that counts the sends that do not take the short path."""

    general = 0

    def _send(self, *arguments: Any) -> SendFuture:
        self.general += 1
        return super()._send(*arguments)


def by_hand(sink: Sink | None = None, clock: Clock | None = None, **options: Any) -> tuple[CountingProducer, Pipeline]:
    """Build a producer and its pipeline without threads."""
    pipeline = threadless(sink, clock, **options)
    producer = CountingProducer(config=config(**options), sink=pipeline.sink, clock=pipeline.clock)
    producer._pipeline = pipeline
    return producer, pipeline


def known(stream: Stream, log: Mapping[str, Any], count: int = ENOUGH) -> list[SendFuture]:
    """Send logs like ``log`` until the next one takes the short path."""
    futures = [stream.send(dict(log)) for _ in range(count)]
    assert takes_short_way(stream)
    return futures


def takes_short_way(stream: Stream) -> bool:
    """Return True if a log would be appended to the batch that the stream knows."""
    return stream._open is not None and not stream._open.closed


def open_batch(pipeline: Pipeline) -> ProducerBatch:
    (batch,) = pipeline.accumulator._open.values()
    return batch


def body_of(pipeline: Pipeline, batch: ProducerBatch) -> bytes:
    """Return the body that would be sent if the batch were sealed at this point."""
    records = batch.records if batch.open is None else records_of(batch.open)
    return pipeline.sink.encode(batch.key, batch.pack_id, records).body


def records_of(records: OpenRecords) -> list[Record]:
    """Return the records of an open batch, as it would be sealed at this point."""
    return records._records[: records.sends]
