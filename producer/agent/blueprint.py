"""What a configuration comes to: for each component its class and its options, all checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .config.model import AgentConfig, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from .options import AgentConfigError, Problem, nearest, read_options
from .registry import class_of


@dataclass(frozen=True, slots=True)
class Part:
    """A component to be made.

    :ivar name: its own.
    :ivar kind: its class.
    :ivar options: an instance of the class's ``Options``.
    """

    name: str
    kind: Any
    options: Any

    def make(self, *arguments: Any) -> Any:
        """The component."""
        return self.kind(self.options, *arguments)


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A source, and what stands behind it."""

    source: Part
    channels: tuple[str, ...]
    interceptors: tuple[Part, ...]
    selector: Part


@dataclass(frozen=True, slots=True)
class SinkPart:
    """One sink, or a group of sinks with its processor: whoever takes from a channel.

    :ivar name: of the sink or the group.
    """

    name: str
    processor: Part
    sinks: tuple[Part, ...]
    channel: str
    dead_letters: str | None


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All components of an agent, by name."""

    config: AgentConfig
    channels: Mapping[str, Part]
    sources: Mapping[str, SourcePart]
    sinks: Mapping[str, SinkPart]


def draw(config: AgentConfig) -> Blueprint:
    """Check a configuration whole.

    :raises AgentConfigError: with all that is wrong.
    """
    drawer = _Drawer(config)
    blueprint = drawer.draw()
    if drawer.problems:
        raise AgentConfigError(drawer.problems, config.origin)
    return blueprint


class _Drawer:
    """Collects what is wrong, and goes on."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self.problems: list[Problem] = []

    def draw(self) -> Blueprint:
        config = self._config
        for kind in ("sources", "channels", "sinks"):
            if not getattr(config, kind):
                self._wrong(kind, "", "there are none: an agent has at least one of each")
        channels = {name: self._part("channels", f"channels.{name}", part) for name, part in config.channels.items()}
        sources = {name: self._source(source) for name, source in config.sources.items()}
        sinks = {part.name: part for part in self._sink_parts()}
        self._check_channels_are_served()
        return Blueprint(config, channels, sources, sinks)

    def _source(self, source: SourceConfig) -> SourcePart:
        where = f"sources.{source.name}"
        if not source.channels:
            self._wrong(where, "channels", "names no channel")
        for channel in source.channels:
            self._must_be_channel(where, "channels", channel)
        return SourcePart(
            self._part("sources", where, source),
            source.channels,
            tuple(self._part("interceptors", f"{where}.interceptors.{i.name}", i) for i in source.interceptors),
            self._part("selectors", f"{where}.selector", source.selector),
        )

    def _sink_parts(self) -> list[SinkPart]:
        config = self._config
        parts = {sink.name: self._part("sinks", f"sinks.{sink.name}", sink) for sink in config.sinks.values()}
        grouped: dict[str, str] = {}
        found = [self._group(group, parts, grouped) for group in config.groups.values()]
        for sink in config.sinks.values():
            self._check_sink(sink)
            if sink.name not in grouped:
                processor = self._part("processors", f"sinks.{sink.name}", ComponentConfig(sink.name, "default"))
                found.append(SinkPart(sink.name, processor, (parts[sink.name],), sink.channel, sink.dead_letters))
        return found

    def _group(self, group: GroupConfig, parts: Mapping[str, Part], grouped: dict[str, str]) -> SinkPart:
        where, sinks = f"groups.{group.name}", self._config.sinks
        if group.name in sinks:
            self._wrong(where, "", "a sink has this name too")
        if not group.sinks:
            self._wrong(where, "sinks", "names no sink")
        known = [name for name in group.sinks if name in sinks]
        for name in group.sinks:
            if name not in sinks:
                self._wrong(where, "sinks", f"there is no sink {name!r}{nearest(name, sinks)}")
            elif grouped.setdefault(name, group.name) != group.name:
                self._wrong(where, "sinks", f"sink {name!r} is in group {grouped[name]!r} too")
        channels = list(dict.fromkeys(sinks[name].channel for name in known))
        if len(channels) > 1:
            self._wrong(where, "sinks", f"the sinks of a group share a channel; these have {', '.join(channels)}")
        letters = next((sinks[name].dead_letters for name in known if sinks[name].dead_letters), None)
        processor = self._part("processors", where, group)
        return SinkPart(group.name, processor, tuple(parts[n] for n in known), (channels or [""])[0], letters)

    def _check_sink(self, sink: SinkConfig) -> None:
        where = f"sinks.{sink.name}"
        if not sink.channel:
            self._wrong(where, "channel", "is missing: the channel that the sink takes from")
        else:
            self._must_be_channel(where, "channel", sink.channel)
        if sink.dead_letters is not None:
            self._must_be_channel(where, "dead_letters", sink.dead_letters)
            if sink.dead_letters == sink.channel:
                self._wrong(where, "dead_letters", f"is the channel {sink.channel!r} that it takes from")

    def _check_channels_are_served(self) -> None:
        """A channel that nobody takes from fills, unless it holds dead letters."""
        config = self._config
        served = {sink.channel for sink in config.sinks.values()}
        letters = {sink.dead_letters for sink in config.sinks.values()}
        fed = {channel for source in config.sources.values() for channel in source.channels}
        for name in config.channels:
            if name not in served | letters:
                self._wrong(f"channels.{name}", "", "no sink takes from it: it would fill, and hold its sources up")
            elif name not in fed | letters:
                self._wrong(f"channels.{name}", "", "no source writes to it")

    def _part(self, kind: str, where: str, component: ComponentConfig) -> Part:
        """A component; one that cannot be made, of which nobody will make use, if something is wrong with it."""
        try:
            cls = class_of(kind, component.type)
            return Part(component.name, cls, read_options(cls.Options, component.options, where, component.lines))
        except AgentConfigError as error:
            self.problems += error.problems
        except LookupError as error:
            self._wrong(where, "type", error.args[0], component.lines.get("type"))
        except ImportError as error:
            self._wrong(where, "type", f"{component.type} needs {error.name}, which is not installed: {error}")
        return Part(component.name, None, None)

    def _must_be_channel(self, where: str, key: str, name: str) -> None:
        if name not in self._config.channels:
            self._wrong(where, key, f"there is no channel {name!r}{nearest(name, self._config.channels)}")

    def _wrong(self, where: str, key: str, message: str, line: int | None = None) -> None:
        self.problems.append(Problem(where, key, message, line))
