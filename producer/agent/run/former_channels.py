"""Changes of a configuration: what sources read again for them, and what waits in channels that are not configured.

A start and ``check`` ask the same ledgers, ``check`` copies of them: what a ledger notes, what the channels hold, and
what waits in directories that a source's channels had when it last ran and that no channel uses. The latter counts as
read: it waits there for a channel with that directory, whether the agent ended in order or died.
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

#: Batches that are counted at a start, at most: the others take too long to look at.
_MOST_COUNTED = 1000
_WAITS = (
    "no channel uses {1}, and {0} in it are not delivered: to have them delivered configure a channel with"
    " directory = {1!r} and a sink (the same channel under a new name, if it has got one), or print them with:"
    " producer channel export {2}"
)
_UNEVEN = (
    "source {}: its channels, selector or interceptors have changed, and of {} not all channels have what others have:"
    " that is read again, and comes twice to these"
)
_RENAMED = (
    "source {0} is new, and source {1}, of the same type, is no longer configured: what {1} has read and {0} finds is"
    " read again, and comes twice; a source goes on only under its own name: to have that, name it {1}"
)
_UNKNOWN = "source {}: what channel {} holds in {} cannot be read ({}), and is read again"


class Beginning:
    """The beginning of the ledgers of sources with a configuration.

    :ivar told: a line for each thing that is read again for a change.
    :ivar former: directories of former channels that no channel uses.
    """

    def __init__(self, ledgers: Ledgers, blueprint: Blueprint, sources: Collection[str]) -> None:
        self._ledgers, self._blueprint = ledgers, blueprint
        self._parts = {name: blueprint.sources[name] for name in sources}
        self._places = places_of(blueprint.channels, blueprint.config.state)
        self.told = list(self._renamed())
        self.former = list[str]()
        for name in sources:
            former = ledgers.of(name).know_places(self._places)
            self.former += [place[0] for place in former.values()]
            for channel, place in former.items():
                self._find_former(name, channel, place)

    def begin(self, former_of: Callable[[SourcePart, str], Any] = lambda _part, _selection: None) -> None:
        """Begin: all channels have said what they hold.

        :param former_of: reads the rules and lanes of a state that has no ledger.
        """
        for name, part in self._parts.items():
            ledger, (rules, setup) = self._ledgers.of(name), self._wanted(part)
            former = former_of(part, selection_of(part)) if ledger.is_new else None
            again = ledger.begin(rules, setup, former)
            if again:
                self.told.append(_UNEVEN.format(name, counted(again, "file or partition", "files or partitions")))

    def changes(self) -> bool:
        """Return True if the ledgers know another configuration."""
        return any(self._ledgers.of(name).differs(*self._wanted(part)) for name, part in self._parts.items())

    def _wanted(self, part: SourcePart) -> tuple[bytes, Setup]:
        rules = rules_of(part.channels, selection_of(part), exclusive=part.selector.kind.exclusive)
        places = {name: self._places[name] for name in part.channels if name in self._places}
        return rules, Setup(part.source.kind.__qualname__, places)

    def _find_former(self, source: str, channel: str, place: list[str]) -> None:
        if not Path(place[0]).is_dir():
            return  # what waited there is read again, once
        ledger = self._ledgers.of(source)
        try:
            for position in Counted(look_at_events(place[0], data_directories=place[1:]), join=True).found:
                if position.name.startswith(f"{source}/"):
                    ledger.find(_Waiting(channel), position)
        except (ProducerError, OSError) as error:
            self.told.append(_UNKNOWN.format(source, channel, place[0], error))

    def _renamed(self) -> Iterator[str]:
        new = {name: part for name, part in self._parts.items() if self._ledgers.of(name).is_new}
        gone = [name for name in self._ledgers.noted() if name not in self._blueprint.sources] if new else []
        for name, part in new.items():
            for former in gone:
                if self._ledgers.of(former).setup.kind == part.source.kind.__qualname__:
                    yield _RENAMED.format(name, former)


class _Waiting:
    """A channel of which only the directory is looked at, as a ledger sees it."""

    keeps = True

    def __init__(self, name: str) -> None:
        self.name = name

    def make_synced(self, _sequence: int) -> None:
        """Do nothing: no process writes there."""


def told(blueprint: Blueprint) -> list[str]:
    """What a start would read again for a change of the configuration, and events that no sink takes."""
    with TemporaryDirectory() as place, closing(Ledgers(Path(place), SystemClock())) as ledgers:
        with suppress(ChannelError, OSError):  # the start says so
            copy_ledgers(blueprint.config.state / "sources", Path(place))
        beginning = Beginning(ledgers, blueprint, blueprint.sources)
        if beginning.changes():
            _find_held(ledgers, blueprint)
        beginning.begin()
    left = undelivered(blueprint, beginning.former)
    return [*beginning.told, *(told_left(directory, waits) for directory, waits in left.items())]


def _find_held(ledgers: Ledgers, blueprint: Blueprint) -> None:
    """Have the ledgers know what channels hold that are not open."""
    for name, (own, *data) in places_of(blueprint.channels, blueprint.config.state).items():
        with suppress(ProducerError, OSError):  # the start says so, or makes it
            events = look_at_events(own, data_directories=data, keys=blueprint.channels[name].options.keys())
            for position in Counted(events, join=True).found:
                ledgers.of_name(position.name).find(_Waiting(name), position)


def undelivered(blueprint: Blueprint, former: Iterable[str]) -> dict[str, str]:
    """How many events wait in directories that no channel uses, in words.

    :param former: such directories outside of the agent's state.
    """
    channels, state = blueprint.channels, blueprint.config.state
    places = [Path(path) for paths in places_of(channels, state).values() for path in paths]
    used = {each for place in places for each in (place, *place.parents)}
    found = {Path(path) for path in former} | {path.absolute() for path in (state / "channels").glob(f"*/{EVENTS}")}
    waiting = {str(path): _waiting(path) for path in sorted(found - used) if path.is_dir()}
    return {directory: waits for directory, waits in waiting.items() if waits is not None}


def told_left(directory: str, waits: str) -> str:
    """Say that events wait in a directory that no channel uses."""
    return _WAITS.format(waits, directory, shlex.quote(directory))


def _waiting(events: Path) -> str | None:
    """How many events wait there, in words; None for none."""
    try:
        counts = [count_of(event) for event in islice(look_at_events(str(events)), _MOST_COUNTED + 1)]
    except (ProducerError, OSError) as error:
        return f"events that cannot be counted ({error})"
    if not counts:
        return None
    more = "more than " if len(counts) > _MOST_COUNTED else ""
    return more + counted(sum(counts[:_MOST_COUNTED]), "event")
