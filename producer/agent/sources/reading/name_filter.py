"""The names of files or objects to read, by the options ``include_pattern`` and ``ignore_pattern``."""

from __future__ import annotations

import re

from ....model.errors import ConfigError
from ....wire.patterns import Pattern


class NameFilter:
    """Filter of names by two regular expressions.

    :param include: the expression to find in names to read.
    :param ignore: the expression to find in names not to read.
    :param outcome: the outcome for a name whose search takes too long, for the log.
    :raises ConfigError: one is not a regular expression.
    """

    def __init__(self, include: str, ignore: str, outcome: str) -> None:
        self._include = _pattern("include_pattern", include, outcome)
        self._ignore = _pattern("ignore_pattern", ignore, outcome)

    def accepts(self, name: str) -> bool:
        """Return True if a name is to be read."""
        return bool(self._include.search(name)) and not self._ignore.search(name, at_limit=True)


def _pattern(option: str, text: str, outcome: str) -> Pattern[str]:
    try:
        return Pattern(text, re.DOTALL, option=option, outcome=outcome)  # DOTALL: a name may contain line ends
    except ValueError as error:
        raise ConfigError(option, f"must be a regular expression: {error.__cause__}", text) from error
