"""Small components for the agent's tests: what they were given, and when they fail, is the test's to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Context
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.channels import FileChannelBuilder, MemoryChannelBuilder, SpillableChannelBuilder
from producer.runtime.clock import Clock, SystemClock


class RecordingSink:
    """Keeps what it is given.

    :param fail: is asked before each delivery; may raise.
    """

    most_events, most_bytes = 1_000_000, 1 << 20

    def __init__(self, fail: Callable[[Sequence[EventBatch]], None] = lambda _batches: None) -> None:
        self._fail = fail
        self.batches: list[EventBatch] = []
        self.closed = 0

    @property
    def bodies(self) -> list[bytes]:
        """All bodies, in order."""
        return [body for batch in self.batches for body in batch.bodies()]

    def write(self, batches: Sequence[EventBatch]) -> None:
        """Take them, unless it is to fail."""
        self._fail(batches)
        self.batches += batches

    def close(self) -> None:
        """Count."""
        self.closed += 1


def context(state: Path, name: str = "c", clock: Clock | None = None) -> Context:
    """What a component is given."""
    return Context("a1", name, state / name, clock=clock or SystemClock())


def memory_channel(state: Path, name: str = "c", clock: Clock | None = None, **options: Any) -> BatchChannel:
    """A channel that forgets."""
    builder = MemoryChannelBuilder(MemoryChannelBuilder.Options(**options), context(state, name, clock))
    return builder.open()


def file_channel(state: Path, name: str = "c", **options: Any) -> BatchChannel:
    """A channel that keeps."""
    options = {"minimum_free_space": 0, **options}
    return _begun(FileChannelBuilder(FileChannelBuilder.Options(**options), context(state, name)).open())


def spillable_channel(state: Path, name: str = "c", **options: Any) -> BatchChannel:
    """A channel that keeps what its little memory does not hold."""
    options = {"minimum_free_space": 0, "memory_bytes": 256, **options}
    return _begun(SpillableChannelBuilder(SpillableChannelBuilder.Options(**options), context(state, name)).open())


def _begun(channel: BatchChannel) -> BatchChannel:
    channel.losses.begin(lambda _name: 0, lambda _names: None)
    return channel


@contextmanager
def opened(channel: BatchChannel) -> Iterator[BatchChannel]:
    """Close it afterwards."""
    try:
        yield channel
    finally:
        channel.close()


def taken(channel: BatchChannel) -> list[bytes]:
    """Take all that is there, for good."""
    bodies: list[bytes] = []
    while (taking := channel.take(1_000_000, 1 << 30, 0)) is not None:
        bodies += [body for batch in taking.batches for body in batch.bodies()]
        taking.commit()
    return bodies
