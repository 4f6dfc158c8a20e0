"""Parses the error log of nginx; :mod:`producer.wire.access_log` parses its access log.

Source: nginx 1.29, ``ngx_log.c``, ``ngx_http_request.c`` (the fields after the message, and their order).
"""

from __future__ import annotations

import re

_LINE = re.compile(
    r"(?P<time>[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}) \[(?P<level>[a-z]++)\] "
    r"(?P<pid>[0-9]++)#(?P<tid>[0-9]++): (?:\*(?P<connection>[0-9]++) )?(?P<message>.*+)",
    re.DOTALL,
)
# The fields after the message, the last one first, as a request may contain text like the others.
_QUOTED, _PLAIN = ("referrer", "host", "upstream", "subrequest", "request"), ("server", "client")


def may_be_error(line: str) -> bool:
    """Return True if a date with slashes begins the line; this check is faster than the pattern."""
    return line[4:5] == "/"


def parse_nginx_error(line: str) -> dict[str, str] | None:
    """Return the fields of a line of an error log; None for any other line."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    fields = {name: value for name, value in match.groupdict().items() if value}
    for name in (*_QUOTED, *_PLAIN):
        _move_field(fields, name)
    return fields


def _move_field(fields: dict[str, str], name: str) -> None:
    """Move the last field after the message to ``fields``, if it has the given name."""
    quote = '"' if name in _QUOTED else ""
    message, found, value = fields.get("message", "").rpartition(f", {name}: {quote}")
    if not found or not value.endswith(quote) or (not quote and ", " in value):
        return
    fields["message"] = message
    if value != quote:
        fields[name] = value[: -len(quote) or None]
