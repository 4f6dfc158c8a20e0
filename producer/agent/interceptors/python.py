"""Call a function of the user, given as ``module:name``, for each batch or for each event.

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
    """Return True if a function accepts so many arguments, or its signature is unknown."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class PythonInterceptor:
    """Interceptor that calls a Python function for each batch or each event.

    An error for a single event drops the event (:mod:`..interception`). An error for all events ends this run of the
    source, which is then restarted.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """The function, and its unit of work."""

        function: str = option(doc="function as module:name, in a module on the import path")
        each: str = option("batch", doc="argument of the function", choices=("batch", "event"))

        def __post_init__(self) -> None:
            given = {"batch": "(batch)", "event": "(headers, body)"}
            fitting = [each for each, named in given.items() if _takes(self.found(), named.count(",") + 1)]
            if fitting and self.each not in fitting:
                rule = f"must be {fitting[0]}: {self.function} takes {given[fitting[0]]}, not {given[self.each]}"
                raise ConfigError("each", rule, self.each)

        def found(self) -> Callable[..., Any]:
            """Import and return the function."""
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
        after = self._by_event(batch) if self._each == "event" else self._by_batch(batch)
        self._counters.add(EventDroppedCount=max(0, batch.count - after.count))
        return after

    def _by_event(self, batch: EventBatch) -> EventBatch:
        results = [self._function(headers, body) for headers, body in batch.events()]
        return EventBatch.of_events([result for result in results if result is not None], batch.position)

    def _by_batch(self, batch: EventBatch) -> EventBatch:
        after = self._function(batch)
        if not isinstance(after, EventBatch):
            raise TypeError(f"{self._name} must return an EventBatch, not {type(after).__name__}")
        return after.at(batch.position)
