"""An agent's configuration as read from a file, before any name, type or option is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import Case
from .limits import Limits
from .options import Problem


@dataclass(frozen=True, slots=True)
class ComponentConfig:
    """A component's configuration.

    :ivar name: the component's name.
    :ivar type: the short name of its type, or a class name of Flume's.
    :ivar options: its options, by our names.
    :ivar lines: the line of each option in the file; ``""`` is the component itself.
    :ivar keys: the file's key of each option, where it differs from the name; ``""`` is the component itself.
    :ivar beside: keys of a component in the file besides options, as suggestions for a misspelt key.
    """

    name: str
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    keys: Mapping[str, str] = field(default_factory=dict, compare=False)
    beside: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class SourceConfig(ComponentConfig):
    """A source's configuration.

    :ivar channels: the channels to write to, at least one.
    :ivar interceptors: the interceptors, in the order in which they see a batch.
    :ivar selector: the selector that chooses among the channels.
    """

    channels: tuple[str, ...] = ()
    interceptors: tuple[ComponentConfig, ...] = ()
    selector: ComponentConfig = field(default_factory=lambda: ComponentConfig("selector", "replicating"))


@dataclass(frozen=True, slots=True)
class SinkConfig(ComponentConfig):
    """A sink's configuration.

    :ivar channel: the channel to take from.
    :ivar dead_letters: the channel for events that are refused permanently; None to retry them.
    """

    channel: str = ""
    dead_letters: str | None = None


@dataclass(frozen=True, slots=True)
class GroupConfig(ComponentConfig):
    """A sink processor and its sinks, which share a channel.

    :ivar sinks: the names of the sinks.
    """

    sinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The configuration of a whole agent.

    :ivar name: the agent's name.
    :ivar tests: the tests of the configuration.
    :ivar state: the directory for the components' state.
    :ivar monitoring: the address of the monitoring server, ``host:port``; None for no server.
    :ivar stop_timeout: the longest graceful shutdown, in seconds.
    :ivar tap: True if the monitoring may show events.
    :ivar limits: limits of memory and CPU.
    :ivar lines: the line of each of the agent's own keys in the file.
    :ivar origin: the path of the file, for messages.
    :ivar problems: problems of the file itself.
    :ivar notes: ignored keys, and other hints for the operator.
    :ivar hidden: values from the environment and from files, and the reference that messages show instead.
    """

    name: str
    sources: Mapping[str, SourceConfig]
    channels: Mapping[str, ComponentConfig]
    sinks: Mapping[str, SinkConfig]
    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    tests: tuple[Case, ...] = field(default=(), compare=False)
    state: Path = Path("loghub-agent")
    monitoring: str | None = None
    stop_timeout: float = 30.0
    tap: bool = False
    limits: Limits = field(default_factory=Limits)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    origin: str = field(default="configuration", compare=False)
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    hidden: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
