"""Former channels: what lies below the agent's state of channels that are no longer configured.

No sink takes their events, and no other channel gets them. Their events are counted and reported, with how to have
them delivered.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ...channels.file.recovery.inspection import look_at_events
from ...model.errors import ProducerError
from ...text.plural import counted
from ..events.event_format import count_of
from ..flow.channels import EVENTS
from ..ledger.lanes import count_uneven, lanes_of, rules_of
from ..ledger.ledger import peek, told_again
from .blueprint import Blueprint, Part, selection_of

#: Batches that are counted at a start, at most: the others take too long to look at.
_MOST_COUNTED = 1000
_WAITS = (
    "channel {0} is no longer configured: {1} in {2} that no sink takes; to have them delivered configure a channel"
    " with directory = {2!r} and a sink, or print them with: producer channel export {3}"
)


def told(blueprint: Blueprint) -> list[str]:
    """What a start would read again for a change of the configuration, and events that no sink takes."""
    return [*_told_again(blueprint), *told_left(blueprint)]


def told_left(blueprint: Blueprint) -> list[str]:
    """Events in channels that are no longer configured."""
    found = ((path, _waiting(path / EVENTS)) for path in _former(blueprint) if (path / EVENTS).is_dir())
    return [
        _WAITS.format(path.name, waits, str(path / EVENTS), shlex.quote(str(path / EVENTS)))
        for path, waits in found
        if waits is not None
    ]


def _former(blueprint: Blueprint) -> list[Path]:
    """Directories of channels that are no longer configured, and that no other channel uses."""
    places = [Path(path).absolute() for part in blueprint.channels.values() for path in _places(part)]
    used = {each for place in places for each in (place, *place.parents)}
    try:
        found = sorted((blueprint.config.state / "channels").iterdir())
    except OSError:
        return []
    return [path for path in found if path.name not in blueprint.channels and path.absolute() not in used]


def _waiting(events: Path) -> str | None:
    """How many events wait there, in words; None for none."""
    try:
        found = list(islice(look_at_events(str(events)), _MOST_COUNTED + 1))
    except (ProducerError, OSError) as error:
        return f"events that cannot be counted ({error})"
    if not found:
        return None
    more = "more than " if len(found) > _MOST_COUNTED else ""
    return more + counted(sum(map(count_of, found[:_MOST_COUNTED])), "event")


def _told_again(blueprint: Blueprint) -> Iterator[str]:
    for name, part in blueprint.sources.items():
        rules, rows = peek(blueprint.config.state / "sources" / name)
        count = count_uneven(lanes_of(rules, rows).values())
        if count and rules != rules_of(part.channels, selection_of(part), exclusive=part.selector.kind.exclusive):
            yield f"source {name}: {told_again(count)}"


def _places(part: Part) -> Iterable[Path]:
    directory = getattr(part.options, "directory", None)
    return filter(None, (directory, *getattr(part.options, "data_directories", ())))
