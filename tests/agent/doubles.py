"""Small components for the agent's tests, which record events and fail on request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Context
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.channels import FileChannelBuilder, MemoryChannelBuilder, SpillableChannelBuilder
from producer.agent.flow.health import Health
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.ledger.lanes import rules_of
from producer.agent.ledger.ledger import Ledger
from producer.agent.ledger.ledgers import Ledgers
from producer.agent.selectors.replicating import ReplicatingSelector
from producer.runtime.clock import Clock, SystemClock


class RecordingSink:
    most_events, most_bytes = 1_000_000, 1 << 20

    def __init__(self, fail: Callable[[Sequence[EventBatch]], None] = lambda _batches: None) -> None:
        self._fail = fail
        self.batches: list[EventBatch] = []
        self.closed = 0

    @property
    def bodies(self) -> list[bytes]:
        return [body for batch in self.batches for body in batch.bodies()]

    def write(self, batches: Sequence[EventBatch]) -> None:
        self._fail(batches)
        self.batches += batches

    def close(self) -> None:
        self.closed += 1


def context(state: Path, name: str = "c", clock: Clock | None = None) -> Context:
    return Context("a1", name, state / name, clock=clock or SystemClock())


class _Ledgers(Ledgers):
    """Ledgers of a state, in which a source without a configuration writes to all open channels."""

    def __init__(self, state: Path, clock: Clock) -> None:
        super().__init__((state.parent if state.name == "channels" else state) / "sources", clock)
        self.channels: dict[str, BatchChannel] = {}
        self.opening = False

    def of(self, source: str) -> Ledger:
        ledger = super().of(source)
        if ledger.is_new and not self.opening:
            ledger.begin(rules_of(self.channels, "", exclusive=False))
        return ledger


#: The ledgers of each state with an open channel.
_ledgers: dict[Path, _Ledgers] = {}


def memory_channel(state: Path, name: str = "c", clock: Clock | None = None, **options: Any) -> BatchChannel:
    builder = MemoryChannelBuilder(MemoryChannelBuilder.Options(**options), context(state, name, clock))
    return _begun(builder.open(), state, clock)


def file_channel(state: Path, name: str = "c", **options: Any) -> BatchChannel:
    options = {"minimum_free_space": 0, **options}
    return _begun(FileChannelBuilder(FileChannelBuilder.Options(**options), context(state, name)).open(), state)


def spillable_channel(state: Path, name: str = "c", **options: Any) -> BatchChannel:
    """Return a channel that spills what its small memory cannot hold."""
    options = {"minimum_free_space": 0, "memory_bytes": 256, **options}
    return _begun(
        SpillableChannelBuilder(SpillableChannelBuilder.Options(**options), context(state, name)).open(), state
    )


def _begun(channel: BatchChannel, state: Path, clock: Clock | None = None) -> BatchChannel:
    """Attach ledgers to a channel; they are closed with the last channel of the state."""
    ledgers = _ledgers.setdefault(state, _Ledgers(state, clock or SystemClock()))
    ledgers.channels[channel.name] = channel
    close = channel.close

    def end() -> None:
        try:
            close()
        finally:
            if ledgers.channels.pop(channel.name, None) and not ledgers.channels:
                _ledgers.pop(state, None)
                ledgers.close()

    channel.close = end  # type: ignore[method-assign]
    ledgers.opening = True
    channel.attach(ledgers)
    ledgers.opening = False
    channel.losses.begin(ledgers, lambda _names: None)
    return channel


def ledger_of(source: str, channels: Mapping[str, BatchChannel], selector: Any, selection: str = "") -> Ledger:
    """Return the ledger of a source that writes to these channels."""
    ledgers = next(iter(channels.values()))._ledgers
    assert ledgers is not None
    ledger = Ledgers.of(ledgers, source)
    ledger.begin(rules_of(channels, selection, exclusive=selector.exclusive))
    return ledger


def ledger_in(channel: BatchChannel, source: str = "s") -> Ledger:
    """Return a source's ledger, as the channel uses it."""
    assert channel._ledgers is not None
    return channel._ledgers.of(source)


def is_safe(channel: BatchChannel, name: str) -> bool:
    """Return True if a crash loses nothing of what was put under a name."""
    ledger = ledger_in(channel, name.partition("/")[0])
    return ledger.safe_end(name) == ledger.ends(name)[-1]


def die(*channels: BatchChannel) -> None:
    for channel in channels:
        ledgers = channel._ledgers
        assert isinstance(ledgers, _Ledgers)
        ledgers.channels.clear()
        for state in [state for state, each in _ledgers.items() if each is ledgers]:
            del _ledgers[state]
        for ledger in ledgers._ledgers.values():
            ledger._notes.close()
        channel.channel.close()


@contextmanager
def opened(channel: BatchChannel) -> Iterator[BatchChannel]:
    try:
        yield channel
    finally:
        channel.close()


def taken_batches(channel: BatchChannel) -> list[EventBatch]:
    """Take the batches that the channel got since the last call, as delivered."""
    batches: list[EventBatch] = []
    while (taking := channel.take(1_000_000, 1 << 30, 0)) is not None:
        batches += taking.batches
        taking.commit()
    return batches


def taken(channel: BatchChannel) -> list[bytes]:
    return [body for batch in taken_batches(channel) for body in batch.bodies()]


def outlet_to(
    source: str, state: Path, channels: Mapping[str, BatchChannel], clock: Clock | None = None
) -> SourceOutlet:
    """Return the outlet of a source that puts each batch into all channels."""
    selector = ReplicatingSelector(ReplicatingSelector.Options(), Context("a", "s", state), channels)
    ledger = ledger_of(source, channels, selector)
    return SourceOutlet(source, [], selector, channels, ledger, Health(clock))
