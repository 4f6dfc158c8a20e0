r"""Parses lines of access logs: the common and the combined format, with or without a virtual host in front.

    [vhost:port ]remote_addr ident remote_user [time] "request" status bytes[ "referer" "user_agent"][ extra]

A quoted field may contain escapes (``\"``). If the request is ``method uri[ protocol]``, these are fields as well. A
missing field, or ``-``, is null. White space is ASCII only.

Many lines are passed as 32-bit offsets and bytes, as in an Arrow string column, and returned as columns.

Example: the line ``a - - [t] "GET / HTTP/1.1" 200 -`` is ``remote_addr`` ``a``, ``time`` ``t``, ``request`` ``GET /
HTTP/1.1``, ``status`` ``200``, ``method`` ``GET``, ``uri`` ``/`` and ``protocol`` ``HTTP/1.1``.

``_access_log.pyx`` is the native implementation, which runs without the GIL; :mod:`.speed` selects one.

Source: Apache HTTP Server documentation, "Log Files" and mod_log_config; nginx writes the combined format, too.
"""

from __future__ import annotations

import re

from .text_column import SplitLines, TextColumn

#: The fields, in order.
FIELDS = (
    *("vhost", "remote_addr", "ident", "remote_user", "time", "request", "status", "bytes", "referer", "user_agent"),
    *("extra", "method", "uri", "protocol"),
)

# Possessive quantifiers (++) keep the match linear in the length of the line.
_QUOTED = r'"(?P<{name}>(?:[^"\\]|\\.)*+)"'
_ACCESS = re.compile(
    r"(?:(?P<vhost>[^\s:\"]++:\d++) )?"
    r"(?P<remote_addr>\S++) (?P<ident>\S++) (?P<remote_user>\S++) \[(?P<time>[^\]]++)\] "
    + _QUOTED.format(name="request")
    + r" (?P<status>\d{3}|-) (?P<bytes>\d++|-)"
    + r"(?: "
    + _QUOTED.format(name="referer")
    + r" "
    + _QUOTED.format(name="user_agent")
    + r")?(?: (?P<extra>.++))?",
    re.DOTALL | re.ASCII,
)
_REQUEST = re.compile(r"(?P<method>[A-Z_]++) (?P<uri>\S++)(?: (?P<protocol>HTTP/[\d.]++))?", re.ASCII)


def parse_access_line(line: str) -> dict[str, str] | None:
    """Return the fields of one line; None if it has another format."""
    match = _ACCESS.fullmatch(line)
    if match is None:
        return None
    request = _REQUEST.fullmatch(match["request"])
    found = match.groupdict() | (request.groupdict() if request else {})
    return {name: value for name, value in found.items() if value is not None and value != "-"}


def split_access(offsets: bytes | memoryview, data: bytes | memoryview, others: bytes) -> SplitLines:
    """Parse lines.

    :param offsets: the start of each line in ``data``, and the end of the last one, 32-bit integers.
    :param data: the lines without their ends, UTF-8.
    :param others: first bytes of lines to skip, as they have another format.
    """
    bounds = memoryview(offsets).cast("B").cast("i")
    text = bytes(data)
    lines = [text[bounds[row] : bounds[row + 1]] for row in range(len(bounds) - 1)]
    found = [None if line[:1] and line[:1] in others else parse_access_line(line.decode()) for line in lines]
    known = bytes(fields is not None for fields in found)
    return SplitLines(known, {name: TextColumn.of([(fields or {}).get(name) for fields in found]) for name in FIELDS})
