r"""Replace the matches of a pattern in bodies. Modelled on Flume's ``SearchAndReplaceInterceptor``.

A replacement refers to groups as in Python, ``\1`` or ``\g<name>``. In Flume's files ``$1`` is accepted, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...model.errors import ConfigError
from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .patterns import compiled, replacement_of
from .texts import texts, with_texts


class SearchReplaceInterceptor:
    """Interceptor that replaces text in bodies. Modelled on Flume's ``SearchAndReplaceInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``search_replace``."""

        search_pattern: str = option(doc="regular expression to find")
        replace_string: str = option("", doc="text in place of a match")

        def __post_init__(self) -> None:
            try:
                compiled("search_pattern", self.search_pattern).check_replacement(self.replace_string)
            except (re.error, IndexError) as error:
                raise ConfigError("replace_string", f"must be a replacement: {error}", self.replace_string) from error

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Translate Java's replacement into Python's, and drop the charset UTF-8."""
            found = {key: value for key, value in texts.items() if (key, value.upper()) != ("charset", "UTF-8")}
            if "replaceString" in found:
                found["replaceString"] = replacement_of(found["replaceString"])
            return found

    def __init__(self, options: Options, context: Context) -> None:
        self._pattern = compiled("search_pattern", options.search_pattern, "the body stays as it is")
        self._with = options.replace_string

    def intercept(self, batch: EventBatch) -> EventBatch:
        replaced = [self._pattern.subn(self._with, text, (text, 0)) for text in texts(batch)]
        if not any(count for _, count in replaced):
            return batch
        return with_texts(batch, [text for text, _ in replaced])
