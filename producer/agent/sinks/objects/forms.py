"""Encoding of objects: lines of text or JSON, optionally compressed, or a Parquet table."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


def encoded(batches: Sequence[EventBatch], form: str, compression: str, columns: Sequence[str]) -> bytes:
    """Encode an object; the same batches always give the same bytes.

    :param columns: headers that become columns of a table.
    """
    if form == "parquet":
        return _table(batches, compression, columns)
    if form == "text":
        data = b"".join([batch.lines() for batch in batches])
    else:
        data = b"".join([json_line(headers, body) for batch in batches for headers, body in batch.events()])
    return _PACK[compression](data)


def _table(batches: Sequence[EventBatch], compression: str, columns: Sequence[str]) -> bytes:
    """Return a Parquet file with the column ``body``, one for each given header, and ``headers`` with the others."""
    import pyarrow
    from pyarrow import parquet

    named = set(columns)
    rows = [headers for batch in batches for headers in batch.headers()]
    texts = pyarrow.string()
    made: dict[str, Any] = {"body": _bodies([body for batch in batches for body in batch.bodies()])}
    made |= {name: pyarrow.array([row.get(name) for row in rows], texts) for name in columns}
    rest = [[(name, value) for name, value in row.items() if name not in named] for row in rows]
    made["headers"] = pyarrow.array(rest, pyarrow.map_(texts, texts))
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(made), file, compression=compression)
    return file.getvalue()


def _bodies(bodies: Sequence[bytes]) -> Any:
    """Return bodies as a text column; bytes that are not UTF-8 are replaced."""
    import pyarrow

    try:
        return pyarrow.array(bodies, pyarrow.binary()).cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        return pyarrow.array([body.decode(errors="replace") for body in bodies], pyarrow.string())
