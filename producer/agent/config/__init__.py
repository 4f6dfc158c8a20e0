"""Read agent configurations: the agent's own TOML format and Flume's properties files."""

from .model import AgentConfig, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from .properties_file import parse_flume, read_properties
from .toml_file import parse_toml, read_toml

__all__ = [
    "AgentConfig",
    "ComponentConfig",
    "GroupConfig",
    "SinkConfig",
    "SourceConfig",
    "parse_flume",
    "parse_toml",
    "read_properties",
    "read_toml",
]
