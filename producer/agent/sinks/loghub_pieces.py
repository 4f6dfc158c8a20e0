"""Encoding of a batch as pieces, each the logs of one LogHub request.

The same batch always gives the same pieces, since each has a sequence number under which it may be sent again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...model.config import MAX_BATCH_SIZE_IN_BYTES
from ...model.errors import InvalidArgumentError, LogSizeTooLargeError
from ...model.interfaces import Record
from ...model.options import option
from ...runtime.clock import Clock
from ...wire.log_group import encode_key
from ...wire.speed import encode_events, encode_lines
from ...wire.text import data_of
from ...wire.text_column import TextColumn
from ..events.batch import Column, EventBatch
from ..protocols.loghub import LogstoreOptions

#: Maximum bytes and logs of a piece. The service accepts 10 MiB, and 5 MiB in older regions.
PIECE_BYTES, _PIECE_LOGS = 2 << 20, 40_960
#: Maximum number of pieces of a batch; sequence numbers leave this gap between batches.
MOST_PIECES = 4096
#: Maximum bytes of shared headers, repeated in each event; a batch with more is encoded in parts.
_SHARED_BYTES = 16 << 20
#: Bytes of a request besides its logs.
_HEAD_BYTES = 64 << 10
#: The first second that does not fit a log's time.
_END_OF_TIME = 2**32
#: The smallest time that is taken for nanoseconds, in 1973; smaller ones are milliseconds.
_NANOSECONDS = 10**17
#: Maximum digits of a time; Python refuses to convert very many.
_TIME_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FormOptions(LogstoreOptions):
    """The logstore, and the form of logs."""

    topic: str = option("", doc="topic of the logs")
    source: str | None = option(None, doc="source of the logs; empty for this host's address")
    field: str = option("content", doc="field for the body")
    headers: str = option(
        "tags", doc="use of headers that all events of a batch share", choices=("tags", "fields", "none")
    )
    columns: str = option("fields", doc="use of other headers", choices=("fields", "none"))
    time_header: str | None = option(
        "timestamp", doc="header with a log's time in milliseconds or nanoseconds since the epoch"
    )


class Pieces:
    """Encoder of batches."""

    def __init__(self, form: FormOptions, clock: Clock) -> None:
        self._form, self._clock = form, clock

    def of(self, batch: EventBatch) -> Iterable[tuple[Record, int]]:
        """Return the pieces of a batch, with the number of logs in each.

        If large headers are repeated in each event, the batch is encoded part by part, and twice: the first time only
        checks that all pieces can be sent.

        :raises LogSizeTooLargeError: an event, or the batch as a whole, is too large.
        :raises InvalidArgumentError: a header is not valid text.
        """
        parts = self._parts(batch)
        if len(parts) > 1:
            _check(len(records) for part in parts for records, _ in self._pieces(part))
            return (piece for part in parts for piece in self._pieces(part))
        pieces = list(self._pieces(batch))
        _check(len(records) for records, _ in pieces)
        return pieces

    def _parts(self, batch: EventBatch) -> Sequence[EventBatch]:
        """Split a batch whose shared headers, repeated in each event, would need too much memory."""
        shared = 0
        if self._form.headers == "fields":
            shared = sum(len(name) + len(value) for name, value in batch.shared.items())
        if shared * batch.count <= _SHARED_BYTES:
            return [batch]
        bodies, rows = batch.bodies(), max(1, _SHARED_BYTES // shared)
        return [
            EventBatch.of_bodies(
                bodies[at : at + rows],
                batch.shared,
                {name: column[at : at + rows] for name, column in batch.columns.items()},
            )
            for at in range(0, batch.count, rows)
        ]

    def unfit(self, batch: EventBatch) -> list[str]:
        """Return for each event the reason why it can never be sent; empty if it can."""
        return [self._unfit(one) for one in self._singly(batch)]

    def _singly(self, batch: EventBatch) -> Iterator[EventBatch]:
        """Yield each event as a batch of the same form."""
        for headers, body in batch.events():
            own = {name: [headers.get(name)] for name in batch.columns}
            yield EventBatch.of_bodies([body], batch.shared, own)

    def _unfit(self, event: EventBatch) -> str:
        """Return the reason why an event can never be sent; empty if it can."""
        try:
            self.of(event)
        except (LogSizeTooLargeError, InvalidArgumentError) as error:
            return str(error)
        return ""

    def _pieces(self, batch: EventBatch) -> Iterable[tuple[Record, int]]:
        now, fields = int(self._clock.time()), self._fields(batch)
        if batch.ends is None and not fields and self._form.time_header not in batch.columns:
            return self._of_lines(batch, now)
        ends = b"" if batch.ends is None else batch.ends.tobytes()
        packed = [_checked(name, column) for name, values in fields if not (column := TextColumn.of(values)).is_empty]
        name, times = encode_key(self._form.field), self._times(batch, now)
        return encode_events(batch.block, ends, batch.count, name, packed, *times, PIECE_BYTES, _PIECE_LOGS)

    def _of_lines(self, batch: EventBatch, now: int) -> Iterator[tuple[Record, int]]:
        end, name = 0, encode_key(self._form.field)
        time = self._time_of(self._time_texts(batch)[0]) or (now, 0)
        while end < len(batch.block):
            records, lines, end = encode_lines(batch.block, end, name, *time, PIECE_BYTES, _PIECE_LOGS, True)
            yield records, lines

    def _fields(self, batch: EventBatch) -> list[tuple[str, Column]]:
        """Return headers that become fields; a column of one value applies to all events."""
        form, found = self._form, dict[str, Column]()
        if form.headers == "fields":
            found |= {name: [value] for name, value in batch.shared.items()}
        if form.columns == "fields":
            found |= batch.columns
        if form.field not in found:
            return list(found.items())
        column, spare = found.pop(form.field), f"header_{form.field}"  # keep it besides the body
        if spare not in found:
            return [*found.items(), (spare, column)]
        pairs = list(zip(_each(found[spare], batch.count), _each(column, batch.count), strict=True))
        found[spare] = [other if own is None or other is None else own for other, own in pairs]
        return [*found.items(), (spare, [own if other is None else None for other, own in pairs])]

    def _times(self, batch: EventBatch, now: int) -> tuple[bytes, bytes]:
        """Return seconds and nanoseconds, for each event or one for all."""
        times = [self._time_of(text) or (now, 0) for text in self._time_texts(batch)]
        return array("Q", [second for second, _ in times]).tobytes(), array(
            "I", [below for _, below in times]
        ).tobytes()

    def _time_texts(self, batch: EventBatch) -> Column:
        """Return the texts of the time, for each event or one for all."""
        name = self._form.time_header
        return [None] if name is None else batch.columns.get(name) or [batch.shared.get(name)]

    def _time_of(self, text: str | None) -> tuple[int, int] | None:
        """Convert a time's text into seconds and nanoseconds; None if it is missing or invalid."""
        if text is None or not text.isdecimal() or len(text) > _TIME_DIGITS:
            return None
        number = int(text)
        seconds, below = divmod(number if number >= _NANOSECONDS else number * 1_000_000, 1_000_000_000)
        return (seconds, below) if seconds < _END_OF_TIME else None


def _check(sizes: Iterable[int]) -> None:
    """:raises LogSizeTooLargeError: there are too many pieces, or one is too large."""
    count = largest = 0
    for size in sizes:
        count, largest = count + 1, max(size, largest)
    if count > MOST_PIECES:
        raise LogSizeTooLargeError(count * PIECE_BYTES, MOST_PIECES * PIECE_BYTES, "a batch, in requests of 2 MiB")
    if largest > MAX_BATCH_SIZE_IN_BYTES - _HEAD_BYTES:
        raise LogSizeTooLargeError(largest, MAX_BATCH_SIZE_IN_BYTES - _HEAD_BYTES, "an event as a log")


def _checked(name: str, column: TextColumn) -> tuple[bytes, TextColumn]:
    """Encode a field.

    :raises InvalidArgumentError: its name, or one of its values, is not valid text.
    """
    if not column.is_encodable:
        for value in filter(None, column):
            data_of(value, name)  # raises the error for an invalid value
    return encode_key(name), column


def _each(column: Column, count: int) -> Column:
    return column if len(column) == count else list(column) * count
