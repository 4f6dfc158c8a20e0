"""The fields of a line's format as headers, by the parsers that ``producer ship`` uses.

Formats are ``access`` (common and combined log format), ``syslog`` (RFC 3164 and 5424), ``logfmt``, and ``csv`` and
``tsv``, whose fields are named. A line of another format stays as it is, unless it shall be dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...errors import ConfigError
from ...wire.access_log import parse_access_line
from ...wire.delimited import fields_parser
from ...wire.logfmt import parse_logfmt
from ...wire.syslog import parse_syslog
from ..batch import EventBatch, columns_of
from ..interfaces import Context
from ..options import option
from .texts import texts, with_values

_Parser = Callable[[str], dict[str, str] | None]

_PARSERS: dict[str, _Parser] = {"access": parse_access_line, "logfmt": parse_logfmt, "syslog": parse_syslog}
_DELIMITERS = {"csv": ",", "tsv": "\t"}


class ParseInterceptor:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Which format, and what becomes of its fields."""

        format: str = option(doc="of the lines", choices=(*_PARSERS, *_DELIMITERS))
        fields: tuple[str, ...] = option((), doc="those that become headers; of csv and tsv all, in their order")
        prefix: str = option("", doc="what stands before a header's name")
        drop_others: bool = option(False, doc="drop lines of another format")

        def __post_init__(self) -> None:
            if self.format in _DELIMITERS and not self.fields:
                raise ConfigError("fields", f"must name the fields of {self.format}", self.fields)
            if len(set(self.fields)) < len(self.fields):
                raise ConfigError("fields", "must all be different", " ".join(self.fields))

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._counters = options, context.counters
        self._parse = _parser_of(options)

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        parsed = list(map(self._fields, texts(batch, "replace")))
        if self._options.drop_others and None in parsed:
            kept = batch.select([each is not None for each in parsed])
            self._counters.add(EventDroppedCount=batch.count - kept.count)
            batch, parsed = kept, [each for each in parsed if each is not None]
        shared, columns = columns_of([each or {} for each in parsed])
        batch = batch.with_shared({self._options.prefix + name: value for name, value in shared.items()})
        for name, column in columns.items():
            batch = with_values(batch, self._options.prefix + name, column, preserve=False)
        return batch

    def _fields(self, line: str) -> dict[str, str] | None:
        wanted, found = self._options.fields, self._parse(line)
        return {name: found[name] for name in wanted if name in found} if found and wanted else found


def _parser_of(options: ParseInterceptor.Options) -> _Parser:
    known = _PARSERS.get(options.format)
    return known or partial(fields_parser(_DELIMITERS[options.format], options.fields))
