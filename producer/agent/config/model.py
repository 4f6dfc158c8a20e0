"""An agent's configuration, whatever file it came from: names, types and options, which nobody has looked at yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .limits import Limits
from .options import Problem


@dataclass(frozen=True, slots=True)
class ComponentConfig:
    """A component.

    :ivar name: its own.
    :ivar type: what it is: a short name, or that of a class in Flume.
    :ivar options: its options, in our names.
    :ivar lines: where in the file each of them stands; ``""`` is the component itself.
    :ivar keys: what the file calls each of them, where that is not its name; ``""`` is the component itself.
    :ivar beside: keys of the component in the file that are no options, for what was misspelt.
    """

    name: str
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    keys: Mapping[str, str] = field(default_factory=dict, compare=False)
    beside: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class SourceConfig(ComponentConfig):
    """A source.

    :ivar channels: that it writes to, at least one.
    :ivar interceptors: in the order in which they see a batch.
    :ivar selector: chooses among the channels.
    """

    channels: tuple[str, ...] = ()
    interceptors: tuple[ComponentConfig, ...] = ()
    selector: ComponentConfig = field(default_factory=lambda: ComponentConfig("selector", "replicating"))


@dataclass(frozen=True, slots=True)
class SinkConfig(ComponentConfig):
    """A sink.

    :ivar channel: that it takes from.
    :ivar dead_letters: the channel for what is refused permanently; None to keep trying.
    """

    channel: str = ""
    dead_letters: str | None = None


@dataclass(frozen=True, slots=True)
class GroupConfig(ComponentConfig):
    """A sink processor and its sinks, which share a channel.

    :ivar sinks: by name.
    """

    sinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """A whole agent.

    :ivar name: the agent's.
    :ivar state: a directory for what its components keep.
    :ivar monitoring: where to listen for who looks, ``host:port``; None for nowhere.
    :ivar stop_timeout: seconds that an orderly end may take.
    :ivar limits: of memory and processors.
    :ivar lines: where in the file the agent's own keys stand.
    :ivar origin: the file, for messages.
    :ivar problems: what is wrong with the file itself.
    :ivar notes: what was passed over, and what else whoever starts it should know.
    :ivar hidden: what came from the environment and from files, and the reference to it: messages show that instead.
    """

    name: str
    sources: Mapping[str, SourceConfig]
    channels: Mapping[str, ComponentConfig]
    sinks: Mapping[str, SinkConfig]
    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    state: Path = Path("loghub-agent")
    monitoring: str | None = None
    stop_timeout: float = 30.0
    limits: Limits = field(default_factory=Limits)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    origin: str = field(default="configuration", compare=False)
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    hidden: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
