"""Blacks out what must not leave the machine: in bodies, and in headers that are named.

Known kinds are ``email``, ``ipv4``, ``card`` (13 to 19 digits whose check digit is right), ``bearer`` (tokens behind
``Bearer``) and ``password`` (the value behind ``password=``, ``passwd:``, ``secret=``, ``token=``, ``api_key=`` and
their like). Of an own pattern with groups only the groups are blacked out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...errors import ConfigError
from ..batch import EventBatch
from ..interfaces import Context
from ..options import option
from .patterns import compiled, slow_notes
from .texts import texts, with_texts

_Redact = Callable[[str], str]

#: Each begins with a class of characters, so that the search passes quickly over all others.
_KINDS = {
    "email": r"[\w.+-](?<![\w.+-].)[\w.+-]*+@[\w-]++(?:\.[\w-]++)++",
    "ipv4": r"\d(?<![\d.]\d)\d{0,2}+(?:\.\d{1,3}+){3}(?!\.?\d)",
    "card": r"\d(?<![\d-]\d)(?:[ -]?\d){12,18}(?![\d-])",
    "bearer": r"(?i:bearer\s++)([\w.~+/-]++=*+)",
    "password": r"(?i:(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key)[\"']?\s*+[=:]\s*+)"
    r"(\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|[^\s,;&]++)",
}


class RedactInterceptor:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """What is blacked out."""

        kinds: tuple[str, ...] = option((), doc=f"known kinds: {', '.join(_KINDS)}")
        patterns: tuple[str, ...] = option((), doc="regular expressions of one's own")
        headers: tuple[str, ...] = option((), doc="headers in which it is looked for, too")
        replacement: str = option("***", doc="what is put in its place")

        def __post_init__(self) -> None:
            for kind in self.kinds:
                if kind not in _KINDS:
                    raise ConfigError("kinds", f"must be some of {', '.join(_KINDS)}", kind)
            if not (self.kinds or self.patterns):
                raise ConfigError("kinds", "must name what is blacked out, or patterns must", "")
            self.expressions()

        def expressions(self) -> list[tuple[str, re.Pattern[str]]]:
            """All that is looked for, and of what kind it is."""
            known = [(kind, compiled("kinds", _KINDS[kind])) for kind in self.kinds]
            return known + [("", compiled("patterns", pattern)) for pattern in self.patterns]

    def __init__(self, options: Options, context: Context) -> None:  # noqa: ARG002
        self._headers = options.headers
        self._steps = [_step(kind, pattern, options.replacement) for kind, pattern in options.expressions()]

    @staticmethod
    def notes(options: Options, given: Collection[str]) -> list[str]:  # noqa: ARG004  # as all of them
        """What whoever starts it should know."""
        return slow_notes("patterns", options.patterns)

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        bodies = texts(batch)
        redacted = self._redacted(bodies)
        if redacted != bodies:
            batch = with_texts(batch, redacted)
        for name in self._headers:
            batch = self._with_header(batch, name)
        return batch

    def _with_header(self, batch: EventBatch, name: str) -> EventBatch:
        if name in batch.shared:
            return batch.with_shared({name: self._redacted([batch.shared[name]])[0]})
        if name in batch.columns:
            column = batch.columns[name]
            return batch.with_column(name, [None if v is None else self._redacted([v])[0] for v in column])
        return batch

    def _redacted(self, bodies: Sequence[str]) -> list[str]:
        for step in self._steps:
            bodies = list(map(step, bodies))
        return list(bodies)


def _step(kind: str, pattern: re.Pattern[str], replacement: str) -> _Redact:
    def replaced(match: re.Match[str]) -> str:
        is_one = _CHECKS.get(kind)
        if is_one is not None and not is_one(match[0]):
            return match[0]
        return _without_groups(match, replacement) if pattern.groups else replacement

    if kind == "email":  # what most lines do not have is told without a search
        return lambda text: pattern.sub(replaced, text) if "@" in text else text
    return lambda text: pattern.sub(replaced, text)


def _without_groups(match: re.Match[str], replacement: str) -> str:
    """What was found, with the groups that took part blacked out; of nested ones the outer."""
    parts, at = [], match.start()
    spans = [match.span(number) for number in range(1, match.re.groups + 1)]
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= at and start >= 0:
            parts += [match.string[at:start], replacement]
            at = end
    return "".join([*parts, match.string[at : match.end()]])


def _is_card(text: str) -> bool:
    """Whether the last digit is the check digit of those before it (Luhn)."""
    digits = [int(character) for character in text if character.isdigit()][::-1]
    return sum(digits[0::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2]) in range(0, 200, 10)


def _is_address(text: str) -> bool:
    return all(int(number) <= 255 for number in text.split("."))


_CHECKS: dict[str, Callable[[str], bool]] = {"card": _is_card, "ipv4": _is_address}
