"""Check a configuration as a whole, and resolve each component's class and options before anything starts.

The file is long because the checks of all kinds of components collect their problems in one list.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...text.extras import how_to_install, is_installed
from ...text.printable import hide
from ..config.limits import COMPONENT_BYTES, PROCESS_BYTES
from ..config.model import AgentConfig, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from ..config.options import AgentConfigError, Problem, nearest, read_options
from ..config.registry import BUILT_IN, class_of, plugged_in
from ..flow.channels import EVENTS

_MIB = 1 << 20
#: The events that a crash loses in channels that do not keep all events on the disk.
_FORGETTING = {
    "memory": "a crash of the agent loses the dead letters",
    "spillable": "a crash of the agent loses the dead letters in its memory",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A component to be built.

    :ivar name: its name.
    :ivar kind: its class.
    :ivar options: an instance of the class's ``Options``.
    """

    name: str
    kind: Any
    options: Any

    def make(self, *arguments: Any) -> Any:
        """Build the component."""
        return self.kind(self.options, *arguments)


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A source with its interceptors, selector and channels."""

    source: Part
    channels: tuple[str, ...]
    interceptors: tuple[Part, ...]
    selector: Part


def selection_of(part: SourcePart) -> str:
    """Return a hash of the rules that select the channels of an event. A hash, since options may have secrets."""
    rules = [(each.kind.__qualname__, each.options) for each in (*part.interceptors, part.selector)]
    return hashlib.sha256(repr(rules).encode()).hexdigest()


def places_of(channels: Mapping[str, Part], state: Path) -> dict[str, list[str]]:
    """Return the directories of the channels on the disk: a channel's own first, then those of its segments."""
    found = {}
    for name, part in channels.items():
        if hasattr(part.options, "directory"):
            own = part.options.directory or state / "channels" / name / EVENTS
            found[name] = [str(Path(path).absolute()) for path in (own, *getattr(part.options, "data_directories", ()))]
    return found


@dataclass(frozen=True, slots=True)
class SinkPart:
    """One sink, or a group of sinks with its processor, that takes from a channel.

    :ivar name: the name of the sink or the group.
    """

    name: str
    processor: Part
    sinks: tuple[Part, ...]
    channel: str
    dead_letters: str | None


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All components of an agent, by name.

    :ivar notes: hints about valid settings that may be unintended.
    """

    config: AgentConfig
    channels: Mapping[str, Part]
    sources: Mapping[str, SourcePart]
    sinks: Mapping[str, SinkPart]
    notes: tuple[str, ...] = field(default=(), compare=False)


def draw(config: AgentConfig) -> Blueprint:
    """Check a configuration as a whole.

    :raises AgentConfigError: if it is invalid, with all problems.
    """
    drawer = _Drawer(config)
    blueprint = drawer.draw()
    if drawer.problems:
        raise AgentConfigError(drawer.in_order(), config.origin)
    return blueprint


def problems_of(config: AgentConfig) -> list[Problem]:
    """Return the problems of a configuration whose references, ``${env:X}``, are not resolved."""
    drawer = _Drawer(config)
    drawer.draw()
    return [problem for problem in drawer.in_order() if "${" not in problem.message]


class _Drawer:
    """Builds a blueprint, collecting problems on the way."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self.problems: list[Problem] = list(config.problems)
        self._notes: list[str] = []
        self._reported = {_name(problem) for problem in config.problems}

    def in_order(self) -> list[Problem]:
        """Return the problems in the order of the file, without secrets."""
        problems = [replace(each, message=hide(each.message, self._config.hidden)) for each in self.problems]
        return sorted(problems, key=lambda problem: problem.line or math.inf)

    def draw(self) -> Blueprint:
        config = self._config
        for kind in ("sources", "channels", "sinks"):
            if not getattr(config, kind):
                self.problems.append(
                    Problem(kind, "", "has no component: an agent needs at least one source, channel and sink")
                )
        channels = {name: self._part("channels", f"channels.{name}", part) for name, part in config.channels.items()}
        sources = {name: self._source(source) for name, source in config.sources.items()}
        sinks = {part.name: part for part in self._sink_parts()}
        self._check_channels_are_served()
        self._check_dead_letters()
        self._check_shared(sources, channels)
        self._check_memory(channels, sources, sinks)
        self._check_tests()
        return Blueprint(config, channels, sources, sinks, tuple(self._notes))

    def _source(self, source: SourceConfig) -> SourcePart:
        where = f"sources.{source.name}"
        if not source.channels:
            self._report(source, where, "channels", "must name at least one channel")
        for channel in source.channels:
            self._must_be_channel(source, where, "channels", channel)
        return SourcePart(
            self._part("sources", where, source),
            source.channels,
            tuple(self._part("interceptors", f"{where}.interceptors.{i.name}", i) for i in source.interceptors),
            self._part("selectors", f"{where}.selector", source.selector, source.channels),
        )

    def _sink_parts(self) -> list[SinkPart]:
        config = self._config
        parts = {sink.name: self._part("sinks", f"sinks.{sink.name}", sink) for sink in config.sinks.values()}
        grouped: dict[str, str] = {}
        found = [self._group(group, parts, grouped) for group in config.groups.values()]
        for sink in config.sinks.values():
            self._check_sink(sink)
            if sink.name not in grouped:
                alone = ComponentConfig(sink.name, "default")
                processor = self._part("processors", f"sinks.{sink.name}", alone, (sink.name,))
                found.append(SinkPart(sink.name, processor, (parts[sink.name],), sink.channel, sink.dead_letters))
        return found

    def _group(self, group: GroupConfig, parts: Mapping[str, Part], grouped: dict[str, str]) -> SinkPart:
        where, sinks = f"groups.{group.name}", self._config.sinks
        if group.name in sinks:
            self._report(group, where, "", "is also the name of a sink: use another name")
        if not group.sinks:
            self._report(group, where, "sinks", "must name at least one sink")
        known = [name for name in group.sinks if name in sinks]
        for name in group.sinks:
            if name not in sinks:
                self._report(group, where, "sinks", f"there is no sink {name!r}{nearest(name, sinks)}")
            elif grouped.setdefault(name, group.name) != group.name:
                self._report(group, where, "sinks", f"sink {name!r} is also in group {grouped[name]!r}")
        channels = list(dict.fromkeys(channel for name in known if (channel := sinks[name].channel)))
        if len(channels) > 1:
            self._report(
                group, where, "sinks", f"the sinks of a group share a channel; these have {', '.join(channels)}"
            )
        letters = list(dict.fromkeys(letters for name in known if (letters := sinks[name].dead_letters) is not None))
        if len(letters) > 1:
            message = f"the sinks of a group share their dead letters; these have {', '.join(letters)}"
            self._report(group, where, "sinks", message)
        processor = self._part("processors", where, group, group.sinks)
        own, first = tuple(parts[name] for name in known), letters[0] if letters else None
        self._check_waiting(group, where, own)
        return SinkPart(group.name, processor, own, (channels or [""])[0], first)

    def _check_waiting(self, group: GroupConfig, where: str, parts: Sequence[Part]) -> None:
        """Note a sink that would wait for large deliveries, in a group with one that does not wait."""
        waiting = [part.name for part in parts if getattr(part.kind, "waits", False)]
        if waiting and len(waiting) < len(parts):
            message = (
                f"{', '.join(waiting)} will write an object for each delivery, perhaps of one event, since other sinks "
                "of the group do not wait for more: use sinks of one type in a group"
            )
            self._notes.append(str(placed(Problem(where, "sinks", message), group)))

    def _check_sink(self, sink: SinkConfig) -> None:
        where = f"sinks.{sink.name}"
        if not sink.channel:
            self._report(sink, where, "channel", "is missing: name the channel to take from")
        else:
            self._must_be_channel(sink, where, "channel", sink.channel)
        if sink.dead_letters is not None:
            self._must_be_channel(sink, where, "dead_letters", sink.dead_letters)
            if sink.dead_letters == sink.channel:
                self._report(sink, where, "dead_letters", f"must not be {sink.channel!r}, which the sink takes from")

    def _check_channels_are_served(self) -> None:
        """Refuse a channel without a sink, which would fill, unless it holds dead letters."""
        config = self._config
        served = {sink.channel for sink in config.sinks.values()}
        letters = {sink.dead_letters for sink in config.sinks.values()}
        fed = {channel for source in config.sources.values() for channel in source.channels}
        # A component with a misspelt channel name may mean this channel.
        sinks = self._have_problems("sinks", config.sinks, "channel")
        sources = self._have_problems("sources", config.sources, "channels")
        for name, channel in config.channels.items():
            if name not in served | letters and not sinks:
                message = "no sink takes from it: it would fill, and block its sources"
                self._report(channel, f"channels.{name}", "", message)
            elif name not in served and name in letters:
                message = (
                    "no sink takes from it: refused events stay in it, and once it is full, in their sink's channel"
                )
                self._notes.append(str(placed(Problem(f"channels.{name}", "", message), channel)))
            elif name in served and name not in fed | letters and not sources:
                if "directory" in channel.options:  # perhaps to empty a former channel
                    message = "no source writes to it: its sink delivers only the events already in it"
                    self._notes.append(str(placed(Problem(f"channels.{name}", "", message), channel)))
                else:
                    self._report(
                        channel,
                        f"channels.{name}",
                        "",
                        "no source writes to it: name it in a source's channels, or remove it",
                    )

    def _check_dead_letters(self) -> None:
        """Check that dead letters do not run in circles, and note those that a crash loses."""
        config, circle = self._config, set[str]()
        for sink in config.sinks.values():
            where, letters, channel = f"sinks.{sink.name}", sink.dead_letters, sink.channel
            if letters is None or not {letters, channel} <= config.channels.keys() or letters == channel:
                continue
            beyond = self._reached(letters)
            if channel in beyond and channel not in circle:
                circle |= beyond
                message = f"leads back to {channel!r}: events that all these sinks refuse would circulate for ever"
                self._report(sink, where, "dead_letters", message)
            if (lost := _FORGETTING.get(config.channels[letters].type)) is not None:
                message = f"{letters!r} is not a file channel: {lost}"
                self._notes.append(str(placed(Problem(where, "dead_letters", message), sink)))

    def _reached(self, channel: str) -> set[str]:
        """Return a channel and all channels that its events may reach as dead letters."""
        found, left = {channel}, [channel]
        while left:
            one = left.pop()
            beyond = {sink.dead_letters for sink in self._config.sinks.values() if sink.channel == one}
            new = {letters for letters in beyond if letters is not None} - found
            found |= new
            left += new
        return found

    def _check_shared(self, sources: Mapping[str, SourcePart], channels: Mapping[str, Part]) -> None:
        """Check that no port and no directory belongs to two components."""
        config = self._config
        owners: dict[object, str] = {}
        for name, part in sources.items():
            options = part.source.options
            ports = [getattr(options, "port", None), *(getattr(options, "ports", None) or ())]
            kind = "udp" if "udp" in config.sources[name].type + getattr(options, "transport", "") else "tcp"
            for port in filter(None, ports):
                place = (kind, getattr(options, "bind", ""), port)
                self._check_owner(owners, place, config.sources[name], f"sources.{name}", "port", f"port {port}")
            spool = getattr(options, "spool_directory", None)
            if spool is not None:
                root = "spool", str(spool.resolve())
                self._check_owner(owners, root, config.sources[name], f"sources.{name}", "spool_directory", str(spool))
        for name, (path, *_) in places_of(channels, config.state).items():
            self._check_owner(owners, path, config.channels[name], f"channels.{name}", "directory", path)

    def _check_memory(
        self, channels: Mapping[str, Part], sources: Mapping[str, SourcePart], sinks: Mapping[str, SinkPart]
    ) -> None:
        """Check that the components' limits fit into the agent's memory limit."""
        config = self._config
        limit = config.limits.max_memory_bytes
        if limit is None:
            return
        parts = [(f"channels.{name}", part) for name, part in channels.items()]
        parts += [(f"sources.{name}", part.source) for name, part in sources.items()]
        parts += [(f"sinks.{sink.name}", sink) for part in sinks.values() for sink in part.sinks]
        held = [("the process", PROCESS_BYTES), *((where, _most_held(part)) for where, part in parts if part.kind)]
        total = sum(size for _, size in held)
        if total > limit:
            listed = ", ".join(f"{where} {size / _MIB:.0f}" for where, size in held)
            least = f"must be at least {-(-total // _MIB)}m, got {limit / _MIB:.0f}m"
            message = f"{least}; the components may need, in MiB: {listed}"
            line = config.lines.get("max_memory_bytes")
            self.problems.append(Problem("agent", "max_memory_bytes", message, line))

    def _check_tests(self) -> None:
        """Check the names of sources and channels in the tests."""
        sources, channels = self._config.sources, self._config.channels
        for place, case in enumerate(self._config.tests):
            named = [name for each in case.expect for name in each.channels or () if name not in channels]
            found = [("expect", f"there is no channel {name!r}{nearest(name, channels)}") for name in named]
            if case.source and case.source not in sources:
                found.append(("source", f"there is no source {case.source!r}{nearest(case.source, sources)}"))
            elif not case.source and len(sources) > 1:
                found.append(("source", f"is missing: the sources are {', '.join(sources)}"))
            self.problems += [Problem(f"tests.{place}", key, message, case.line) for key, message in found]

    def _check_owner(
        self, owners: dict[object, str], place: object, component: ComponentConfig, where: str, key: str, shown: str
    ) -> None:
        owner = owners.setdefault(place, where)
        if owner != where:
            self._report(component, where, key, f"{shown} is already used by {owner}")

    def _have_problems(self, kind: str, components: Mapping[str, ComponentConfig], key: str) -> bool:
        """Return True if a problem was found with the channels of one of these parts."""
        wrong = {_name(problem) for problem in self.problems}
        return any(
            _name(placed(Problem(f"{kind}.{each.name}", key, ""), each)) in wrong for each in components.values()
        )

    def _part(self, kind: str, where: str, component: ComponentConfig, names: Sequence[str] | None = None) -> Part:
        """Build a part. After a problem the part is empty, and is not used.

        :param names: the names for the class to check: of a selector's channels, or a processor's sinks.
        """
        none = Part(component.name, None, None)
        if not component.type:
            return none  # reported when the file was read
        try:
            cls = class_of(kind, component.type)
            self._check_packages(component, where, cls)
            if component.type in BUILT_IN[kind] and component.type in plugged_in(kind):
                package = plugged_in(kind)[component.type].value
                note = f"{component.type} is the built-in type; the plugin {package} of the same name is ignored"
                self._notes.append(str(placed(Problem(where, "type", note), component)))
            given = component.options, where, component.lines, component.beside
            options = read_options(cls.Options, *given, flume=bool(component.keys))
            if names is not None and hasattr(cls, "check"):
                cls.check(options, where, names)
            if hasattr(cls, "notes"):
                notes = [Problem(where, "", text) for text in cls.notes(options, component.options)]
                self._notes += [str(placed(note, component)) for note in notes]
            return Part(component.name, cls, options)
        except AgentConfigError as error:
            found = [placed(problem, component) for problem in error.problems]
            self.problems += [problem for problem in found if _name(problem) not in self._reported]
        except LookupError as error:
            self._report(component, where, "type", error.args[0])
        except ImportError as error:
            message = f"{component.type} needs {error.name}, which is not installed: {error}"
            self._report(component, where, "type", message)
        return none

    def _check_packages(self, component: ComponentConfig, where: str, cls: Any) -> None:
        """Check the packages that a class imports only when it runs."""
        for package, extra in getattr(cls, "needs", {}).items():
            if not is_installed(package):
                message = f"type {component.type!r} needs the Python package {package}: {how_to_install(extra)}"
                self._report(component, where, "type", message)

    def _must_be_channel(self, component: ComponentConfig, where: str, key: str, name: str) -> None:
        if name not in self._config.channels:
            self._report(component, where, key, f"there is no channel {name!r}{nearest(name, self._config.channels)}")

    def _report(self, component: ComponentConfig, where: str, key: str, message: str) -> None:
        problem = placed(Problem(where, key, message), component)
        if _name(problem) not in self._reported:  # reported when the file was read
            self.problems.append(problem)


def _most_held(part: Part) -> int:
    """Return the maximum bytes that a component holds, by its options."""
    holds: Callable[[], int] | None = getattr(part.options, "holds", None)
    return COMPONENT_BYTES if holds is None else holds()


def _name(problem: Problem) -> str:
    return ".".join(part for part in (problem.where, problem.key) if part)


def placed(problem: Problem, component: ComponentConfig) -> Problem:
    """Return the problem with the line and the name of its key in the file, or of the nearest enclosing one."""
    head, dot, rest = problem.key.partition(".")
    key = f"{component.keys.get(head, head)}{dot}{rest}" if head else ""
    places = (component.lines.get(each) for each in (key, problem.key, head, ""))
    line = problem.line or next((line for line in places if line is not None), None)
    return replace(problem, where=component.keys.get("", problem.where), key=key, line=line)
