"""What a record is: the log, and the stream that it belongs to. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

#: ``order`` of streams whose batches arrive in the order of ``send``, and of those that are numbered besides.
ORDERED = "ordered"
IDEMPOTENT = "idempotent"
#: How ``order`` begins where the caller owns the numbers.
SEQUENCED = "sequence:"
#: … and where the records are those of an idempotent stream in the channel of a process that died: its name follows.
ADOPTED = "idempotent:"


@dataclass(frozen=True, slots=True)
class LogItem:
    """A log with a time of its own.

    :ivar contents: a mapping of field names to values, or a sequence of ``(name, value)`` pairs, in which a name
        may be repeated.
    :ivar time: seconds since the Unix epoch, 0 to 2**32 - 1, as an integer or a ``float`` (taken to the microsecond),
        or an aware ``datetime``; None is the time of ``send``.
    :ivar time_ns: nanoseconds within that second, 0 to 999,999,999; None is what ``time`` says of them, and 0 leaves
        the field out.
    """

    contents: Mapping[str, Any] | Sequence[tuple[str, Any]]
    time: float | datetime | None = None
    time_ns: int | None = None


class StreamKey(NamedTuple):
    """What decides whether two records may share a batch.

    :ivar project: the project.
    :ivar logstore: the logstore.
    :ivar topic: the LogGroup's topic, may be empty.
    :ivar source: the LogGroup's source, may be empty.
    :ivar shard_hash: 32 hexadecimal digits that choose the shard, already adjusted to buckets; None balances the load.
    :ivar tags: the LogGroup's tags, pairs of name and value.
    :ivar order: empty for batches on their own; :data:`ORDERED`; :data:`IDEMPOTENT`; :data:`SEQUENCED` and the hash key
        with the handle's own name.
    """

    project: str
    logstore: str
    topic: str = ""
    source: str = ""
    shard_hash: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    order: str = ""

    @property
    def line(self) -> StreamKey | str:
        """Of what one batch is in flight at a time: the stream, or all that one handle with a ``SequenceKey`` sends."""
        return self.order if self.order.startswith(SEQUENCED) else self


def plain(key: StreamKey) -> StreamKey:
    """``key`` with the text of its order alone: it counts nothing, and can go anywhere."""
    return key._replace(order=str(key.order))


def hash_key_of(order: str) -> str:
    """The hash key in the ``order`` of a stream with a ``SequenceKey``."""
    return order[len(SEQUENCED) : len(SEQUENCED) + 32]
