"""Sinks: the destinations of batches. LogHub is the default; the others are for the producer's option ``sink``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .file import FileSink
    from .stdout import StdoutSink

__all__ = ["FileSink", "StdoutSink"]

_HOMES = {"FileSink": ".file", "StdoutSink": ".stdout"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:  # imported on demand: a producer for LogHub needs neither
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
