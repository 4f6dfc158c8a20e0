"""The agent: sources, interceptors, selectors, channels, sink processors and sinks.

::

    source ──put──► interceptors ──► selector ──┬──commit──► channel ──take──► sink processor ──► sink
       ▲                                        └──commit──► channel ──take──► …            │
       └── acknowledged: all required channels have it      ◄──commit: the destination has it

Every hop is a transaction. Events travel as batches whose bodies are in one block (:mod:`.batch`), so no Python code
runs for each event unless a component needs it. A configuration is checked as a whole before anything starts
(:mod:`.blueprint`). Failed components are restarted (:mod:`.supervisor`). After a crash, events that can be read again
are not lost, and committed events are not duplicated (:mod:`.ledger.ledger`).
"""

from ..model.options import option
from ..runtime.clock import Stop
from .config.model import AgentConfig, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from .config.options import AgentConfigError
from .events.batch import EventBatch, Position
from .events.interfaces import (
    Context,
    Interceptor,
    Outlet,
    Patience,
    Refusal,
    RefusedError,
    Routes,
    Selector,
    Sink,
    SinkError,
    Source,
)
from .run.agent import Agent

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentConfigError",
    "ComponentConfig",
    "Context",
    "EventBatch",
    "GroupConfig",
    "Interceptor",
    "Outlet",
    "Patience",
    "Position",
    "Refusal",
    "RefusedError",
    "Routes",
    "Selector",
    "Sink",
    "SinkConfig",
    "SinkError",
    "Source",
    "SourceConfig",
    "Stop",
    "option",
]
