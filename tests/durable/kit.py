"""Producers with channels, and channels that outlive them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from producer import Producer
from producer.channels import FileChannel, MemoryChannel
from producer.durable.pipeline import DurablePipeline
from producer.model.interfaces import Channel, Event, Sink
from producer.runtime.clock import Clock
from producer.testing import RecordingSink
from tests.support.clocks import JumpingClock
from tests.support.log_group_schema import contents_of
from tests.support.pipelines import config, step

LOG = {"a": "b"}


class KeptChannel(MemoryChannel):
    """A memory channel that stays usable after a producer's close, as a file channel's directory does.

    :ivar closes: how often it was closed.
    """

    survives_close = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.closes = 0

    def close(self) -> None:
        """Count the call, and stay open."""
        self.closes += 1

    def events(self) -> list[Event]:
        """Return its events that are not taken, in order; they stay there."""
        with self.transaction() as transaction:
            found: list[Event] = []
            while events := transaction.take(1000, timeout=0):
                found += events
            transaction.rollback()
        return found


def file_channel(directory: Path, **options: Any) -> FileChannel:
    """Return a file channel with tiny segments."""
    small = {"segment_size": 4096, "minimum_free_space": 0, "reserve": 4096, "checkpoint_interval": None}
    return FileChannel(directory, **(small | options))


def crashed(channel: FileChannel, directory: Path, **options: Any) -> FileChannel:
    """Return the channel that a new process would find if that of ``channel`` died now, opened with other options."""
    shutil.copytree(channel.directory, directory)
    return file_channel(directory, **options)


def durable(sink: Sink, channel: Channel, **options: Any) -> Producer:
    """Return a producer with a short linger and short backoffs."""
    own = {name: options.pop(name) for name in ("dead_letter", "clock") if name in options}
    quick = {"linger_ms": 100, "base_retry_backoff_ms": 1, "max_retry_backoff_ms": 5, "drain_timeout_ms": 5000}
    return Producer(sink=sink, channel=channel, config=config(**(quick | options)), **own)


def pipeline_of(producer: Producer) -> DurablePipeline:
    """Return the pipeline of a producer with a channel."""
    found = producer._pipeline
    assert isinstance(found, DurablePipeline)
    return found


def values(sink: RecordingSink, topic: str | None = None) -> list[str]:
    """Return the first value of every delivered log, in the order of delivery."""
    with sink._lock:
        deliveries = list(sink.deliveries)
    return [
        log[0][1].decode()
        for delivery in deliveries
        if topic is None or delivery.key.topic == topic
        for log in contents_of(delivery.payload.body)
    ]


def by_hand(
    sink: Sink, channel: Channel, dead_letter: Channel | None = None, clock: Clock | None = None, **options: Any
) -> DurablePipeline:
    """Return a durable pipeline without threads, driven by :func:`drive`."""
    return DurablePipeline(
        config(**({"linger_ms": 100} | options)),
        sink,
        clock or JumpingClock(),
        "test",
        channel,
        dead_letter,
        threadless=True,
    )


def drive(durable_pipeline: DurablePipeline, between: Callable[[], object] = lambda: None) -> None:
    """Let every stage do all its work."""
    busy = True
    while busy:
        busy = durable_pipeline.feeder.run_once(0)
        busy |= step(durable_pipeline.pipeline)
        busy |= durable_pipeline.acks.run_once()
        between()
