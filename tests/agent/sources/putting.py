"""Sources on their own threads with real channels, which a test can restart."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from producer.agent.flow.channel import BatchChannel
from producer.runtime.clock import Stop
from tests.agent.components import made
from tests.agent.doubles import outlet_to
from tests.support.waiting import Call


@contextmanager
def reading(name: str, state: Path, channels: Mapping[str, BatchChannel], **options: Any) -> Iterator[Call]:
    """Run a source of a type until the end of the block; an error of the source is raised there."""
    outlet = outlet_to("s", state, channels)
    stop, source = Stop(), made("sources", name, state / "source", **options)
    call = Call(lambda: source.run(outlet, stop))
    try:
        yield call
    finally:
        stop.set()
        call.thread.join(60)
