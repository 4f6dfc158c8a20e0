r"""Lines of Kubernetes' runtimes (CRI): ``2016-10-06T00:17:09.669794202Z stdout P text``.

A line has a time, a stream, a tag and text. The runtime splits a long line of a container into parts of 16 KiB with the
tag ``P``, and a last part with the tag ``F``.
"""

from __future__ import annotations

import re

#: Time, stream, tag, text. A line in another format has only text.
Row = tuple[bytes, bytes, bytes, bytes]
#: The tag of a part that is not the last one.
PART = b"P"

_LINE = re.compile(rb"^(?:(\S+) (stdout|stderr) ([FP])(?::\S*)?(?: |$))?(.*)$", re.MULTILINE)
_PARTIAL = re.compile(rb"^\S+ (?:stdout|stderr) P", re.MULTILINE)


def has_parts(data: bytes) -> bool:
    """Return True if any of the lines is a part that is not the last one."""
    return b" P" in data and _PARTIAL.search(data) is not None


def rows_of(data: bytes) -> list[Row]:
    """Return the row of each line; the data has no line end at its end."""
    return _LINE.findall(data)
