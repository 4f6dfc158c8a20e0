"""Configurations of an agent: our TOML, Flume's properties, and the one made of the other."""

from .convert import convert
from .model import AgentConfig, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from .properties_file import parse_flume, read_properties
from .toml_file import parse_toml, read_toml

__all__ = [
    "AgentConfig",
    "ComponentConfig",
    "GroupConfig",
    "SinkConfig",
    "SourceConfig",
    "convert",
    "parse_flume",
    "parse_toml",
    "read_properties",
    "read_toml",
]
