"""Report what a changed configuration has sources read again, and events in channels that are not configured.

A start uses the ledgers; ``check`` uses copies of them. Both compare the ledgers' notes with the channels' events, and
with the events in directories that a source's channels used in its last run and no channel uses now. The events in
those directories count as read, whether the agent stopped or crashed; they wait until a channel is configured with such
a directory.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...channels.file.recovery.inspection import look_at_events
from ...model.errors import ChannelError, ProducerError
from ...runtime.clock import SystemClock
from ...text.plural import counted
from ..events.event_format import count_of
from ..flow.channels import EVENTS, Counted
from ..ledger.lanes import rules_of
from ..ledger.ledger import Setup, copy_ledgers
from ..ledger.ledgers import Ledgers
from .blueprint import Blueprint, SourcePart, places_of, selection_of

#: Maximum number of batches counted at a start, since counting takes time.
_MOST_COUNTED = 1000
_WAITS = (
    "no channel uses {1}, and {0} in it are not delivered: to deliver them, configure a channel with"
    " directory = {1!r} and a sink (or the renamed channel with that directory), or print them with:"
    " producer channel export {2}"
)
_UNEVEN = (
    "source {}: its channels, selector or interceptors have changed, and its channels differ in {}:"
    " the difference is read again, and is duplicated in the channels that have it"
)
_RENAMED = (
    "source {0} is new, and source {1}, of the same type, is no longer configured: {0} reads the data of {1} again,"
    " which duplicates it; if you renamed the source, name it {1} again"
)
_UNKNOWN = "source {}: the events of channel {} in {} cannot be read ({}); the source reads them again"


class Beginning:
    """The start of sources' ledgers with a configuration.

    :ivar warnings: a line for each range that is read again because of a change.
    :ivar former: directories of former channels that no channel uses.
    """

    def __init__(self, ledgers: Ledgers, blueprint: Blueprint, sources: Collection[str]) -> None:
        self._ledgers, self._blueprint = ledgers, blueprint
        self._parts = {name: blueprint.sources[name] for name in sources}
        self._places = places_of(blueprint.channels, blueprint.config.state)
        self.warnings = list(self._renamed())
        self.former = list[str]()
        for name in sources:
            former = ledgers.of(name).know_places(self._places)
            self.former += [place[0] for place in former.values()]
            for channel, place in former.items():
                self._find_former(name, channel, place)

    def begin(self, former_of: Callable[[SourcePart, str], Any] = lambda _part, _selection: None) -> None:
        """Start the ledgers, once all channels have reported their events.

        :param former_of: reads the rules and lanes of a state without a ledger.
        """
        for name, part in self._parts.items():
            ledger, (rules, setup) = self._ledgers.of(name), self._wanted(part)
            former = former_of(part, selection_of(part)) if ledger.is_new else None
            again = ledger.begin(rules, setup, former)
            if again:
                self.warnings.append(_UNEVEN.format(name, counted(again, "file or partition", "files or partitions")))

    def changes(self) -> bool:
        """Return True if the ledgers know another configuration."""
        return any(self._ledgers.of(name).differs(*self._wanted(part)) for name, part in self._parts.items())

    def _wanted(self, part: SourcePart) -> tuple[bytes, Setup]:
        rules = rules_of(part.channels, selection_of(part), exclusive=part.selector.kind.exclusive)
        places = {name: self._places[name] for name in part.channels if name in self._places}
        return rules, Setup(part.source.kind.__qualname__, places)

    def _find_former(self, source: str, channel: str, place: list[str]) -> None:
        if not Path(place[0]).is_dir():
            return  # its events are read again, once
        ledger = self._ledgers.of(source)
        try:
            for position in Counted(look_at_events(place[0], data_directories=place[1:]), join=True).found:
                if position.name.startswith(f"{source}/"):
                    ledger.find(_Waiting(channel), position)
        except (ProducerError, OSError) as error:
            self.warnings.append(_UNKNOWN.format(source, channel, place[0], error))

    def _renamed(self) -> Iterator[str]:
        new = {name: part for name, part in self._parts.items() if self._ledgers.of(name).is_new}
        gone = [name for name in self._ledgers.noted() if name not in self._blueprint.sources] if new else []
        for name, part in new.items():
            for former in gone:
                if self._ledgers.of(former).setup.kind == part.source.kind.__qualname__:
                    yield _RENAMED.format(name, former)


class _Waiting:
    """A directory of events without an open channel, as a ledger sees it."""

    keeps = True

    def __init__(self, name: str) -> None:
        self.name = name

    def make_synced(self, _sequence: int) -> None:
        """Do nothing: no process writes there."""


def start_warnings(blueprint: Blueprint) -> list[str]:
    """Return warnings of what a start would read again because of a change, and of events that no sink takes."""
    with TemporaryDirectory() as place, closing(Ledgers(Path(place), SystemClock())) as ledgers:
        with suppress(ChannelError, OSError):  # the start reports it
            copy_ledgers(blueprint.config.state / "sources", Path(place))
        beginning = Beginning(ledgers, blueprint, blueprint.sources)
        if beginning.changes():
            _find_held(ledgers, blueprint)
        beginning.begin()
    left = undelivered(blueprint, beginning.former)
    return [*beginning.warnings, *(waiting_text(directory, waits) for directory, waits in left.items())]


def _find_held(ledgers: Ledgers, blueprint: Blueprint) -> None:
    """Tell the ledgers the positions in channels that are not open."""
    for name, (own, *data) in places_of(blueprint.channels, blueprint.config.state).items():
        with suppress(ProducerError, OSError):  # the start reports it, or creates the channel
            events = look_at_events(own, data_directories=data, keys=blueprint.channels[name].options.keys())
            for position in Counted(events, join=True).found:
                ledgers.of_name(position.name).find(_Waiting(name), position)


def undelivered(blueprint: Blueprint, former: Iterable[str]) -> dict[str, str]:
    """Describe the events in directories that no channel uses, by directory.

    :param former: further such directories, outside of the agent's state.
    """
    channels, state = blueprint.channels, blueprint.config.state
    places = [Path(path) for paths in places_of(channels, state).values() for path in paths]
    used = {each for place in places for each in (place, *place.parents)}
    found = {Path(path) for path in former} | {path.absolute() for path in (state / "channels").glob(f"*/{EVENTS}")}
    waiting = {str(path): _waiting(path) for path in sorted(found - used) if path.is_dir()}
    return {directory: waits for directory, waits in waiting.items() if waits is not None}


def waiting_text(directory: str, waits: str) -> str:
    """Return the warning about events in a directory that no channel uses."""
    return _WAITS.format(waits, directory, shlex.quote(directory))


def _waiting(events: Path) -> str | None:
    """Describe the number of events in a directory; None if there are none."""
    try:
        counts = [count_of(event) for event in islice(look_at_events(str(events)), _MOST_COUNTED + 1)]
    except (ProducerError, OSError) as error:
        return f"events that cannot be counted ({error})"
    if not counts:
        return None
    more = "more than " if len(counts) > _MOST_COUNTED else ""
    return more + counted(sum(counts[:_MOST_COUNTED]), "event")
