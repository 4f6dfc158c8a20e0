"""The error log of nginx; its access logs are those of :mod:`producer.wire.access_log`.

Source: nginx 1.29, ``ngx_log.c``, ``ngx_http_request.c`` (what is put behind the message, and in which order).
"""

from __future__ import annotations

import re

_LINE = re.compile(
    r"(?P<time>[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}) \[(?P<level>[a-z]++)\] "
    r"(?P<pid>[0-9]++)#(?P<tid>[0-9]++): (?:\*(?P<connection>[0-9]++) )?(?P<message>.*+)",
    re.DOTALL,
)
# What stands behind the message, the last one first: a request may hold what looks like the others.
_QUOTED, _PLAIN = ("referrer", "host", "upstream", "subrequest", "request"), ("server", "client")


def may_be_error(line: str) -> bool:
    """Whether it is worth the attempt: the date has its slash there."""
    return line[4:5] == "/"


def parse_nginx_error(line: str) -> dict[str, str] | None:
    """The fields of a line of an error log; None for anything else."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    fields = {name: value for name, value in match.groupdict().items() if value}
    for name in (*_QUOTED, *_PLAIN):
        _take(fields, name)
    return fields


def _take(fields: dict[str, str], name: str) -> None:
    """Make a field of the last thing behind the message, if it is the one of that name."""
    quote = '"' if name in _QUOTED else ""
    message, found, value = fields.get("message", "").rpartition(f", {name}: {quote}")
    if not found or not value.endswith(quote) or (not quote and ", " in value):
        return
    fields["message"] = message
    if value != quote:
        fields[name] = value[: -len(quote) or None]
