"""Encoding of objects: lines of text or JSON, optionally compressed. Parquet is in :mod:`.tables`."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence

from ....wire.zstd import zstd
from ...events.batch import EventBatch
from ..json_lines import json_line

FORMATS = ("text", "json", "parquet")
COMPRESSIONS = ("none", "gzip", "zstd", "snappy")
#: Default compression of each format.
PACKED_BY_DEFAULT = {"text": "gzip", "json": "gzip", "parquet": "zstd"}
_ENDINGS = {"text": ".txt", "json": ".json", "parquet": ".parquet"}
_PACKED_ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_PACK: Mapping[str, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "zstd": zstd.compress,
}


def ending(form: str, compression: str) -> str:
    """Return the suffix of objects' names."""
    return _ENDINGS[form] + ("" if form == "parquet" else _PACKED_ENDINGS[compression])


def encoded(batches: Sequence[EventBatch], form: str, compression: str) -> bytes:
    """Encode an object of lines; the same batches always give the same bytes."""
    if form == "text":
        data = b"".join([batch.lines() for batch in batches])
    else:
        data = b"".join([json_line(headers, body) for batch in batches for headers, body in batch.events()])
    return _PACK[compression](data)
