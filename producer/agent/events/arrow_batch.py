"""Events as a record batch of Arrow, by the C data interface; needs the extra ``arrow``."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

_BODY = "body"


def record_batch(
    bodies: Any, count: int, shared: Mapping[str, str], columns: Mapping[str, Sequence[str | None]]
) -> Any:
    """``body``, and for each header a column of its name, or ``header.body``.

    :param bodies: of one of the next two.
    :param count: how many these are.
    :param shared: headers that all events have, with one value.
    :param columns: the others.
    """
    import pyarrow

    headers = {_name(name): pyarrow.repeat(value, count) for name, value in shared.items()}
    headers |= {_name(name): pyarrow.array(list(values), pyarrow.string()) for name, values in columns.items()}
    return pyarrow.RecordBatch.from_pydict({_BODY: bodies, **headers})


def bodies_in(block: bytes, ends: array[int]) -> Any:
    """Bodies that lie one behind the other, which are not copied.

    :param ends: where each one ends.
    """
    import pyarrow

    offsets = pyarrow.py_buffer(array("q", chain([0], ends)))
    buffers = [None, offsets, pyarrow.py_buffer(block)]
    return pyarrow.LargeBinaryArray.from_buffers(pyarrow.large_binary(), len(ends), buffers)


def bodies_of(bodies: Sequence[bytes]) -> Any:
    """Single bodies."""
    import pyarrow

    return pyarrow.array(bodies, pyarrow.large_binary())


def _name(header: str) -> str:
    return f"header.{header}" if header == _BODY else header
