"""Compare two configurations of an agent: which components end, and which start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .blueprint import Blueprint, SinkPart, SourcePart


@dataclass(frozen=True, slots=True)
class Changes:
    """The names of components that end or start. A changed component does both, as does one whose channel changed.

    :ivar channels_ended: channels that are closed: removed or changed ones.
    :ivar channels_begun: channels that are opened: changed or new ones.
    :ivar sinks_ended: sinks and groups that end.
    :ivar sinks_begun: sinks and groups that start.
    :ivar sources_ended: sources that end.
    :ivar sources_begun: sources that start.
    """

    channels_ended: frozenset[str]
    channels_begun: frozenset[str]
    sinks_ended: frozenset[str]
    sinks_begun: frozenset[str]
    sources_ended: frozenset[str]
    sources_begun: frozenset[str]

    def __bool__(self) -> bool:
        return any((*self._ended(), *self._begun()))

    def __str__(self) -> str:
        ended, begun = self._named(self._ended()), self._named(self._begun())
        parts = {
            "new": begun - ended,
            "changed": begun & ended,
            "removed": ended - begun,
        }
        texts = [f"{word}: {', '.join(sorted(names))}" for word, names in parts.items() if names]
        return "; ".join(texts) or "no component has changed"

    def _ended(self) -> tuple[frozenset[str], ...]:
        return self.sources_ended, self.channels_ended, self.sinks_ended

    def _begun(self) -> tuple[frozenset[str], ...]:
        return self.sources_begun, self.channels_begun, self.sinks_begun

    def _named(self, kinds: Iterable[frozenset[str]]) -> set[str]:
        return {
            f"{kind} {name}" for kind, names in zip(("source", "channel", "sink"), kinds, strict=True) for name in names
        }


def compare(old: Blueprint, new: Blueprint) -> Changes:
    """Return the changes from the old configuration to the new one."""
    channels = _differing(old.channels, new.channels)
    sinks = _differing(old.sinks, new.sinks)
    sources = _differing(old.sources, new.sources)
    sinks |= {name for name, part in new.sinks.items() if channels & _channels_of_sink(part)}
    sources |= {name for name, part in new.sources.items() if channels & _channels_of_source(part)}
    return Changes(
        frozenset(channels & old.channels.keys()),
        frozenset(channels & new.channels.keys()),
        frozenset(sinks & old.sinks.keys()),
        frozenset(sinks & new.sinks.keys()),
        frozenset(sources & old.sources.keys()),
        frozenset(sources & new.sources.keys()),
    )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _channels_of_sink(part: SinkPart) -> set[str]:
    return {part.channel} | ({part.dead_letters} if part.dead_letters is not None else set())


def _channels_of_source(part: SourcePart) -> set[str]:
    return set(part.channels)
