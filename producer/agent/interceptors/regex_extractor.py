r"""Add the groups of a pattern in bodies as headers. Modelled on Flume's ``RegexExtractorInterceptor``.

If compiled code can run the pattern (:mod:`...wire.captures`), it searches all bodies at once. Bodies that it cannot
decide are searched one by one.

An event that does not match stays as it is. Flume's serializers are of two kinds: ``default`` takes a group as it is,
``millis`` parses a time by its ``pattern``. If a time does not fit the pattern, its header is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.errors import ConfigError
from ...model.options import option
from ...wire.captures import Steps, steps_of
from ...wire.text_column import TextColumn
from ...wire.times import zone_of
from ..events.batch import Column, EventBatch
from ..events.interfaces import Context
from .patterns import compiled
from .texts import texts, with_values
from .times import check_time, milliseconds_parser


class RegexExtractorInterceptor:
    """Interceptor that adds a pattern's groups as headers. Modelled on Flume's ``RegexExtractorInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``regex_extractor``, with its serializers in two tables."""

        regex: str = option(doc="regular expression to find anywhere in the body")
        headers: tuple[str, ...] = option((), doc="headers for the groups, in order; by default the groups' names")
        times: Mapping[str, str] = option(
            {},
            doc="headers that are times, with their patterns, such as yyyy-MM-dd HH:mm:ss, or formats by name, such as "
            "rfc3339 (see parse); become milliseconds",
        )
        time_zone: str | None = option(None, doc="time zone of times without one; empty for this machine's")

        def __post_init__(self) -> None:
            names = self.names()
            for header, pattern in self.times.items():
                check_time(pattern)
                if header not in names:
                    raise ConfigError("times", f"no group has this header; valid are {', '.join(names)}", header)
            if self.time_zone is not None:
                zone_of(self.time_zone)

        def names(self) -> dict[str, int]:
            """Return the group number of each header."""
            pattern = compiled("regex", self.regex)
            if len(self.headers) > pattern.groups:
                rule = f"has more headers than the pattern has groups ({pattern.groups})"
                raise ConfigError("headers", rule, " ".join(self.headers))
            names = {name: number + 1 for number, name in enumerate(self.headers)} or dict(pattern.groupindex)
            if not names:
                raise ConfigError("headers", "must name a header for each group", " ".join(self.headers))
            return names

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, Any]:
            """Convert Flume's ``serializers``."""
            found: dict[str, Any] = {key: value for key, value in texts.items() if not key.startswith("serializers")}
            headers, times = [], {}
            for serializer in texts.get("serializers", "").split():
                of_it = f"serializers.{serializer}."
                name = texts.get(f"{of_it}name", serializer)
                headers.append(name)
                kind = texts.get(f"{of_it}type", "default")
                if "millis" in kind.lower():
                    times[name] = texts.get(f"{of_it}pattern", "")
                elif kind.lower() != "default" and not kind.endswith("PassThroughSerializer"):
                    found[f"{of_it}type"] = kind  # a user's class: refused as an unknown option
            return found | {"headers": headers, "times": times}

    def __init__(self, options: Options, context: Context) -> None:
        pattern = compiled("regex", options.regex, "the event gets no headers")
        self._groups = options.names()
        self._times = {
            header: milliseconds_parser(pattern, options.time_zone, context.clock)
            for header, pattern in options.times.items()
        }
        self._pattern = pattern
        self._none = (None,) * pattern.groups
        self._steps = steps_of(pattern, list(self._groups.values()))

    def intercept(self, batch: EventBatch) -> EventBatch:
        columns = (
            self._one_by_one(texts(batch, "replace")) if self._steps is None else self._at_once(self._steps, batch)
        )
        if columns is None:
            return batch
        for header, column in zip(self._groups, columns, strict=True):
            parse = self._times.get(header)
            values = column if parse is None else [None if text is None else parse(text) for text in column]
            batch = with_values(batch, header, values, preserve=False)
        return batch

    def _at_once(self, steps: Steps, batch: EventBatch) -> Sequence[Column] | None:
        """Match all bodies by compiled code; search those that it cannot decide."""
        ends = b"" if batch.ends is None else batch.ends.tobytes()
        found, packed = steps.capture(batch.count, ends, batch.block)
        columns = [TextColumn(sizes, data) for sizes, data in packed]
        open_rows = [] if all(found) else [row for row, known in enumerate(found) if not known]
        if open_rows:
            bodies = batch.bodies()
            rest = self._one_by_one([bodies[row].decode(errors="replace") for row in open_rows])
            if rest is None:
                return columns if len(open_rows) < batch.count else None
            columns = [_filled(column, open_rows, values) for column, values in zip(columns, rest, strict=True)]
        return columns

    def _one_by_one(self, bodies: Sequence[str]) -> Sequence[Column] | None:
        """Search bodies one by one; return None if none matches."""
        found = self._pattern.search_all(bodies)
        if not any(found):
            return None
        columns: list[Column] = list(
            zip(*[self._none if each is None else each.groups() for each in found], strict=True)
        )
        return [columns[number - 1] for number in self._groups.values()]


def _filled(column: TextColumn, rows: Iterable[int], values: Iterable[str | None]) -> TextColumn:
    """Return a column with the missing values of some rows filled in."""
    all_values = column.values()
    for row, value in zip(rows, values, strict=True):
        all_values[row] = None if value is None else value.encode(errors="surrogatepass")
    return TextColumn.of_bytes(all_values)
