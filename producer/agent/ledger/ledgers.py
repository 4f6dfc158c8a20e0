"""The ledgers of all sources of an agent, for channels with batches of several sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from ...runtime.clock import Clock
from ..events.batch import EventBatch, Position
from .lanes import Holder
from .ledger import DIRECTORY, Ledger


class Ledgers:
    """The ledgers of an agent, by source.

    :param state: the parent directory of the sources' directories.
    """

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = state, clock
        self._ledgers: dict[str, Ledger] = {}

    def of(self, source: str) -> Ledger:
        """Return the ledger of a source."""
        if source not in self._ledgers:
            self._ledgers[source] = Ledger(self._state / source, self._clock)
        return self._ledgers[source]

    def noted(self) -> list[str]:
        """Return the sources that have notes, also those that are no longer configured."""
        return sorted(path.parent.name for path in self._state.glob(f"*/{DIRECTORY}"))

    def of_name(self, name: str) -> Ledger:
        """Return the ledger of the source that a name begins with."""
        return self.of(name.partition("/")[0])

    def leaving(self, channel: Holder, batches: Iterable[EventBatch]) -> None:
        """Note batches before their take is committed.

        :raises ChannelIOError: if they cannot be noted.
        """
        if channel.keeps:
            for source, some in self._by_source(batches):
                source.leaving(channel, some)

    def left(self, channel: Holder, batches: Iterable[EventBatch]) -> None:
        """Count batches as delivered."""
        if not channel.keeps:
            for source, some in self._by_source(batches):
                source.left(channel, [position for position, _ in some])

    def _by_source(self, batches: Iterable[EventBatch]) -> Iterable[tuple[Ledger, list[tuple[Position, int]]]]:
        found = defaultdict[Ledger, list[tuple[Position, int]]](list)
        for batch in batches:
            if batch.position is not None:
                found[self.of_name(batch.position.name)].append((batch.position, batch.sequence or -1))
        return found.items()

    def flush(self) -> None:
        """Write the pending notes."""
        for each in tuple(self._ledgers.values()):
            each.flush()

    def close(self) -> None:
        """Write the pending notes, and close all notes."""
        with ExitStack() as ends:
            for each in self._ledgers.values():
                ends.callback(each.close)
