"""Former channels: what lies below the agent's state of channels that are no longer configured.

Where a channel's directory follows its name, a new name leaves the directory behind, with its events and with how far
its sources came. So where all sources that used the one use the other now, and nothing else of theirs came or went, it
is the same channel: its directory gets the new name before it is opened. Then all goes on where it was. *Example*::

    channels/queue/events   ──►   channels/spool/events

In all other cases nobody knows who should go on with it: what waits there is counted, and told.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ...channels.file.recovery.inspection import look_at_events
from ...channels.file.store.disk import Disk
from ...channels.file.store.notes import NOTES_NAME
from ...model.errors import ProducerError
from ...text.plural import counted
from ..events.event_format import count_of
from ..flow.channels import EVENTS, FileChannelBuilder, MemoryChannelBuilder, SpillableChannelBuilder
from ..ledger.members import Used, used_by
from .blueprint import Blueprint, Part

#: Batches that are counted at a start, at most: the others take too long to look at.
_MOST_COUNTED = 1000


_READ_AGAIN = (
    "source {}: {} no longer configured, and no other channel has what it has read: what it can read again it reads"
    " from the beginning; if it is not to, move the directory of one, in {}, to the place of a new channel's while the"
    " agent is stopped"
)
_WAITS = (
    "channel {0} is no longer configured: {1} in {2} that no sink takes; to have them delivered configure a channel"
    " with directory = {2!r} and a sink, or print them with: producer channel export {3}"
)


@dataclass(frozen=True, slots=True)
class FormerChannel:
    """A channel that was.

    :ivar name: its name.
    :ivar directory: what has this name, below the agent's state.
    """

    name: str
    directory: Path

    @property
    def events(self) -> Path:
        """Where those on the disk are."""
        return self.directory / EVENTS

    def waiting(self) -> str | None:
        """How many events wait there, in words; None if none does."""
        try:
            found = list(islice(look_at_events(str(self.events)), _MOST_COUNTED + 1))
        except (ProducerError, OSError) as error:
            return f"events that cannot be counted ({error})"
        if not found:
            return None
        more = "more than " if len(found) > _MOST_COUNTED else ""
        return more + counted(sum(map(count_of, found[:_MOST_COUNTED])), "event")

    def told(self, waits: str) -> str:
        """What there is to know, and to do, if something waits."""
        return _WAITS.format(self.name, waits, str(self.events), shlex.quote(str(self.events)))


def former_channels(blueprint: Blueprint) -> list[FormerChannel]:
    """Those that are no longer configured, and whose directories no other one has."""
    places = [Path(path) for part in blueprint.channels.values() for path in _places(part)]
    found = []
    with contextlib.suppress(OSError):
        for path in sorted((blueprint.config.state / "channels").iterdir()):
            is_used = any(path.absolute() in (place.absolute(), *place.absolute().parents) for place in places)
            if path.is_dir() and path.name not in blueprint.channels and not is_used:
                found.append(FormerChannel(path.name, path))
    return found


def told(blueprint: Blueprint) -> list[str]:
    """What a start would do with former channels, and what nobody would take."""
    renamed = renamed_channels(blueprint)
    lines = [f"channel {name} goes on with what {former.name} has" for name, former in renamed.items()]
    others = {each.name for each in renamed.values()}
    return [*lines, *told_read_again(blueprint, renamed), *told_left(blueprint, others)]


def told_left(blueprint: Blueprint, others: Collection[str] = ()) -> list[str]:
    """What to say of channels in which something waits that nobody takes.

    :param others: names of those that somebody does.
    """
    found = (each for each in former_channels(blueprint) if each.name not in others)
    told_of = ((each, each.waiting()) for each in found if each.events.is_dir())
    return [each.told(waits) for each, waits in told_of if waits is not None]


def told_read_again(blueprint: Blueprint, renamed: Mapping[str, FormerChannel]) -> list[str]:
    """What to say of sources that know no more how far they came, since each of their channels is another one."""
    former = {each.name for each in former_channels(blueprint)} - {each.name for each in renamed.values()}
    lines = []
    for name, used in _used(blueprint):
        is_asked = used.asked and blueprint.sources[name].selector.kind.exclusive
        if used.channels and used.channels <= former and not is_asked:
            channels = f"{', '.join(sorted(used.channels))} {'is' if len(used.channels) == 1 else 'are'}"
            lines.append(_READ_AGAIN.format(name, channels, blueprint.config.state / "channels"))
    return lines


def renamed_channels(blueprint: Blueprint) -> dict[str, FormerChannel]:
    """Which channels others were before, under another name, by the new one."""
    former = {each.name: each for each in former_channels(blueprint)}
    followers = _followers(blueprint, former.keys()) if former else {}
    new, state = list(followers.values()), blueprint.config.state / "channels"
    return {
        name: former[one]
        for one, name in followers.items()
        if new.count(name) == 1
        and name in blueprint.channels
        and not (state / name).exists()
        and _is_like(blueprint.channels[name], former[one])
    }


def _followers(blueprint: Blueprint, former: Collection[str]) -> dict[str, str]:
    """Which channel all sources that used a former one use in its place, where that is clear, by the former one."""
    found = defaultdict[str, set[str | None]](set)
    for name, used in _used(blueprint):
        gone, new = used.channels & set(former), set(blueprint.sources[name].channels) - used.channels
        is_clear = len(gone) == len(new) == 1 and not gone & used.asked
        for one in gone:
            found[one] |= new if is_clear else {None}
    return {one: name for one, (name, *others) in found.items() if name is not None and not others}


def rename(former: FormerChannel, name: str) -> FormerChannel:
    """Give a directory a channel's name; what it is then.

    :raises OSError: it cannot be had.
    """
    directory = former.directory.with_name(name)
    former.directory.rename(directory)
    Disk().sync_directory(str(directory.parent))
    return FormerChannel(name, directory)


def _used(blueprint: Blueprint) -> Iterator[tuple[str, Used]]:
    for name in blueprint.sources:
        used = used_by(blueprint.config.state / "sources" / name)
        if used is not None:
            yield name, used


def _places(part: Part) -> Iterable[Path]:
    directory = getattr(part.options, "directory", None)
    return filter(None, (directory, *getattr(part.options, "data_directories", ())))


def _is_like(part: Part, former: FormerChannel) -> bool:
    """Whether a channel has on the disk what the former one has."""
    kinds: Mapping[object, tuple[bool, bool]] = {
        FileChannelBuilder: (True, False),
        MemoryChannelBuilder: (False, True),
        SpillableChannelBuilder: (getattr(part.options, "directory", None) is None, True),
    }
    found = former.events.is_dir(), (former.directory / NOTES_NAME).exists()
    elsewhere = part.kind is FileChannelBuilder and part.options.directory is not None
    return kinds.get(part.kind) == found and not elsewhere
