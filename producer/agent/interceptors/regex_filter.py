"""Keeps, or drops, events in whose bodies a pattern is found. Source: Flume's ``RegexFilteringInterceptor``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .patterns import compiled, slow_notes
from .texts import texts

_LITERAL = re.compile(r"[\w\s:;,/@#%&=<>\"'`~!-]+")


class RegexFilterInterceptor:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``regex_filter``'s."""

        regex: str = option(".*", doc="what is looked for, anywhere in the body")
        exclude_events: bool = option(False, doc="drop the events in which it is found, not the others")

        def __post_init__(self) -> None:
            compiled("regex", self.regex)

    def __init__(self, options: Options, context: Context) -> None:
        self._exclude, self._counters = options.exclude_events, context.counters
        self._search = compiled("regex", options.regex).search
        self._literal = options.regex.encode() if _LITERAL.fullmatch(options.regex) else None

    @staticmethod
    def notes(options: Options, given: Collection[str]) -> list[str]:
        """What whoever starts it should know."""
        return slow_notes("regex", [options.regex])

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        found = self._found(batch)
        kept = batch.select([not each for each in found] if self._exclude else found)
        self._counters.add(EventDroppedCount=batch.count - kept.count)
        return kept

    def _found(self, batch: EventBatch) -> Sequence[object]:
        literal = self._literal
        if literal is None:
            return list(map(self._search, texts(batch)))
        if literal not in batch.block:  # nor in any of the bodies
            return [False] * batch.count
        return [literal in body for body in batch.bodies()]
