"""Remove headers by their names. Modelled on Flume's ``RemoveHeaderInterceptor``."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .patterns import compiled


class RemoveHeaderInterceptor:
    """Interceptor that removes headers by name. Modelled on Flume's ``RemoveHeaderInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``remove_header``; a header that matches any of them is removed."""

        with_name: str | None = option(None, doc="name of a header to remove")
        from_list: str | None = option(None, doc="list of names to remove")
        from_list_separator: str = option(r"\s*,\s*", doc="regular expression that separates the names in the list")
        matching: str | None = option(None, doc="regular expression for whole names to remove")

        def __post_init__(self) -> None:
            compiled("from_list_separator", self.from_list_separator)
            compiled("matching", self.matching or "")

    def __init__(self, options: Options, context: Context) -> None:
        names = compiled("from_list_separator", options.from_list_separator).split(options.from_list or "")
        self._names = {name.strip() for name in [*names, options.with_name or ""]} - {""}
        self._pattern = (
            None if options.matching is None else compiled("matching", options.matching, "the header is removed")
        )

    def intercept(self, batch: EventBatch) -> EventBatch:
        return batch.without(self._is_unwanted)

    def _is_unwanted(self, name: str) -> bool:
        return name in self._names or (
            self._pattern is not None and self._pattern.fullmatch(name, at_limit=True) is not None
        )
