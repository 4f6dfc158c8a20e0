"""Records: a log, and the key of its stream. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

#: ``order`` of streams whose batches arrive in the order of ``send``, and of those that are also numbered.
ORDERED = "ordered"
IDEMPOTENT = "idempotent"
#: Prefix of ``order`` if the caller owns the numbers.
SEQUENCED = "sequence:"
#: Prefix of ``order`` for records of an idempotent stream adopted from a dead process's channel; its name follows.
ADOPTED = "idempotent:"


@dataclass(frozen=True, slots=True)
class LogItem:
    """A log with its own time.

    :ivar contents: field values by name, or a sequence of ``(name, value)`` pairs, in which names may repeat.
    :ivar time: seconds since the Unix epoch, 0 to 2**32 - 1, as an integer or a ``float`` (rounded to microseconds), or
        an aware ``datetime``; None is the time of ``send``.
    :ivar time_ns: nanoseconds within that second, 0 to 999,999,999; None takes them from ``time``, and 0 leaves the
        field out.
    """

    contents: Mapping[str, Any] | Sequence[tuple[str, Any]]
    time: float | datetime | None = None
    time_ns: int | None = None


class StreamKey(NamedTuple):
    """Key of a stream: records with the same key may share a batch.

    :ivar project: the project.
    :ivar logstore: the logstore.
    :ivar topic: the LogGroup's topic, may be empty.
    :ivar source: the LogGroup's source, may be empty.
    :ivar shard_hash: 32 hexadecimal digits that choose the shard, adjusted to buckets; None balances the load.
    :ivar tags: the LogGroup's tags, pairs of name and value.
    :ivar order: empty for independent batches; :data:`ORDERED`; :data:`IDEMPOTENT`; or :data:`SEQUENCED` with the hash
        key and the handle's own name.
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
        """Return the unit with one batch in flight: the stream, or all streams of one handle with a ``SequenceKey``."""
        return self.order if self.order.startswith(SEQUENCED) else self


def plain(key: StreamKey) -> StreamKey:
    """Return ``key`` with the plain text of its order, without a counter."""
    return key._replace(order=str(key.order))


def hash_key_of(order: str) -> str:
    """Return the hash key in the ``order`` of a stream with a ``SequenceKey``."""
    return order[len(SEQUENCED) : len(SEQUENCED) + 32]
