"""What requests for LogHub are made of: the logs of a batch, a request's at a time.

The same batch always gives the same pieces, since each has a number under which it may be sent again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ...model.config import MAX_BATCH_SIZE_IN_BYTES
from ...model.errors import InvalidArgumentError, LogSizeTooLargeError
from ...model.interfaces import Record
from ...runtime.clock import Clock
from ...wire.log_group import encode_key
from ...wire.speed import encode_events, encode_lines
from ...wire.text import data_of
from ...wire.text_column import TextColumn
from ..events.batch import Column, EventBatch

#: Of one request. The service takes 10 MiB, and 5 in older regions.
PIECE_BYTES, _PIECE_LOGS = 2 << 20, 40_960
#: Pieces of a batch, at most: the numbers between those of two batches.
MOST_PIECES = 4096
#: Bytes of fields which all events share, in all pieces together; of more a batch is made in parts.
_SHARED_BYTES = 16 << 20
#: What a request may have besides its logs, bytes.
_HEAD_BYTES = 64 << 10
#: The first millisecond that a log's time cannot say.
_END_OF_TIME = 2**32 * 1000
#: More digits are no time, and may be more than Python turns into a number.
_TIME_DIGITS = 20


class Form(Protocol):
    """What the sink's options say of a log."""

    @property
    def field(self) -> str:
        """That holds a body."""

    @property
    def headers(self) -> str:
        """What becomes of shared headers."""

    @property
    def columns(self) -> str:
        """What becomes of others."""

    @property
    def time_header(self) -> str | None:
        """The header with a log's time, milliseconds."""


class Pieces:
    """Makes them."""

    def __init__(self, form: Form, clock: Clock) -> None:
        self._form, self._clock = form, clock

    def of(self, batch: EventBatch) -> Iterable[tuple[Record, int]]:
        """The batch's records, a request's at a time, and how many each has. Where large headers are repeated in each
        event they are made twice, and only one part of them is there at a time: first to see whether all can be sent.

        :raises LogSizeTooLargeError: one of the events, or all of them together, are too large.
        :raises InvalidArgumentError: a header is no text that can be sent.
        """
        parts = self._parts(batch)
        if len(parts) > 1:
            _check(len(records) for part in parts for records, _ in self._pieces(part))
            return (piece for part in parts for piece in self._pieces(part))
        pieces = list(self._pieces(batch))
        _check(len(records) for records, _ in pieces)
        return pieces

    def _parts(self, batch: EventBatch) -> Sequence[EventBatch]:
        """The batch, cut where all that its events share would be too much at once."""
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
        """Why each of its events can never be sent; empty for one that can."""
        return [self._unfit(one) for one in self._singly(batch)]

    def _singly(self, batch: EventBatch) -> Iterator[EventBatch]:
        """Each event, in the same form."""
        for headers, body in batch.events():
            own = {name: [headers.get(name)] for name in batch.columns}
            yield EventBatch.of_bodies([body], batch.shared, own)

    def _unfit(self, event: EventBatch) -> str:
        """Why an event can never be sent; empty if it can."""
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
        """Headers that become fields; a single value is that of all events."""
        form, found = self._form, dict[str, Column]()
        if form.headers == "fields":
            found |= {name: [value] for name, value in batch.shared.items()}
        if form.columns == "fields":
            found |= batch.columns
        if form.field not in found:
            return list(found.items())
        column, spare = found.pop(form.field), f"header_{form.field}"  # beside the body: both are kept
        if spare not in found:
            return [*found.items(), (spare, column)]
        pairs = list(zip(_each(found[spare], batch.count), _each(column, batch.count), strict=True))
        found[spare] = [other if own is None or other is None else own for other, own in pairs]
        return [*found.items(), (spare, [own if other is None else None for other, own in pairs])]

    def _times(self, batch: EventBatch, now: int) -> tuple[bytes, bytes]:
        """Seconds and nanoseconds, of each event or of all."""
        times = [self._time_of(text) or (now, 0) for text in self._time_texts(batch)]
        return array("Q", [second for second, _ in times]).tobytes(), array(
            "I", [below for _, below in times]
        ).tobytes()

    def _time_texts(self, batch: EventBatch) -> Column:
        """The header with the time, of each event or of all."""
        name = self._form.time_header
        return [None] if name is None else batch.columns.get(name) or [batch.shared.get(name)]

    def _time_of(self, text: str | None) -> tuple[int, int] | None:
        """Seconds and nanoseconds of a header with the time; None without, or if it is no such number."""
        if text is None or not text.isdecimal() or len(text) > _TIME_DIGITS or not 0 <= int(text) < _END_OF_TIME:
            return None
        return int(text) // 1000, int(text) % 1000 * 1_000_000


def _check(sizes: Iterable[int]) -> None:
    """
    :raises LogSizeTooLargeError: there are too many pieces, or one is too large.
    """
    count = largest = 0
    for size in sizes:
        count, largest = count + 1, max(size, largest)
    if count > MOST_PIECES:
        raise LogSizeTooLargeError(count, MOST_PIECES, "a batch, counted in requests of 2 MiB,")
    if largest > MAX_BATCH_SIZE_IN_BYTES - _HEAD_BYTES:
        raise LogSizeTooLargeError(largest, MAX_BATCH_SIZE_IN_BYTES - _HEAD_BYTES, "an event as a log")


def _checked(name: str, column: TextColumn) -> tuple[bytes, TextColumn]:
    """A field as it is encoded.

    :raises InvalidArgumentError: its name, or one of its values, is no text that can be sent.
    """
    if not column.is_encodable:
        for value in filter(None, column):
            data_of(value, name)  # which says what is wrong
    return encode_key(name), column


def _each(column: Column, count: int) -> Column:
    return column if len(column) == count else list(column) * count
