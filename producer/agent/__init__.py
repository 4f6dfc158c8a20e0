"""The agent: sources read, interceptors change, selectors route, channels keep, sink processors choose, sinks deliver.

::

    source ──put──► interceptors ──► selector ──┬──commit──► channel ──take──► sink processor ──► sink
       ▲                                        └──commit──► channel ──take──► …            │
       └── acknowledged: all required channels have it      ◄──commit: the destination has it

Every hop is a transaction. What flows is a batch, with its bodies in one block (:mod:`.batch`): no Python runs for each
event unless a component asks for it. What a file says is checked whole before anything starts (:mod:`.blueprint`),
and what fails is run again (:mod:`.supervisor`). After a death nothing is lost that can be read again, and what was
committed comes once (:mod:`.ledger.ledger`).
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
