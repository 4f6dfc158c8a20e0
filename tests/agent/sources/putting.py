"""Sources on their own threads with real channels, which a test can restart."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import Context
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.selectors.replicating import ReplicatingSelector
from producer.runtime.clock import Stop, SystemClock
from tests.agent.components import made
from tests.agent.doubles import ledger_of
from tests.support.waiting import Call


@contextmanager
def reading(name: str, state: Path, channels: Mapping[str, BatchChannel], **options: Any) -> Iterator[Call]:
    """Run a source of a type until the end of the block; an error of the source is raised there."""
    selector = ReplicatingSelector(ReplicatingSelector.Options(), Context("a", "s", state), channels)
    outlet = SourceOutlet("s", [], selector, channels, ledger_of("s", channels, selector), Counters(), SystemClock())
    stop, source = Stop(), made("sources", name, state / "source", **options)
    call = Call(lambda: source.run(outlet, stop))
    try:
        yield call
    finally:
        stop.set()
        call.thread.join(60)
