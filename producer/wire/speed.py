"""The encoders and parsers in use: of each the compiled twin or the pure one, as :mod:`producer.twins` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..twins import compiled, either
from . import access_log, event_records, lines, log_group
from . import measure_lines as measures

if TYPE_CHECKING:
    from collections.abc import Callable

    from .access_log import AccessLines
    from .delimited import DelimitedLines
    from .json_objects import ObjectLines

__all__ = [
    "TWIN",
    "encode_events",
    "encode_lines",
    "encode_log",
    "measure_lines",
    "split_access",
    "split_delimited",
    "split_logfmt",
    "split_objects",
    "split_syslog",
]


#: ``native`` or ``pure``.
TWIN = "pure" if compiled(f"{__package__}._lines") is None else "native"
encode_events = either(f"{__package__}._event_records", "encode_events", event_records.encode_events)
encode_lines = either(f"{__package__}._lines", "encode_lines", lines.encode_lines)
encode_log = either(f"{__package__}._log_group", "encode_log", log_group.encode_log)
measure_lines = either(f"{__package__}._measure_lines", "measure_lines", measures.measure_lines)
split_access = either(f"{__package__}._access_log", "split_access", access_log.split_access)
#: None: there is no pure twin but the parser of single lines; so with those behind it.
split_objects: Callable[[bytes | memoryview, bytes | memoryview], ObjectLines] | None = either(
    f"{__package__}._json_objects", "split_objects", None
)
split_logfmt: Callable[[bytes | memoryview, bytes | memoryview], ObjectLines] | None = either(
    f"{__package__}._logfmt", "split_logfmt", None
)
split_syslog: Callable[[bytes | memoryview, bytes | memoryview], AccessLines] | None = either(
    f"{__package__}._syslog", "split_syslog", None
)
split_delimited: Callable[[bytes | memoryview, bytes | memoryview, int, int], DelimitedLines] | None = either(
    f"{__package__}._delimited", "split_delimited", None
)
