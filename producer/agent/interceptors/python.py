"""A function of the user's, found by ``module:name``: from batch to batch, or from event to event.

For each batch it is called with an :class:`~..batch.EventBatch` and returns one. For each event it is called with the
headers and the body, and returns both, or None to drop the event. It may run on several threads at once.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...model.errors import ConfigError
from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function may be called with so many arguments; True if that cannot be known."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class PythonInterceptor:
    """Calls one function. What it raises for all events ends this run of the source, which is then run again; an event
    for which alone it raises is dropped (:mod:`..interception`).
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Which function."""

        function: str = option(doc="module:name, of a module on the import path")
        each: str = option("batch", doc="what it is called with", choices=("batch", "event"))

        def __post_init__(self) -> None:
            given = {"batch": "(batch)", "event": "(headers, body)"}
            fitting = [each for each, named in given.items() if _takes(self.found(), named.count(",") + 1)]
            if fitting and self.each not in fitting:
                rule = f"must be {fitting[0]}: {self.function} takes {given[fitting[0]]}, not {given[self.each]}"
                raise ConfigError("each", rule, self.each)

        def found(self) -> Callable[..., Any]:
            """The function."""
            module, _, name = self.function.partition(":")
            try:
                found: Any = importlib.import_module(module)
                for part in name.split("."):
                    found = getattr(found, part)
            except (ImportError, AttributeError, ValueError) as error:
                raise ConfigError("function", f"must be module:name; {error}", self.function) from error
            if not callable(found):
                raise ConfigError("function", f"must be a function, not {type(found).__name__}", self.function)
            function: Callable[..., Any] = found
            return function

    def __init__(self, options: Options, context: Context) -> None:
        self._function, self._each, self._counters = options.found(), options.each, context.counters
        self._name = options.function

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        after = self._by_event(batch) if self._each == "event" else self._by_batch(batch)
        self._counters.add(EventDroppedCount=max(0, batch.count - after.count))
        return after

    def _by_event(self, batch: EventBatch) -> EventBatch:
        results = [self._function(headers, body) for headers, body in batch.events()]
        return EventBatch.of_events([result for result in results if result is not None], batch.position)

    def _by_batch(self, batch: EventBatch) -> EventBatch:
        after = self._function(batch)
        if not isinstance(after, EventBatch):
            raise TypeError(f"{self._name} must return an EventBatch, and returned {type(after).__name__}")
        return after.at(batch.position)
