"""Find the extras and programs that an agent's configuration needs, whether or not they are installed here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from .model import AgentConfig, ComponentConfig
from .registry import class_of


def extras_of(config: AgentConfig) -> list[str]:
    """List the extras. The first one is ``agent``, which monitoring needs."""
    kinds = {"sources": config.sources, "channels": config.channels, "sinks": config.sinks}
    found = {extra for kind, named in kinds.items() for one in named.values() for extra in _extras(kind, one)}
    return ["agent", *sorted(found - {"agent"})]


def packages_of(config: AgentConfig) -> list[str]:
    """List the packages of Debian with the programs that sources run."""
    found = set[str]()
    for source in config.sources.values():
        with suppress(LookupError, ImportError):  # as below
            found.update(getattr(class_of("sources", source.type), "packages", ()))
    return sorted(found)


def _extras(kind: str, component: ComponentConfig) -> Iterator[str]:
    """Yield the extras that a component's class and options need."""
    try:
        yield from getattr(class_of(kind, component.type), "needs", {}).values()
    except (LookupError, ImportError):  # a plugin's component that is not installed here
        return
    options = component.options
    if "key_file" in options:
        yield "encryption"
    if options.get("transport") == "grpc":
        yield "otlp-grpc"
    if options.get("format") == "parquet":
        yield "arrow"
    if str(options.get("path", "")).startswith(("s3://", "s3a://")):
        yield "s3"
