"""The connector to Spark: ``format("loghub")`` and ``foreachPartition``.

Names are imported at first use, so that parts that do not need PySpark work without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasource import LogHubSource, register
    from .executor import get_producer
    from .starting import prepare, session
    from .writing.metrics import WriteMetrics, read_metrics
    from .writing.partition import metrics_accumulator, write_partition

__all__ = [
    "LogHubSource",
    "WriteMetrics",
    "get_producer",
    "metrics_accumulator",
    "prepare",
    "read_metrics",
    "register",
    "session",
    "write_partition",
]

_PLACES = {
    "LogHubSource": "datasource",
    "WriteMetrics": "writing.metrics",
    "get_producer": "executor",
    "metrics_accumulator": "writing.partition",
    "prepare": "starting",
    "read_metrics": "writing.metrics",
    "register": "datasource",
    "session": "starting",
    "write_partition": "writing.partition",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
