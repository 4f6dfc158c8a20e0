"""What a record is: the log, the stream that it belongs to, and how a value becomes text."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Integral
from typing import Any, NamedTuple, Self
from uuid import UUID

from .errors import InvalidArgumentError

#: ``Time`` of a log is a 32-bit count of seconds.
MAX_TIME = 2**32 - 1
# Of structures that JSON has no word for as they are; the others may be as deep as the interpreter allows.
_MAX_DEPTH = 200
#: ``Time_ns`` is the part of a second below it, in nanoseconds.
MAX_TIME_NS = 999_999_999
#: The highest number of a batch; the server's is 64 bits wide.
MAX_NUMBER = 2**63 - 1
_HASH_KEY = re.compile(r"[0-9a-f]{32}")

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
    :ivar time: seconds since the Unix epoch, 0 to 2**32 - 1, or an aware ``datetime``; None is the time of ``send``.
    :ivar time_ns: nanoseconds within that second, 0 to 999,999,999; None (or 0) leaves the field out.
    """

    contents: Mapping[str, Any] | Sequence[tuple[str, Any]]
    time: int | datetime | None = None
    time_ns: int | None = None


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """The numbers of a stream's pieces, when the caller owns them: whoever sends the same pieces in the same order
    under the same key has each of them stored once, also from another process.

    :ivar key: 32 lower-case hexadecimal digits: the hash key of the requests, which names the writer and chooses the
        shard. One logstore at a time may see it.
    :ivar first: the number of the first piece, 1 to 2**63 - 1; the n-th has ``first + n - 1``.
    :raises InvalidArgumentError: a wrong key or number.
    """

    key: str
    first: int = 1

    def __post_init__(self) -> None:
        key: object = self.key
        first: object = self.first
        if not isinstance(key, str) or not _HASH_KEY.fullmatch(key):
            raise InvalidArgumentError(
                f"SequenceKey.key: must be 32 lower-case hexadecimal digits, such as a UUID's hex, got {self.key!r}"
            )
        if not isinstance(first, int) or isinstance(first, bool) or not 1 <= first <= MAX_NUMBER:
            raise InvalidArgumentError(f"SequenceKey.first: must be an integer from 1 to 2**63 - 1, got {self.first!r}")


class Numbering(str):
    """The ``order`` of a stream with a :class:`SequenceKey`: its text, and the count of one handle.

    The text is the hash key and a random part, so that each handle counts for itself: a retried task begins anew
    beside the one that it replaces. It belongs to the process that made it.

    :ivar next: the number of the next piece; guarded by what makes acceptance atomic: the accumulator's lock, or behind
        a channel ``lock``.
    :ivar lock: held while pieces are numbered and stored in a channel, so that they stand there in the order of their
        numbers.
    """

    __slots__ = ("__weakref__", "_process", "_sequence", "lock", "next")

    next: int
    lock: threading.Lock
    _sequence: SequenceKey
    _process: int

    def __new__(cls, sequence: SequenceKey) -> Self:
        self = super().__new__(cls, f"{SEQUENCED}{sequence.key}:{secrets.token_hex(8)}")
        self._sequence, self._process = sequence, os.getpid()
        self.next, self.lock = sequence.first, threading.Lock()
        return self

    def check(self) -> None:
        """Whether this process may go on counting.

        :raises InvalidArgumentError: it was forked from the one that opened the stream, whose numbers these are.
        """
        if self._process != os.getpid():
            raise InvalidArgumentError(
                "a stream with a SequenceKey was opened before a fork: its numbers are the parent's, and what another "
                "process sends under them counts as written; open a stream with a key of its own here"
            )

    def take(self) -> int:
        """The next number.

        :raises InvalidArgumentError: as :meth:`check`.
        """
        self.check()
        number = self.next
        self.next += 1
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        if self.next != self._sequence.first:
            raise TypeError(
                f"a stream with a SequenceKey that has sent pieces cannot be pickled: open it where it is used, with "
                f"SequenceKey({self._sequence.key!r}, first={self.next}) if it is to go on there"
            )
        return type(self), (self._sequence,)


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


def time_of(item: LogItem, now: int) -> tuple[int, int]:
    """The seconds and nanoseconds that ``item`` is sent with.

    :param now: seconds since the epoch, for an item without a time.
    :raises InvalidArgumentError: not an integer or an aware datetime, or out of range.
    """
    seconds, nanos = item.time, item.time_ns
    if isinstance(seconds, datetime):
        seconds, nanos = _split_datetime(seconds, nanos)
    if seconds is None:
        seconds = now
    if nanos is None:
        nanos = 0
    _check_range("time", seconds, MAX_TIME)
    _check_range("time_ns", nanos, MAX_TIME_NS)
    return seconds, nanos


def _split_datetime(moment: datetime, nanos: int | None) -> tuple[int, int | None]:
    if moment.tzinfo is None:
        raise InvalidArgumentError(f"time: a datetime needs a time zone, got {moment!r}")
    seconds = math.floor(moment.timestamp())
    return seconds, moment.microsecond * 1000 if nanos is None else nanos


def _check_range(name: str, value: object, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise InvalidArgumentError(f"{name}: must be an integer from 0 to {highest}, got {value!r}")


def text_of(value: Any, name: str) -> str | bytes:
    """``value`` as the text (or bytes) that travels; the rule for every value that is not None.

    ======================  ==================================================
    ``str``, ``bytes``      as they are (``bytearray``, ``memoryview`` as bytes)
    ``bool``                ``true``, ``false``
    ``int``                 decimal digits (also other integers, as NumPy's)
    ``float``               ``repr``: the shortest text that reads back equal
    ``Decimal``             ``str``, never in floating point
    ``datetime``            ISO 8601 (``isoformat``); ``date`` and ``time`` too
    ``UUID``                36 characters with dashes
    mappings, lists,        compact JSON in UTF-8; values inside follow this
    tuples                  table as JSON strings, numbers and booleans apart
    ======================  ==================================================

    :param name: the field, for the error.
    :raises InvalidArgumentError: another type, or a structure that JSON cannot express.
    """
    quick = _QUICK.get(type(value))
    try:
        text = quick(value) if quick is not None else _general_text(value, name)
    except InvalidArgumentError:
        raise
    except ValueError as error:  # an integer of thousands of digits, a released memoryview
        raise InvalidArgumentError(f"field {name!r}: {error}") from error
    if text is None:
        raise InvalidArgumentError(
            f"field {name!r}: cannot send a value of type {type(value).__module__}.{type(value).__qualname__}; "
            "make it text, bytes, a number, bool, Decimal, datetime, UUID, or a mapping or list of these"
        )
    return text


def _general_text(value: object, name: str) -> str | bytes | None:
    # Of subclasses the true characters, whatever they make of their length or encoding.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping | list | tuple):
        return _json_of(value, name)
    return _scalar_text(value)


def _text_of_bool(value: bool) -> str:
    return "true" if value else "false"


# The commonest types by exact match; their subclasses take the general way, to the same result.
_QUICK: dict[type, Callable[[Any], str | bytes]] = {
    str: lambda value: value,
    bytes: lambda value: value,
    int: int.__repr__,
    float: float.__repr__,
    bool: _text_of_bool,
}


def _scalar_text(value: object) -> str | None:
    if isinstance(value, bool):
        return _text_of_bool(value)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return None


def _json_of(value: object, name: str) -> str:
    try:
        try:
            return _dumps(value)
        except ValueError:  # perhaps a number that JSON has no word for
            return _dumps(_finite(value, 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"field {name!r}: cannot become JSON: {error}") from error


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_default)


def _finite(value: Any, depth: int) -> Any:
    """``value`` with ``nan`` and the infinities as text."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    if isinstance(value, float) and not math.isfinite(value):
        return float.__repr__(value)
    if isinstance(value, Mapping):
        return {key: _finite(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner, depth + 1) for inner in value]
    return value


def _json_default(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Integral):
        return int(value)
    text = _scalar_text(value)
    if text is None:
        raise TypeError(f"a value of type {type(value).__qualname__} inside it")
    return text
