r"""Lines of Docker's ``json-file`` driver: ``{"log":"text\n","stream":"stdout","time":"2014-09-15T23:22:00.123Z"}``.

Docker splits a long line of a container into parts of 16 KiB. The ``log`` of each part but the last has no ``\n`` at
its end. Docker writes the keys in this order, after ``stream`` an object ``attrs`` if its options ask for it; a line in
another order is read by the JSON decoder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from .cri import PART, Row

_LAST = b"F"
_END = b"\\n"
_LINE = re.compile(
    rb'^(?:\{"log":"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)","stream":"(stdout|stderr)",(?:"attrs":\{[^{}\n]*\},)?'
    rb'"time":"([^"\\\n]*)"\}$|(.*)$)',
    re.MULTILINE,
)
#: A line end in the text, and a backslash before an n.
_USUAL, _BACKSLASH = rb'\n","stream":"', rb'\\n","stream":"'


def has_parts(data: bytes) -> bool:
    """Return True if any of the lines may be a part that is not the last one."""
    return data.count(_USUAL) != data.count(b"\n") or _BACKSLASH in data


def rows_of(data: bytes) -> list[Row]:
    """Return the row of each line; the data has no line end at its end."""
    found = _LINE.findall(data)
    texts = [log[: -len(_END)] if _ends(log) else log for log, *_ in found]
    escaped = [at for at, text in enumerate(texts) if b"\\" in text]
    for at, text in zip(escaped, _unescaped([texts[at] for at in escaped]), strict=True):
        texts[at] = text
    return [
        (time, stream, _LAST if _ends(log) else PART, text) if stream else _row_of(other)
        for text, (log, stream, time, other) in zip(texts, found, strict=True)
    ]


def _ends(log: bytes) -> bool:
    r"""Return True if an escaped text ends with a line end; after an odd number of backslashes an n is a line end."""
    if not log.endswith(_END):
        return False
    before = log[:-1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _unescaped(texts: Sequence[bytes]) -> list[bytes]:
    """Return texts without JSON's escapes; a text with an invalid one is returned as it is."""
    if not texts:
        return []
    try:
        found = json.loads(b'["' + b'","'.join(texts) + b'"]', strict=False)
    except ValueError:
        return list(texts) if len(texts) == 1 else [text for each in texts for text in _unescaped([each])]
    return [text.encode(errors="replace") for text in found]


def _row_of(line: bytes) -> Row:
    """Return the row of a line with other keys or another order."""
    try:
        found = json.loads(line)
        log, stream, time = (found.get(name, "") for name in ("log", "stream", "time"))
        text, names = log.encode(errors="replace"), (stream.encode(), time.encode())
    except (ValueError, AttributeError, RecursionError):
        return b"", b"", b"", line
    if not names[0]:
        return b"", b"", b"", line
    return names[1], names[0], _LAST if text.endswith(b"\n") else PART, text.removesuffix(b"\n")
