"""Writes logs as lines of JSON, for people, and for tools without LogHub support.

Each line is an object: first the non-empty values of the stream, then the fields of the log::

    {"__time__": 1700000000, "__project__": "p", "__logstore__": "l", "__topic__": "t", "__source__": "10.0.0.1",
     "__tag__:env": "test", "level": "INFO"}

(on a single line). A name that a log repeats is repeated in its object. Bytes that are not UTF-8 appear with
backslashes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..model.records import StreamKey
from .json_group import frames_of, members_of, object_of


def json_lines(key: StreamKey, records: Sequence[bytes], more: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return the lines of these records.

    :param records: results of :func:`~producer.wire.log_group.encode_log`; each may hold several logs.
    :param more: further values for each line, behind those of the stream.
    """
    names = {"__project__": key.project, "__logstore__": key.logstore, "__topic__": key.topic, "__source__": key.source}
    names |= {f"__tag__:{name}": value for name, value in key.tags}
    names |= more
    stream = [(name, json.dumps(value, ensure_ascii=False)) for name, value in names.items() if value]
    lines = []
    for joined in records:
        for log in frames_of(joined):
            time, *fields = members_of(log)
            lines.append(object_of([time, *stream, *fields]))
    return "".join(f"{line}\n" for line in lines).encode()
