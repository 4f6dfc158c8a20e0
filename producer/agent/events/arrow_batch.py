"""Export event batches by Arrow's C data interface; needs the extra ``arrow``."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

_BODY = "body"


def record_batch(
    bodies: Any, count: int, shared: Mapping[str, str], columns: Mapping[str, Sequence[str | None]]
) -> Any:
    """Return a record batch with the column ``body`` and one for each header. A header named ``body`` becomes
    ``header.body``.

    :param bodies: a column of :func:`bodies_in` or :func:`bodies_of`.
    :param count: the number of bodies.
    :param shared: headers with one value for all events.
    :param columns: the other headers.
    """
    import pyarrow

    headers = {_name(name): pyarrow.repeat(value, count) for name, value in shared.items()}
    headers |= {_name(name): pyarrow.array(list(values), pyarrow.string()) for name, values in columns.items()}
    return pyarrow.RecordBatch.from_pydict({_BODY: bodies, **headers})


def bodies_in(block: bytes, ends: array[int]) -> Any:
    """Return a column of bodies that lie one after the other in a block, without copying them.

    :param ends: the end of each body.
    """
    import pyarrow

    offsets = pyarrow.py_buffer(array("q", chain([0], ends)))
    buffers = [None, offsets, pyarrow.py_buffer(block)]
    return pyarrow.LargeBinaryArray.from_buffers(pyarrow.large_binary(), len(ends), buffers)


def bodies_of(bodies: Sequence[bytes]) -> Any:
    """Return a column of separate bodies."""
    import pyarrow

    return pyarrow.array(bodies, pyarrow.large_binary())


def _name(header: str) -> str:
    return f"header.{header}" if header == _BODY else header
