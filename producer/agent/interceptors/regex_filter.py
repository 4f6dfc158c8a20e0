"""Keep, or drop, events whose bodies match a pattern. Modelled on Flume's ``RegexFilteringInterceptor``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .patterns import compiled
from .texts import texts

_LITERAL = re.compile(r"[\w\s:;,/@#%&=<>\"'`~!-]+")


class RegexFilterInterceptor:
    """Interceptor that keeps or drops matching events. Modelled on Flume's ``RegexFilteringInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``regex_filter``."""

        regex: str = option(".*", doc="regular expression to find anywhere in the body")
        exclude_events: bool = option(False, doc="drop the events that match, not the others")

        def __post_init__(self) -> None:
            compiled("regex", self.regex)

    def __init__(self, options: Options, context: Context) -> None:
        self._exclude, self._counters = options.exclude_events, context.counters
        self._pattern = compiled("regex", options.regex, "the event is kept")
        self._literal = options.regex.encode() if _LITERAL.fullmatch(options.regex) else None

    def intercept(self, batch: EventBatch) -> EventBatch:
        found = self._found(batch)
        kept = batch.select([not each for each in found] if self._exclude else found)
        self._counters.add(EventDroppedCount=batch.count - kept.count)
        return kept

    def _found(self, batch: EventBatch) -> Sequence[object]:
        literal = self._literal
        if literal is None:
            return self._pattern.search_all(texts(batch), at_limit=not self._exclude)
        if literal not in batch.block:  # so it is in no body either
            return [False] * batch.count
        return [literal in body for body in batch.bodies()]
