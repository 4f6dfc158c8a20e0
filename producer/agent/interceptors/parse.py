"""Add the fields of a line's format as headers, by the parsers of ``producer ship``.

Formats are ``access`` (common and combined log format), ``syslog`` (RFC 3164 and 5424), ``logfmt``, ``json``,
``key_value`` with separators of the user's choice, ``grok`` (:mod:`.grok`), and ``csv`` and ``tsv``, whose fields are
named by options. A line of another format stays as it is, unless ``drop_others`` is set.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, compress

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...wire.access_log import parse_access_line
from ...wire.delimited import fields_parser
from ...wire.json_object import parse_flat_json, parse_json
from ...wire.key_value import key_value_parser
from ...wire.logfmt import parse_logfmt
from ...wire.splitters import split_access, split_logfmt, split_objects, split_syslog
from ...wire.syslog import facility_and_severity, parse_syslog
from ...wire.time_formats import NAMED
from ...wire.times import zone_of
from ..events.batch import Column, EventBatch, usual_names
from ..events.interfaces import Context
from .grok import grok_parser
from .texts import texts, with_kept_values
from .times import check_time, milliseconds_parser

_log = get_logger("loghub.agent.source")

#: A value per line that is true if the line has the format, and the fields as columns.
_Found = tuple[Sequence[object], dict[str, Column]]
_Parser = Callable[[str], dict[str, str] | None]

_PARSERS: dict[str, _Parser] = {"access": parse_access_line, "logfmt": parse_logfmt, "syslog": parse_syslog}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_FORMATS = (*_PARSERS, *_DELIMITERS, "json", "key_value", "grok")
#: Native code for blocks of lines, which decides for every line.
_SPLITTERS = {"access": partial(split_access, others=b"")} | ({} if split_syslog is None else {"syslog": split_syslog})
#: Native code that leaves rare forms of a line to the parser of single lines.
_PARTLY = {"json": split_objects, "logfmt": split_logfmt}
#: The usual format of the times in lines of a format.
_TIMES = {"access": "apache", "syslog": "syslog"}


class ParseInterceptor:
    """Interceptor that adds the fields of JSON, grok patterns, access logs, syslog, logfmt, CSV and more as headers."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Format of the lines, and use of its fields."""

        format: str = option(doc="format of the lines", choices=_FORMATS)
        fields: tuple[str, ...] = option((), doc="fields that become headers; for csv and tsv all fields, in order")
        prefix: str = option("", doc="prefix of the headers' names")
        nested: str = option(
            "json",
            choices=("json", "flatten"),
            doc="objects in JSON: keep them as JSON text, or make fields of their keys",
        )
        separator: str = option(".", doc="separator of keys in names of flattened fields")
        pair_separator: str = option(" ", least=1, doc="separator of key_value between pairs; a space: any white space")
        value_separator: str = option("=", least=1, doc="separator of key_value between a key and its value")
        patterns: tuple[str, ...] = option((), doc="expressions of grok, such as %{IP:client}; the first match counts")
        definitions: Mapping[str, str] = option({}, doc="names for grok with their patterns, besides the usual ones")
        drop_others: bool = option(False, doc="drop lines of another format")
        timestamp: bool = option(False, doc="add the time of a line as the header timestamp, in milliseconds")
        time_field: str = option("time", doc="field with the time")
        time_format: str | None = option(
            None,
            doc=f"format of the time: {', '.join(NAMED)}, or a pattern such as yyyy-MM-dd HH:mm:ss; empty for that of "
            "access and syslog, else iso8601",
        )
        time_zone: str | None = option(None, doc="time zone of times without one; empty for this machine's")

        def __post_init__(self) -> None:
            if self.format in _DELIMITERS and not self.fields:
                raise ConfigError("fields", f"must name the fields of {self.format}", self.fields)
            if len(set(self.fields)) < len(self.fields):
                raise ConfigError("fields", "must all be different", " ".join(self.fields))
            if self.pair_separator == self.value_separator or self.value_separator.isspace():
                raise ConfigError(
                    "value_separator", "must differ from pair_separator and white space", self.value_separator
                )
            if (self.format == "grok") != bool(self.patterns):
                raise ConfigError("patterns", "are needed by grok, and by no other format", " ".join(self.patterns))
            self.parser()
            self._check_time()

        def _check_time(self) -> None:
            if self.timestamp and self.fields and self.time_field not in self.fields:
                raise ConfigError("timestamp", f"needs the field {self.time_field} in fields", self.timestamp)
            if self.time_format is not None and not self.timestamp:
                raise ConfigError("time_format", "needs timestamp = true", self.time_format)
            check_time(self.time_form)
            if self.time_zone is not None:
                zone_of(self.time_zone)

        @property
        def time_form(self) -> str:
            """The format of the times."""
            return self.time_format or _TIMES.get(self.format, "iso8601")

        def parser(self) -> _Parser:
            """Return the parser of single lines.

            :raises ConfigError: a grok expression is invalid.
            """
            if self.format in _DELIMITERS:
                return partial(fields_parser(_DELIMITERS[self.format], self.fields))
            if self.format == "grok":
                return grok_parser(self.patterns, self.definitions)
            if self.format == "key_value":
                return key_value_parser(self.pair_separator, self.value_separator)
            if self.format == "json":
                return parse_json if self.nested == "json" else partial(parse_flat_json, separator=self.separator)
            return _PARSERS[self.format]

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._counters = options, context.counters
        self._name, self._thinned = context.name, RateLimitedLog(context.clock)
        self._parse, self._split = options.parser(), _SPLITTERS.get(options.format)
        self._partly = None if options.nested == "flatten" else _PARTLY.get(options.format)
        form, zone = options.time_form, options.time_zone
        self._time = milliseconds_parser(form, zone, context.clock) if options.timestamp else None

    def intercept(self, batch: EventBatch) -> EventBatch:
        known, columns = self._found_in_block(batch) or self._found_one_by_one(batch)
        if others := batch.count - sum(map(bool, known)):
            self._counters.add(EventUnparsedCount=others)
        if self._options.drop_others and not all(known):
            kept = batch.select(known)
            self._counters.add(EventDroppedCount=batch.count - kept.count)
            batch, columns = kept, {name: list(compress(column, known)) for name, column in columns.items()}
        named = {self._options.prefix + name: column for name, column in columns.items()}
        if self._time is not None and (times := columns.get(self._options.time_field)) is not None:
            named["timestamp"] = [None if text is None else self._time(text) for text in times]
        return batch.with_columns({name: with_kept_values(batch, name, column) for name, column in named.items()})

    def _found_in_block(self, batch: EventBatch) -> _Found | None:
        """Parse all lines at once with compiled code; None if that is not possible."""
        split, wanted = self._split or self._partly, self._options.fields
        if split is None or not batch.count or not batch.block.isascii():
            return None
        bodies = batch.bodies()
        known, columns = split(array("i", accumulate(map(len, bodies), initial=0)).tobytes(), b"".join(bodies))
        found: dict[str, Column] = {name: column for name, column in columns.items() if not column.is_empty}
        if "priority" in found and self._options.format == "syslog":
            codes = [(None, None) if each is None else facility_and_severity(each) for each in found["priority"]]
            found["facility"], found["severity"] = map(list, zip(*codes, strict=True))
        found = {name: column for name, column in found.items() if not wanted or name in wanted}
        return (known, found) if self._split is not None else self._completed(bodies, known, found)

    def _completed(self, bodies: Sequence[bytes], known: bytes, found: dict[str, Column]) -> _Found | None:
        """Parse the lines that compiled code left, and add their fields; None if there are too many lines or names."""
        rest = {row: self._fields(bodies[row].decode()) for row, is_known in enumerate(known) if not is_known}
        counts = Counter(chain.from_iterable(filter(None, rest.values())))
        counts.update({name: len(column) - column.count(None) for name, column in found.items()})
        if 2 * len(rest) > len(bodies) or len(usual_names(counts, len(bodies))) < len(counts):
            return None
        if not rest:
            return known, found
        columns = {name: list(found.get(name, [None] * len(bodies))) for name in counts}
        for row, fields in rest.items():
            for name, value in (fields or {}).items():
                columns[name][row] = value
        return [is_known or rest[row] is not None for row, is_known in enumerate(known)], {**columns}

    def _found_one_by_one(self, batch: EventBatch) -> _Found:
        parsed = list(map(self._fields, texts(batch, "replace")))
        names = self._names(parsed)
        columns: dict[str, Column] = {name: [(fields or {}).get(name) for fields in parsed] for name in names}
        return [fields is not None for fields in parsed], columns

    def _names(self, parsed: Sequence[dict[str, str] | None]) -> list[str]:
        """Return the fields that become headers: the most frequent ones if there are too many for columns."""
        counts = Counter(chain.from_iterable(filter(None, parsed)))
        names = usual_names(counts, len(parsed))
        silent = None if len(names) == len(counts) else self._thinned.due("sparse", 1)
        if silent is not None:
            _log.warning(
                "interceptor %s: %d lines have %d different fields; the %d most frequent ones become headers, all"
                " others are only in the bodies (fields = [...] chooses)",
                *(self._name, len(parsed), len(counts), len(names)),
            )
        return names

    def _fields(self, line: str) -> dict[str, str] | None:
        wanted, found = self._options.fields, self._parse(line)
        return {name: found[name] for name in wanted if name in found} if found and wanted else found
