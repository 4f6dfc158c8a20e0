"""Replace secrets and personal data in bodies, and in headers that are named.

:mod:`.kinds` defines the known kinds, such as ``card`` and ``password``. If a user's pattern has groups, only these
are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.errors import ConfigError
from ...model.options import option
from ...wire.patterns import Pattern
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .kinds import KINDS
from .patterns import compiled
from .texts import texts, with_texts

_Redact = Callable[[str], str]


class RedactInterceptor:
    """Interceptor that replaces secrets and personal data in bodies and named headers."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Kinds and patterns to search for, and their replacement."""

        kinds: tuple[str, ...] = option((), doc=f"known kinds to replace: {', '.join(KINDS)}")
        patterns: tuple[str, ...] = option((), doc="regular expressions to replace")
        headers: tuple[str, ...] = option((), doc="headers to search, besides the body")
        replacement: str = option("***", doc="text in place of a match")

        def __post_init__(self) -> None:
            for kind in self.kinds:
                if kind not in KINDS:
                    raise ConfigError("kinds", f"must be some of {', '.join(KINDS)}", kind)
            if not (self.kinds or self.patterns):
                raise ConfigError("kinds", "must name a kind, unless patterns has a pattern", "")
            self.expressions()

        def expressions(self) -> list[Pattern[str]]:
            """Return the compiled patterns of the user."""
            return [compiled("patterns", pattern, "all of the text is redacted") for pattern in self.patterns]

    def __init__(self, options: Options, context: Context) -> None:
        self._headers = options.headers
        self._steps = [_known(kind, options.replacement) for kind in options.kinds]
        self._steps += [_own(pattern, options.replacement) for pattern in options.expressions()]

    def intercept(self, batch: EventBatch) -> EventBatch:
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


def _known(kind: str, replacement: str) -> _Redact:
    find = KINDS[kind]
    return lambda text: find(text, replacement)


def _own(pattern: Pattern[str], replacement: str) -> _Redact:
    def replaced(match: Any) -> str:
        return _without_groups(match, replacement) if pattern.groups else replacement

    return lambda text: pattern.subn(replaced, text, (replacement, 1))[0]


def _without_groups(match: Any, replacement: str) -> str:
    """Return a match with its groups replaced; of nested groups the outer one."""
    parts, at = [], match.start()
    spans = [match.span(number) for number in range(1, match.re.groups + 1)]
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= at and start >= 0:
            parts += [match.string[at:start], replacement]
            at = end
    return "".join([*parts, match.string[at : match.end()]])
