"""Common functions of interceptors: they convert bodies to text and back, and set headers that may already exist."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from ..events.batch import Column, EventBatch

#: Error handler that keeps bytes which are not UTF-8 through text and back.
_ODD_BYTES = "surrogateescape"
#: Maximum characters of a value that is remembered whole; longer ones of a peer could take gigabytes.
_LONGEST_KEY = 64


def texts(batch: EventBatch, errors: str = _ODD_BYTES) -> list[str]:
    """Return the bodies as text; for lines, without a step for each line."""
    if batch.ends is not None:
        return [body.decode(errors=errors) for body in batch.bodies()]
    lines = batch.block.decode(errors=errors).split("\n")
    lines.pop()
    return [line.removesuffix("\r") for line in lines] if b"\r" in batch.block else lines


def with_texts(batch: EventBatch, bodies: Sequence[str]) -> EventBatch:
    """Return the batch with other bodies; lines stay lines if possible."""
    if batch.ends is None:
        joined = "\n".join([*bodies, ""])
        if joined.count("\n") == batch.count and "\r" not in joined:
            block = joined.encode(errors=_ODD_BYTES)
            return EventBatch(block, None, batch.count, batch.shared, batch.columns, batch.position, batch.sequence)
    return batch.with_bodies([body.encode(errors=_ODD_BYTES) for body in bodies])


def with_header(batch: EventBatch, name: str, value: str, preserve: bool) -> EventBatch:
    """Return the batch with a header of one value.

    :param preserve: True to keep the header of events that have it.
    """
    if not preserve:
        return batch.with_shared({name: value})
    if name in batch.shared:
        return batch
    if name in batch.columns:
        return with_values(batch, name, [value] * batch.count, preserve=True)
    return batch.with_shared({name: value})


def with_values(batch: EventBatch, name: str, values: Column, *, preserve: bool) -> EventBatch:
    """Return the batch with a header of one value for each event; None keeps the old value.

    :param preserve: True to keep all old values.
    """
    if not preserve:
        return batch.with_column(name, with_kept_values(batch, name, values))
    if name in batch.shared or name in batch.columns:
        values = [one if one is not None else other for one, other in zip(batch.values(name), values, strict=True)]
    return batch.with_column(name, values)


def with_kept_values(batch: EventBatch, name: str, values: Column) -> Column:
    """Return new values of a header; None keeps the old value."""
    if name not in batch.shared and name not in batch.columns:
        return values
    return [one if one is not None else other for one, other in zip(values, batch.values(name), strict=True)]


def key_of(value: str | None) -> str | bytes | None:
    """Return a key for a header's value: a digest of 16 bytes for a long one."""
    if value is None or len(value) <= _LONGEST_KEY:
        return value
    return blake2b(value.encode(errors="surrogatepass"), digest_size=16).digest()
