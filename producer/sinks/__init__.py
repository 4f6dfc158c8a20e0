"""Sinks: where batches leave. LogHub is the default, and has its own folder; these are for a producer's ``sink``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .file import FileSink
    from .stdout import StdoutSink

__all__ = ["FileSink", "StdoutSink"]

_HOMES = {"FileSink": ".file", "StdoutSink": ".stdout"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:  # imported when it is asked for: LogHub's needs neither
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
