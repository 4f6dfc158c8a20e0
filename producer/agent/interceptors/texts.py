"""What interceptors share: bodies as text and back, and headers that events may have already."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from ..events.batch import Column, EventBatch

#: How bytes that are not UTF-8 travel through text, and come out as they were.
_ODD_BYTES = "surrogateescape"
#: Characters of a header's value that is remembered as it is: of a peer's long ones thousands would take gigabytes.
_LONGEST_KEY = 64


def texts(batch: EventBatch, errors: str = _ODD_BYTES) -> list[str]:
    """The bodies as text, without a step for each line where they are lines."""
    if batch.ends is not None:
        return [body.decode(errors=errors) for body in batch.bodies()]
    lines = batch.block.decode(errors=errors).split("\n")
    lines.pop()
    return [line.removesuffix("\r") for line in lines] if b"\r" in batch.block else lines


def with_texts(batch: EventBatch, bodies: Sequence[str]) -> EventBatch:
    """The batch with other bodies; lines stay lines, if they can."""
    if batch.ends is None:
        joined = "\n".join([*bodies, ""])
        if joined.count("\n") == batch.count and "\r" not in joined:
            block = joined.encode(errors=_ODD_BYTES)
            return EventBatch(block, None, batch.count, batch.shared, batch.columns, batch.position, batch.sequence)
    return batch.with_bodies([body.encode(errors=_ODD_BYTES) for body in bodies])


def with_header(batch: EventBatch, name: str, value: str, preserve: bool) -> EventBatch:
    """With a header of one value.

    :param preserve: only for events that have none of this name.
    """
    if not preserve:
        return batch.with_shared({name: value})
    if name in batch.shared:
        return batch
    if name in batch.columns:
        return with_values(batch, name, [value] * batch.count, preserve=True)
    return batch.with_shared({name: value})


def with_values(batch: EventBatch, name: str, values: Column, *, preserve: bool) -> EventBatch:
    """With a header whose values differ; where there is no new one, that of before stays.

    :param preserve: where there is one of before, it stays, too.
    """
    if not preserve:
        return batch.with_column(name, over_former(batch, name, values))
    if name in batch.shared or name in batch.columns:
        values = [one if one is not None else other for one, other in zip(batch.values(name), values, strict=True)]
    return batch.with_column(name, values)


def over_former(batch: EventBatch, name: str, values: Column) -> Column:
    """New values of a header; where there is none, that of before stays."""
    if name not in batch.shared and name not in batch.columns:
        return values
    return [one if one is not None else other for one, other in zip(values, batch.values(name), strict=True)]


def key_of(value: str | None) -> str | bytes | None:
    """Return what stands for a header's value while it is remembered: of a long one 16 bytes."""
    if value is None or len(value) <= _LONGEST_KEY:
        return value
    return blake2b(value.encode(errors="surrogatepass"), digest_size=16).digest()
