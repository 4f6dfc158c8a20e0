"""Regular expressions of users, in Python's syntax, with a time limit for each search.

Python's ``re`` can neither be limited nor interrupted: with ``(a|aa)+$``, a line of fifty letters takes hours, during
which no other thread runs. The package ``regex`` has a time limit. It supports all of ``re``, and more. So that
patterns stay Python's, syntax that it would read differently is escaped, and patterns that ``re`` rejects are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, AnyStr, Generic, TypeVar

import regex

from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog
from ..text.plural import counted
from ..text.printable import described

_log = get_logger("loghub.patterns")

#: Time limit of one search: processor time of the process, seconds. A sound pattern needs less for 8 MiB.
SECONDS = 1.0
# Time limit of the first attempt, which holds the GIL; the second one releases it.
_FIRST_SECONDS = 0.02

# An escape, a class, or a brace that begins no repetition: ``regex`` would read {e} as "one error is allowed".
_TOKEN = re.compile(
    r"\\N\{[^}]*\}|\\.|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*+\])|(?P<brace>\{)(?!(?:\d+(?:,\d*)?|,\d*)\})", re.DOTALL
)
# A bracket in a class: ``regex`` would read [:alpha:] as the letters.
_IN_CLASS = re.compile(r"\\.|(?P<bracket>(?<!\A)\[)", re.DOTALL)

T = TypeVar("T")


class Pattern(Generic[AnyStr]):
    """A user's regular expression.

    If a search exceeds the limit, a method returns ``at_limit`` for its text, and a warning is logged.

    :param option: the name of the option with the pattern, for the log.
    :param outcome: the outcome for a text whose search exceeded the limit, for the log.
    :param flags: ``re.ASCII`` and ``re.DOTALL``.
    :raises ValueError: it is not a regular expression of Python.
    """

    def __init__(self, pattern: AnyStr, flags: int = 0, *, option: str, outcome: str = "it does not match") -> None:
        try:
            parsed = re.compile(pattern, flags)
            own = (regex.ASCII if flags & re.ASCII else 0) | (regex.DOTALL if flags & re.DOTALL else 0)
            self._regex: Any = regex.compile(_escaped(pattern), own | regex.VERSION0)
        except (re.error, regex.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{_text(pattern)!r} is not a regular expression: {error}") from error
        self.pattern: AnyStr = pattern
        self.flags, self.option, self.outcome = flags, option, outcome
        self.groups, self.groupindex = parsed.groups, dict(parsed.groupindex)
        self._lines = RateLimitedLog()

    def __reduce__(self) -> tuple[Callable[..., Pattern[AnyStr]], tuple[AnyStr, int, str, str]]:
        return _made, (self.pattern, self.flags, self.option, self.outcome)

    def match(self, text: AnyStr, at_limit: Any = None) -> Any:
        """Return the match at the beginning of a text, or None."""
        return next(self._each(self._regex.match, (text,), at_limit))

    def fullmatch(self, text: AnyStr, at_limit: Any = None) -> Any:
        """Return the match of a whole text, or None."""
        return next(self._each(self._regex.fullmatch, (text,), at_limit))

    def search(self, text: AnyStr, at_limit: Any = None) -> Any:
        """Return the first match in a text, or None."""
        return next(self._each(self._regex.search, (text,), at_limit))

    def match_all(self, texts: Iterable[AnyStr], at_limit: Any = None) -> list[Any]:
        """Return a list of the results of :meth:`match` for each text."""
        return list(self._each(self._regex.match, texts, at_limit))

    def fullmatch_all(self, texts: Iterable[AnyStr], at_limit: Any = None) -> list[Any]:
        """Return a list of the results of :meth:`fullmatch` for each text."""
        return list(self._each(self._regex.fullmatch, texts, at_limit))

    def search_all(self, texts: Iterable[AnyStr], at_limit: Any = None) -> list[Any]:
        """Return a list of the results of :meth:`search` for each text."""
        return list(self._each(self._regex.search, texts, at_limit))

    def subn(
        self, replacement: AnyStr | Callable[[Any], AnyStr], text: AnyStr, at_limit: tuple[AnyStr, int]
    ) -> tuple[AnyStr, int]:
        """Return the text with all matches replaced, and the number of matches."""

        def replace(text: AnyStr, **limits: Any) -> tuple[AnyStr, int]:
            replaced: tuple[AnyStr, int] = self._regex.subn(replacement, text, **limits)
            return replaced

        return next(self._each(replace, (text,), at_limit))

    def check_replacement(self, replacement: AnyStr) -> None:
        """Check that the replacement is valid in Python.

        :raises re.error: it is invalid.
        :raises IndexError: the pattern has no such group.
        """
        re.compile(self.pattern, self.flags).sub(replacement, self.pattern[:0])

    def split(self, text: AnyStr) -> list[AnyStr]:
        """Return the parts between matches; the whole text at the limit."""
        return next(self._each(self._regex.split, (text,), [text]))

    def _each(self, look: Callable[..., T], texts: Iterable[AnyStr], at_limit: T) -> Iterator[T]:
        for text in texts:
            try:
                yield look(text, timeout=_FIRST_SECONDS)
            except (TimeoutError, MemoryError):
                yield self._longer(look, text, at_limit)

    def _longer(self, look: Callable[..., T], text: AnyStr, at_limit: T) -> T:
        try:
            return look(text, concurrent=True, timeout=SECONDS)
        except (TimeoutError, MemoryError):
            self._log_limit(text)
            return at_limit

    def _log_limit(self, text: AnyStr) -> None:
        silent = self._lines.due(None, 1)
        if silent is not None:
            more = f" ({counted(silent, 'time')} more since the last line about it)" if silent else ""
            size = counted(len(text), _unit(text))
            _log.warning(
                "%s: a search with %s took more than %g s of processor time, or its memory, for a text of %s, and was"
                " ended: %s%s. Make its repetitions possessive, such as (?:a++)+, or bounded, such as a{1,100}",
                *(self.option, described(_text(self.pattern)), SECONDS, size, self.outcome, more),
            )


def _made(pattern: AnyStr, flags: int, option: str, outcome: str) -> Pattern[AnyStr]:
    return Pattern(pattern, flags, option=option, outcome=outcome)


def _text(pattern: str | bytes) -> str:
    return pattern.decode(errors="replace") if isinstance(pattern, bytes) else pattern


def _unit(text: str | bytes) -> str:
    return "byte" if isinstance(text, bytes) else "character"


def _escaped(pattern: str | bytes) -> str | bytes:
    """Escape the characters that ``regex`` would read differently from ``re``."""
    if isinstance(pattern, bytes):
        return _TOKEN.sub(_escape, pattern.decode("latin-1")).encode("latin-1")
    return _TOKEN.sub(_escape, pattern)


def _escape(token: re.Match[str]) -> str:
    if token["brace"]:
        return r"\{"
    if token["class"]:
        return _IN_CLASS.sub(lambda part: r"\[" if part["bracket"] else part[0], token[0])
    return token[0]
