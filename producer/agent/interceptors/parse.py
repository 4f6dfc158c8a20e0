"""Add the fields of a line's format as headers, by the parsers of ``producer ship``.

Formats are ``access`` (common and combined log format), ``syslog`` (RFC 3164 and 5424), ``logfmt``, and ``csv`` and
``tsv``, whose fields are named by options. A line of another format stays as it is, unless ``drop_others`` is set.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, compress

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...wire.access_log import parse_access_line
from ...wire.delimited import fields_parser
from ...wire.logfmt import parse_logfmt
from ...wire.splitters import split_access, split_syslog
from ...wire.syslog import facility_and_severity, parse_syslog
from ..events.batch import Column, EventBatch, usual_names
from ..events.interfaces import Context
from .texts import texts, with_kept_values
from .times import milliseconds_parser

_log = get_logger("loghub.agent.source")

#: A value per line that is true if the line has the format, and the fields as columns.
_Found = tuple[Sequence[object], dict[str, Column]]
_Parser = Callable[[str], dict[str, str] | None]

_PARSERS: dict[str, _Parser] = {"access": parse_access_line, "logfmt": parse_logfmt, "syslog": parse_syslog}


_SPLITTERS = {"access": partial(split_access, others=b"")} | ({} if split_syslog is None else {"syslog": split_syslog})
_ACCESS_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
_DELIMITERS = {"csv": ",", "tsv": "\t"}


class ParseInterceptor:
    """Interceptor that adds the fields of access logs, syslog, logfmt, CSV or TSV as headers."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Format of the lines, and use of its fields."""

        format: str = option(doc="format of the lines", choices=(*_PARSERS, *_DELIMITERS))
        fields: tuple[str, ...] = option((), doc="fields that become headers; for csv and tsv all fields, in order")
        prefix: str = option("", doc="prefix of the headers' names")
        drop_others: bool = option(False, doc="drop lines of another format")
        timestamp: bool = option(False, doc="add the time of an access line as the header timestamp")

        def __post_init__(self) -> None:
            if self.format in _DELIMITERS and not self.fields:
                raise ConfigError("fields", f"must name the fields of {self.format}", self.fields)
            if len(set(self.fields)) < len(self.fields):
                raise ConfigError("fields", "must all be different", " ".join(self.fields))
            if self.timestamp and (self.format != "access" or (self.fields and "time" not in self.fields)):
                raise ConfigError("timestamp", "needs format = access, and the field time in fields", self.timestamp)

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._counters = options, context.counters
        self._name, self._thinned = context.name, RateLimitedLog(context.clock)
        self._parse, self._split = _parser_of(options), _SPLITTERS.get(options.format)
        self._time = milliseconds_parser(_ACCESS_TIME, None, context.clock) if options.timestamp else None

    def intercept(self, batch: EventBatch) -> EventBatch:
        known, columns = self._found_in_block(batch) or self._found_one_by_one(batch)
        if self._options.drop_others and not all(known):
            kept = batch.select(known)
            self._counters.add(EventDroppedCount=batch.count - kept.count)
            batch, columns = kept, {name: list(compress(column, known)) for name, column in columns.items()}
        named = {self._options.prefix + name: column for name, column in columns.items()}
        if self._time is not None and "time" in columns:
            named["timestamp"] = [None if text is None else self._time(text) for text in columns["time"]]
        return batch.with_columns({name: with_kept_values(batch, name, column) for name, column in named.items()})

    def _found_in_block(self, batch: EventBatch) -> _Found | None:
        """Parse all lines at once with compiled code; None if that is not possible."""
        if self._split is None or not batch.count or not batch.block.isascii():
            return None
        bodies, wanted = batch.bodies(), self._options.fields
        known, columns = self._split(array("i", accumulate(map(len, bodies), initial=0)).tobytes(), b"".join(bodies))
        found: dict[str, Column] = {name: column for name, column in columns.items() if not column.is_empty}
        if "priority" in found:
            codes = [(None, None) if each is None else facility_and_severity(each) for each in found["priority"]]
            found["facility"], found["severity"] = map(list, zip(*codes, strict=True))
        return known, {name: column for name, column in found.items() if not wanted or name in wanted}

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


def _parser_of(options: ParseInterceptor.Options) -> _Parser:
    known = _PARSERS.get(options.format)
    return known or partial(fields_parser(_DELIMITERS[options.format], options.fields))
